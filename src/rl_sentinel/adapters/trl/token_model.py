"""A causal language model whose backbone looks up known log-probs or logits by token id."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from rl_sentinel.adapters.trl.tiny_trainer import make_model

#: Size of the vocabulary: each response token of a batch has a unique id.
VOCABULARY = 256

#: A token of a prompt, a truncated token, and the first response token.
PROMPT, CUT, FIRST = 4, 5, 8

#: The token that gets the rest of the probability.
OTHER = 2

#: Log-prob of prompt tokens and of truncated tokens.
ELSEWHERE = -2.0

#: A logit with probability 0 in any precision.
NEVER = -1e4

#: The largest log-prob of a token: :data:`OTHER` needs the rest of the probability.
LARGEST = -1e-3


def token_ids(rows: int, width: int) -> Tensor:
    """The unique id of each response token, ``[B, T]``."""
    return FIRST + torch.arange(rows * width).reshape(rows, width)


class Backbone:
    """A fake backbone. Its hidden states are the logits, because the head is the identity.

    The next token of the input gets the log-prob of its id, and :data:`OTHER` gets the remaining probability.
    """

    def __init__(self, logprobs: Tensor) -> None:
        """Store ``[B, T]`` log-probs of the tokens from :func:`token_ids`."""
        self.logprobs = logprobs

    def spread(self, column: Tensor) -> Tensor:
        """The column ``[B, T]``, arranged by token id as ``[V]``, with a constant at other ids."""
        before = column.new_full((FIRST,), ELSEWHERE)
        after = column.new_full((VOCABULARY - FIRST - column.numel(),), ELSEWHERE)
        return torch.cat([before, column.flatten(), after])

    def __call__(self, input_ids: Tensor, **_more: object) -> Any:  # noqa: ANN401 - as a model of transformers
        """Logits ``[B, S, V]`` of the token after each position; the last position predicts no token."""
        own = self.spread(self.logprobs).clamp(max=LARGEST)
        following = torch.cat([input_ids[:, 1:], torch.full_like(input_ids[:, :1], PROMPT)], 1)
        chosen = own[following].unsqueeze(-1)
        logits = torch.full((*input_ids.shape, VOCABULARY), NEVER, dtype=chosen.dtype)
        rest = torch.full_like(following, OTHER).unsqueeze(-1)
        logits = logits.scatter(2, rest, torch.log1p(-chosen.exp()))
        return SimpleNamespace(
            last_hidden_state=logits.scatter(2, following.unsqueeze(-1), chosen),
            past_key_values=None,
            hidden_states=None,
            attentions=None,
        )


class ValueModel:
    """A fake model with a value head. At each position, it returns logits and value for the next token."""

    def __init__(self, logprobs: Tensor, values: Tensor) -> None:
        """Store ``[B, T]`` log-probs and values of the tokens from :func:`token_ids`."""
        self.backbone, self.values = Backbone(logprobs), values

    def eval(self) -> None:
        """Do nothing."""

    def __call__(self, input_ids: Tensor, **_more: object) -> tuple[Tensor, None, Tensor]:
        """The logits ``[B, S, V]`` and values ``[B, S]``."""
        following = torch.cat([input_ids[:, 1:], torch.full_like(input_ids[:, :1], PROMPT)], 1)
        return self.backbone(input_ids).last_hidden_state, None, self.backbone.spread(self.values)[following]


class LogitBackbone:
    """A fake backbone with the logits of a batch, placed at the id of the next token and at a few fixed ids.

    All other ids have probability 0. With ``level``, they have the mean logit instead, which keeps the mean unchanged.
    """

    def __init__(self, logits: Tensor, tokens: Tensor, *, level: bool = False) -> None:
        """Store ``[B, T, V]`` logits and ``[B, T]`` token ids."""
        self.logits, self.tokens, self.level = logits.flatten(0, 1), tokens.flatten().long(), level

    def __call__(self, input_ids: Tensor, **_more: object) -> Any:  # noqa: ANN401 - as a model of transformers
        """Logits ``[B, S, 256]`` of the token after each position."""
        following = torch.cat([input_ids[:, 1:], torch.full_like(input_ids[:, :1], PROMPT)], 1)
        place = following - FIRST
        of_case = (place >= 0) & (place < len(self.tokens))
        known, token = self.logits[place[of_case]], self.tokens[place[of_case]].unsqueeze(1)
        rest = known.mean(1, keepdim=True) if self.level else torch.full_like(known[:, :1], NEVER)
        wide = rest.expand(-1, VOCABULARY).clone()
        wide[:, OTHER : OTHER + known.shape[1]] = known.scatter(1, token, rest)
        wide = wide.scatter(1, following[of_case].unsqueeze(1), known.gather(1, token))
        logits = known.new_zeros(*input_ids.shape, VOCABULARY)
        logits[..., PROMPT] = -ELSEWHERE
        logits[of_case] = wide
        return SimpleNamespace(last_hidden_state=logits, past_key_values=None, hidden_states=None, attentions=None)


class HeadedPolicy:
    """A fake policy. Its head is the identity, and its hidden states give each token its log-prob.

    The vocabulary entry ``token + 1`` gets the remaining probability.
    """

    training = True

    def __init__(self, logprobs: Tensor, tokens: Tensor) -> None:
        """Store ``[B, T]`` log-probs and token ids of completions."""
        self.logprobs, self.tokens = logprobs, tokens

    def train(self) -> None:
        """Do nothing: the policy is always in training mode."""

    @property
    def lm_head(self) -> SimpleNamespace:
        """The output layer: the identity over a vocabulary with all tokens and one more entry."""
        size = int(self.tokens.max()) + 2 if self.tokens.numel() else 2
        return SimpleNamespace(weight=torch.eye(size, dtype=self.logprobs.dtype), bias=None)

    def base_model(self, input_ids: Tensor, **_inputs: object) -> SimpleNamespace:
        """Hidden states ``[B, P + T, V]``; the last position predicts no token."""
        own, token = self.logprobs.clamp(max=LARGEST).unsqueeze(2), self.tokens.unsqueeze(2)
        size = len(self.lm_head.weight)
        hidden = torch.full((*self.tokens.shape, size), NEVER, dtype=own.dtype)
        hidden = hidden.scatter(2, (token + 1) % size, torch.log1p(-own.exp())).scatter(2, token, own)
        before = hidden.new_zeros(len(hidden), input_ids.shape[1] - hidden.shape[1] - 1, size)
        return SimpleNamespace(last_hidden_state=torch.cat([before, hidden, torch.zeros_like(hidden[:, :1])], 1))

    model = forward = base_model


def make_language_model() -> Any:  # noqa: ANN401 - a model of transformers
    """A causal language model with an identity head, for use with :class:`Backbone` and :class:`LogitBackbone`."""
    model = make_model(VOCABULARY)
    head = nn.Linear(VOCABULARY, VOCABULARY, bias=False)
    head.weight = nn.Parameter(torch.eye(VOCABULARY), requires_grad=False)
    model.lm_head = head
    return model


def set_logprobs(model: Any, logprobs: Tensor) -> None:  # noqa: ANN401 - a model of transformers
    """Set the log-probs that the model computes."""
    model.model.forward = Backbone(logprobs)


def set_logits(model: Any, logits: Tensor, tokens: Tensor, *, level: bool = False) -> None:  # noqa: ANN401 - a model of transformers
    """Set the logits that the model computes."""
    model.model.forward = LogitBackbone(logits, tokens, level=level)
