"""Fake models for TRL's single-method training loops: known outputs for known responses."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from rl_sentinel.adapters.trl.tiny_trainer import END, PADDING
from rl_sentinel.adapters.trl.token_model import ELSEWHERE, LARGEST, NEVER

#: A token that gets the rest of the probability; the first token of prompts and responses; size of the vocabulary.
OTHER, FIRST_TOKEN, VOCABULARY = 2, 3, 40

#: The last token of a prompt is this id plus the index of the prompt; models look rows up by it.
FIRST_PROMPT = 100

#: Tokens of a prompt; every other prompt starts with padding.
CONTEXT = 2

#: The reference's log-prob of tokens after the end, which differs from the policy's.
APART = ELSEWHERE - 0.5

#: Score and value of a model at positions that no trainer may read.
UNREAD = 3.0


@dataclass
class Responses:
    """One batch of sampled responses, and the numbers that models compute for it.

    Attributes:
        mask: 1 at response tokens, ``[B, T]``.
        ended: True where the last token is EOS, ``[B]``.
        prompts: the label of each row's prompt.
        logprobs: log-probs under the trained policy, ``[B, T]``.
        old_logprobs: log-probs under the policy that sampled, ``[B, T]``.
        ref_logprobs: log-probs under the reference model, ``[B, T]``.
        values: outputs of the value model in training; the value after the last token is that of the final state.
        old_values: outputs of the value model before training.
        scores: outputs of the reward model, ``[B]``.
    """

    mask: Tensor
    ended: Tensor
    prompts: list[int]
    logprobs: Tensor
    old_logprobs: Tensor
    ref_logprobs: Tensor
    values: Tensor
    old_values: Tensor
    scores: Tensor

    def __post_init__(self) -> None:
        """Write the token ids; the first token, if not EOS, encodes which response of its prompt a row is."""
        self.lengths: list[int] = self.mask.sum(1).tolist()
        self.width = self.mask.shape[1]
        labels = list(dict.fromkeys(self.prompts))
        self.numbers = [labels.index(prompt) for prompt in self.prompts]
        self.ids = torch.full(self.mask.shape, PADDING)
        self.rows: dict[tuple[int, int], int] = {}
        counts: dict[int, int] = {}
        for row, (length, prompt) in enumerate(zip(self.lengths, self.numbers, strict=True)):
            self.ids[row, :length] = FIRST_TOKEN + counts.get(prompt, 0)
            counts[prompt] = counts.get(prompt, 0) + 1
            if bool(self.ended[row]):
                self.ids[row, length - 1] = END
            self.rows[prompt, int(self.ids[row, 0])] = row

    def found(self, input_ids: Tensor) -> Tensor:
        """The row index of each sequence in ``input_ids``."""
        prompts, first = input_ids[:, CONTEXT - 1] - FIRST_PROMPT, input_ids[:, CONTEXT]
        keys = zip(prompts.tolist(), first.tolist(), strict=True)
        return torch.tensor([self.rows[key] for key in keys])


class GenerationOptions(SimpleNamespace):
    """A fake of the model's generation configuration in transformers."""

    def to_dict(self) -> dict[str, Any]:
        """The options by name."""
        return dict(vars(self))


