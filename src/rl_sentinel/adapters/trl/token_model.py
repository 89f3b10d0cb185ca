"""A causal language model that returns the log-probs of a case; its backbone looks them up by token id."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

#: Size of the vocabulary: the id of each response token of a case is its own.
VOCABULARY = 256

#: Padding, end, and a token of a prompt; a token that is cut off; the first token of a case.
PADDING, END, PROMPT, CUT, FIRST = 0, 1, 4, 5, 8

#: What takes the probability that the next token leaves.
OTHER = 2

#: Log-prob of the tokens of a prompt, and of tokens that are cut off.
ELSEWHERE = -2.0

#: A logit whose probability is 0 in any precision.
NEVER = -1e4

#: The largest log-prob that a token can have: the rest of the probability is that of another one.
LARGEST = -1e-3


def token_ids(rows: int, width: int) -> Tensor:
    """``[B, T]``: the id of each response token; no two are equal."""
    return FIRST + torch.arange(rows * width).reshape(rows, width)


class Backbone:
    """Hidden states that are the logits of each next token, with an identity for a head.

    The next token of the input has the log-prob of its id, and one other token the rest of the probability.
    """

    def __init__(self, logprobs: Tensor) -> None:
        """Take ``[B, T]`` log-probs of the tokens of :func:`token_ids`."""
        self.logprobs = logprobs

    def spread(self, column: Tensor) -> Tensor:
        """``[V]``: a column ``[B, T]`` by token id, with a constant at other tokens."""
        before = column.new_full((FIRST,), ELSEWHERE)
        after = column.new_full((VOCABULARY - FIRST - column.numel(),), ELSEWHERE)
        return torch.cat([before, column.flatten(), after])

    def __call__(self, input_ids: Tensor, **_more: object) -> Any:  # noqa: ANN401 - as a model of transformers
        """``[B, S, V]`` logits of what follows each position; the last one predicts nothing."""
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


class LogitBackbone:
    """Hidden states with the logits of a case, which are those of the next token's id and of a few fixed ids.

    Other ids have no probability; with ``level`` they have the mean logit instead, which leaves the mean as it is.
    """

    def __init__(self, logits: Tensor, tokens: Tensor, *, level: bool = False) -> None:
        """Take ``[B, T, V]`` logits and ``[B, T]`` tokens."""
        self.logits, self.tokens, self.level = logits.flatten(0, 1), tokens.flatten().long(), level

    def __call__(self, input_ids: Tensor, **_more: object) -> Any:  # noqa: ANN401 - as a model of transformers
        """``[B, S, 256]`` logits of what follows each position."""
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


def make_language_model() -> Any:  # noqa: ANN401 - a model of transformers
    """A causal language model whose head is the identity, for backbones of :class:`Backbone`."""
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415 - in the target's overlay

    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "max_position_embeddings": 64}
    heads = {"num_attention_heads": 1, "num_key_value_heads": 1}
    config = LlamaConfig(vocab_size=VOCABULARY, pad_token_id=PADDING, eos_token_id=END, **sizes, **heads)
    model = LlamaForCausalLM(config)
    model.name_or_path = model.config._name_or_path = "tiny"  # noqa: SLF001 - where trainers read a name
    head = nn.Linear(VOCABULARY, VOCABULARY, bias=False)
    head.weight = nn.Parameter(torch.eye(VOCABULARY), requires_grad=False)
    model.lm_head = head
    return model


def answer_with(model: Any, logprobs: Tensor) -> None:  # noqa: ANN401 - a model of transformers
    """Give a model the log-probs of a case."""
    model.model.forward = Backbone(logprobs)


def answer_with_logits(model: Any, logits: Tensor, tokens: Tensor, *, level: bool = False) -> None:  # noqa: ANN401 - a model of transformers
    """Give a model the logits of a case."""
    model.model.forward = LogitBackbone(logits, tokens, level=level)
