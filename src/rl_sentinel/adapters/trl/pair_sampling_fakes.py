"""Fakes for TRL's trainers that sample pairs of responses: models, a reward model and a judge, for prompts as texts."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.trl.loop_fakes import CONTEXT, FIRST_PROMPT, FIRST_TOKEN, UNREAD, Policy, Scored, Scorer
from rl_sentinel.adapters.trl.rollout_fakes import FIRST_WORD
from rl_sentinel.adapters.trl.tiny_trainer import END, PADDING

#: Prompts in the data set of a trainer. The last word of each is unique.
PROMPTS = 20

#: The first word of every other prompt.
FILLER = f"w{PROMPTS}"

#: The first token of the mixture's response, which no response of a batch with one row per prompt has.
OF_MIXTURE = FIRST_TOKEN + 1

#: Prompt number and first token of a response -> its score.
Scores = dict[tuple[int, int], float]


def prompt_text(number: int, opening: str = "") -> str:
    """The text of a prompt: two words for even numbers, else one word. With ``opening``, each prompt starts with it."""
    first = opening or ("" if number % 2 else FILLER)
    return f"{first} w{number}".strip()


def prompt_numbers(input_ids: Tensor) -> Tensor:
    """The prompt number of each row of token ids."""
    return input_ids[:, CONTEXT - 1] - FIRST_WORD


class TextPolicy(Policy):
    """A fake policy for prompts from :func:`prompt_text`. Its responses are set before each step."""

    rows: Sequence[Sequence[int]] = ()

    def samples(self, rows: Sequence[Sequence[int]]) -> None:
        """Store, per prompt, the rows of the responses that it samples, in turn."""
        self.rows = rows

    def forward(self, input_ids: Tensor, **more: object) -> SimpleNamespace:
        """Logits ``[B, S, V]`` of the token after each position."""
        numbered = input_ids.clone()
        numbered[:, CONTEXT - 1] += FIRST_PROMPT - FIRST_WORD
        return super().forward(numbered, **more)

    def generate(self, input_ids: Tensor, **_options: object) -> Tensor:  # type: ignore[override]  # without scores
        """Each prompt with its next response, padded to the longest one."""
        rows = []
        for prompt in prompt_numbers(input_ids).tolist():
            turn = self.sampled.get(prompt, 0)
            self.sampled[prompt] = turn + 1
            rows.append(self.rows[prompt][turn])
        width = max(self.known.lengths[row] for row in rows)
        return torch.cat([input_ids, self.known.ids[rows, :width]], 1)


class Mixture:
    """A fake mixture of policy and reference. All its responses are the same."""

    def __init__(self, **_models: object) -> None:
        """Build without models."""

    def generate(self, input_ids: Tensor, **_options: object) -> Tensor:
        """Each prompt with the response."""
        return torch.cat([input_ids, torch.tensor([[OF_MIXTURE, END]]).expand(len(input_ids), -1)], 1)


class PairScorer(Scorer):
    """A fake reward model that looks up scores by prompt and first token of the response."""

    def __init__(self, config: Any) -> None:  # noqa: ANN401 - of transformers
        """Start without scores."""
        super().__init__(config, rewards=True)
        self.backbone = PairBackbone(self)
        self.table: Mapping[tuple[int, int], float] = {}


class PairBackbone(Scored):
    """The backbone of a :class:`PairScorer`; its hidden state at the last token of a row is the score."""

    def forward(self, input_ids: Tensor, **_more: object) -> SimpleNamespace:
        """Numbers ``[B, S, 1]``: the score at the last token, and another number elsewhere."""
        scorer: Any = self.owner[0]
        table: Mapping[tuple[int, int], float] = scorer.table
        first = [row[CONTEXT] if len(row) > CONTEXT else PADDING for row in input_ids.tolist()]
        keys = zip(prompt_numbers(input_ids).tolist(), first, strict=True)
        scores = torch.tensor([table[prompt, token or END] for prompt, token in keys])  # END is lost in a decoded text
        places = torch.arange(input_ids.shape[1])
        last = torch.where(input_ids != PADDING, places, 0).amax(1, keepdim=True)
        numbers = torch.where(places == last, scores.unsqueeze(1), UNREAD)
        return SimpleNamespace(hidden_states=[numbers.unsqueeze(2)])


class PairJudge:
    """A fake judge that compares the scores of the two responses to each prompt."""

    def __init__(self) -> None:
        """Start without scores."""
        self.table: Mapping[tuple[int, int], float] = {}

    def judge(
        self,
        prompts: Sequence[str],
        completions: Sequence[Sequence[str]],
        *_more: object,
        return_scores: bool = False,
        **_options: object,
    ) -> list[Any]:
        """The index of the better response to each prompt; with scores, the probability that it is the first one."""
        pairs = [
            [self._score(prompt, text) for text in pair] for prompt, pair in zip(prompts, completions, strict=True)
        ]
        if return_scores:
            return torch.tensor([first - second for first, second in pairs]).sigmoid().tolist()
        return [int(second > first) for first, second in pairs]

    def _score(self, prompt: str, text: str) -> float:
        """The score of a response, by its text."""
        words = text.split()
        first = FIRST_WORD + int(words[0].removeprefix("w")) if words else END
        return self.table[int(prompt.rsplit(maxsplit=1)[-1].removeprefix("w")), first]