class Policy(nn.Module):
    """A fake causal language model; its logits are the log-probs of its responses, times the temperature."""

    is_gradient_checkpointing = False

    def __init__(self, config: Any, temperature: float, *, trains: bool) -> None:  # noqa: ANN401 - of transformers
        """Start without responses; ``trains`` is False for the reference model."""
        super().__init__()
        self.config, self.generation_config = config, GenerationOptions(eos_token_id=END, pad_token_id=PADDING)
        self.unused = nn.Parameter(torch.zeros(1))
        self.temperature, self.trains = temperature + 1e-7, trains
        self.known: Responses = None  # type: ignore[assignment]  # set before each step
        self.sampled: dict[int, int] = {}

    def begin(self, known: Responses) -> None:
        """Store the responses of a step."""
        self.known, self.sampled = known, {}

    def forward(self, input_ids: Tensor, **_more: object) -> SimpleNamespace:
        """Logits ``[B, S, V]`` of the token after each position."""
        known = self.known
        rows, tokens = known.found(input_ids), input_ids[:, CONTEXT:]
        table = known.logprobs if self.trains else known.ref_logprobs
        lengths = [known.lengths[row] for row in rows.tolist()]
        logits = log_distributions(table[rows], tokens, lengths, ELSEWHERE if self.trains else APART)
        around = logits.new_zeros(len(rows), 1, VOCABULARY)
        whole = torch.cat([around.expand(-1, CONTEXT - 1, -1), logits, around], 1) * self.temperature
        return SimpleNamespace(logits=whole, hidden_states=None)

    def generate(self, input_ids: Tensor, generation_config: Any, **_options: object) -> SimpleNamespace:  # noqa: ANN401 - of transformers
        """A response for each prompt, and the scores of its tokens after division by the temperature.

        If generation stops at EOS, rows are as long as the longest response; otherwise rows fill the width, with tokens
        after EOS.
        """
        rows, known = [], self.known
        for prompt in (input_ids[:, CONTEXT - 1] - FIRST_PROMPT).tolist():
            same = [row for row, other in enumerate(known.numbers) if other == prompt]
            rows.append(same[self.sampled.get(prompt, 0)])
            self.sampled[prompt] = self.sampled.get(prompt, 0) + 1
        stops = self.generation_config.eos_token_id is not None and not generation_config.min_new_tokens
        lengths = [known.lengths[row] for row in rows]
        width = max(lengths) if stops else known.width
        tokens = known.ids[rows, :width]
        tokens = tokens if stops else torch.where(tokens == PADDING, FIRST_TOKEN, tokens)
        scores = log_distributions(known.old_logprobs[rows], tokens, lengths)
        return SimpleNamespace(sequences=torch.cat([input_ids, tokens], 1), scores=tuple(scores.unbind(1)))


def log_distributions(logprobs: Tensor, tokens: Tensor, lengths: list[int], after: float = ELSEWHERE) -> Tensor:
    """Log-probs ``[B, T, V]``: each token has its log-prob, or ``after`` past the end; :data:`OTHER` has the rest."""
    width = tokens.shape[1]
    own = nn.functional.pad(logprobs, (0, max(0, width - logprobs.shape[1])), value=ELSEWHERE)[:, :width]
    inside = torch.arange(width) < torch.tensor(lengths).unsqueeze(1)
    own = torch.where(inside, own, after).clamp(max=LARGEST).unsqueeze(2)
    logits = own.new_full((*tokens.shape, VOCABULARY), NEVER)
    logits[..., OTHER] = torch.log1p(-own.exp()).squeeze(2)
    return logits.scatter(2, tokens.unsqueeze(2), own)


class Scorer(nn.Module):
    """A fake model that returns one number per position: a value model or a reward model."""

    base_model_prefix = "backbone"
    is_gradient_checkpointing = False

    def __init__(self, config: Any, *, rewards: bool) -> None:  # noqa: ANN401 - of transformers
        """Build a reward model if ``rewards`` is True, else a value model."""
        super().__init__()
        self.config, self.score = config, nn.Identity()
        self.backbone = Scored(self)
        self.rewards, self.known = rewards, None


class Scored(nn.Module):
    """The backbone of a :class:`Scorer`; its hidden state at a position is the number that the model returns there."""

    def __init__(self, scorer: Scorer) -> None:
        """Store the model in a list, which hides the reference cycle from torch."""
        super().__init__()
        self.owner = [scorer]
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, input_ids: Tensor, **_more: object) -> SimpleNamespace:
        """Numbers ``[B, S, 1]``: the value before each next token, or the score at the last token."""
        scorer = self.owner[0]
        known: Responses = scorer.known  # type: ignore[assignment]  # set before each step
        rows = known.found(input_ids)
        numbers = scores_of(known, rows) if scorer.rewards else values_of(known, rows)
        return SimpleNamespace(hidden_states=[numbers[:, : input_ids.shape[1]].unsqueeze(2)])


def scores_of(known: Responses, rows: Tensor) -> Tensor:
    """The score at the last token of each response, and :data:`UNREAD` elsewhere."""
    last = torch.tensor(known.lengths)[rows].unsqueeze(1) + CONTEXT - 1
    places = torch.arange(known.width + CONTEXT)
    return torch.where(places == last, known.scores[rows].unsqueeze(1), UNREAD)


def values_of(known: Responses, rows: Tensor) -> Tensor:
    """The value before each token of a response, then the value of the final state; :data:`UNREAD` elsewhere."""
    table = known.values if torch.is_grad_enabled() else known.old_values
    lengths, places = torch.tensor(known.lengths)[rows].unsqueeze(1), torch.arange(known.width)
    inside = torch.where(places <= lengths, table[rows], UNREAD)
    around = inside.new_full((len(rows), 1), UNREAD)
    return torch.cat([around.expand(-1, CONTEXT - 1), inside, around], 1)
