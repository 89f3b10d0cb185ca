"""Convert rows of a batch to scripted conversations, and read the generator's output back into rows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import torch

from rl_sentinel.adapters.skyrl.generator_world import (
    CLOSING,
    CUSTOM_START,
    EOS,
    START,
    STOP,
    Engine,
    Script,
    Turn,
    id_of,
)

#: How a turn ends -> the last token that is sampled.
_TAILS: Mapping[str, int] = {"eos": EOS, "stop": STOP, "length": EOS}


@dataclass(frozen=True, slots=True)
class GeneratedRow:
    """One row that the generator returned, its prompt included."""

    ids: list[int]
    mask: list[int]
    logprobs: list[float]
    reward: float


def script_of(number: int, row: dict[str, Any], end: str, *, closing: bool) -> Script:
    """The turns of a row; the token that ends a turn has the log-prob of the one before it."""
    runs, turns = _runs(row), list[Turn]()
    for n, (own, places) in enumerate(runs):
        if not own:
            continue
        last = n == len(runs) - 1
        cut_off = last and end == "length"
        tail = [] if cut_off else [_TAILS[end]]
        logprobs = [row["logprobs"][place] for place in places]
        after = [CLOSING] * closing if last else [id_of(number, place) for place in runs[n + 1][1]]
        sampled = [*(id_of(number, place) for place in places), *tail]
        turns.append(Turn(sampled, [*logprobs, *logprobs[-1:] * len(tail)], "length" if cut_off else "stop", after))
    return Script(turns, row["reward"])


def tails_of(row: dict[str, Any], end: str, *, one_message: bool) -> list[int | None]:
    """The sampled token that must follow each turn; a single message has none between its turns."""
    turns = sum(own for own, _ in _runs(row))
    between = None if one_message else _TAILS[end]
    return [between] * (turns - 1) + [None if end == "length" else _TAILS[end]]


def generated_rows(answer: Mapping[str, Any], engine: Engine) -> list[list[GeneratedRow]]:
    """The returned rows of each script: one, or one for each of its turns."""
    made = [_row(answer, n) for n in range(len(answer["response_ids"]))]
    if len(made) == len(engine.scripts):
        return [[row] for row in made]
    waiting = iter(made)
    return [[next(waiting) for _ in script.turns] for script in engine.scripts]


def _row(answer: Mapping[str, Any], n: int) -> GeneratedRow:
    prompt, response, reward = answer["prompt_token_ids"][n], answer["response_ids"][n], answer["rewards"][n]
    logprobs = answer["rollout_logprobs"][n] if answer.get("rollout_logprobs") else [0.0] * len(response)
    return GeneratedRow(
        ids=[*prompt, *response],
        mask=[*[0] * len(prompt), *answer["loss_masks"][n]],
        logprobs=[*[0.0] * len(prompt), *logprobs],
        reward=float(sum(reward) if isinstance(reward, list) else reward),
    )


@dataclass(slots=True)
class RowReader:
    """Reads one row of the batch from the rows that the generator returned for it."""

    number: int
    row: dict[str, Any]
    made: Sequence[GeneratedRow]
    tokens: list[int] = field(init=False)
    masks: list[bool] = field(init=False)
    logprobs: list[float] = field(init=False)

    def __post_init__(self) -> None:
        """Start with the columns of the batch."""
        self.tokens, self.logprobs = list(self.row["tokens"]), list(self.row["logprobs"])
        self.masks = [bool(own) for own in self.row["mask"]]

    def read(self, prompts: Sequence[list[int] | None], tails: Sequence[int | None]) -> dict[str, Any]:
        """The columns; ``prompts`` are those of the engine, by turn, None where it was passed messages."""
        for turn, own, places in self._turns():
            made = self.made[min(turn, len(self.made) - 1)]
            first = self._stretch(made, places, own=own)
            if first is None or not own:
                continue
            if prompts[turn] is not None and prompts[turn] != made.ids[:first]:
                self.tokens[places[0]] = -1
            if tails[turn] is not None:
                self._tail(made, first + len(places), tails[turn], places[-1])
        if any(CLOSING in made.ids for made in self.made):
            self.tokens[-1] = -1
        if any({START, CUSTOM_START} <= set(made.ids) for made in self.made):  # parts of one row in two templates
            self.tokens[0] = -1
        return {
            "tokens": torch.tensor(self.tokens),
            "masks": torch.tensor(self.masks),
            "logprobs": torch.tensor(self.logprobs),
            "rewards": sum(made.reward for made in self.made),
        }

    def _turns(self) -> Iterator[tuple[int, bool, list[int]]]:
        turn = -1
        for own, places in _runs(self.row):
            turn += own
            yield turn, own, places

    def _stretch(self, made: GeneratedRow, places: list[int], *, own: bool) -> int | None:
        """Where a stretch of tokens begins; None, and its tokens are lost, if it is not there once and in one piece."""
        ids = [id_of(self.number, place) for place in places]
        starts = [at for at, one in enumerate(made.ids) if one == ids[0]]
        if len(starts) != 1 or made.ids[starts[0] : starts[0] + len(ids)] != ids:
            for place in places:
                self.tokens[place] = -1
            return None
        for at, place in enumerate(places, starts[0]):
            self.masks[place] = bool(made.mask[at])
            if own and self.masks[place]:
                self.logprobs[place] = made.logprobs[at]
        return starts[0]

    def _tail(self, made: GeneratedRow, at: int, tail: int | None, place: int) -> None:
        """The sampled token after a turn, read as part of the turn's last token."""
        if at >= len(made.ids) or made.ids[at] != tail:
            self.tokens[place] = -1
        elif not made.mask[at]:
            self.masks[place] = False
        elif self.masks[place] and made.logprobs[at] != self.logprobs[place]:
            self.logprobs[place] = made.logprobs[at]


def _runs(row: dict[str, Any]) -> list[tuple[bool, list[int]]]:
    """Stretches of the response: whether the model sampled it, and its positions."""
    return [(bool(own), list(at)) for own, at in groupby(range(len(row["mask"])), row["mask"].__getitem__)]
