"""Convert batch rows to scripted conversations, and the generator's output back to batch rows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import torch

from rl_sentinel.adapters.skyrl.generator_fakes import (
    CLOSING,
    CUSTOM_START,
    EOS,
    PER_ROW,
    START,
    STOP,
    Engine,
    Script,
    Turn,
    id_of,
)

#: How a turn ends -> the last sampled token.
_TAILS: Mapping[str, int] = {"eos": EOS, "stop": STOP, "length": EOS}


@dataclass(frozen=True, slots=True)
class GeneratedRow:
    """One row of the generator's output; ``ids``, ``mask`` and ``logprobs`` include the prompt.

    ``reward`` is the sum of the rewards from the last trained token on, or of all rewards if no token is trained.
    """

    ids: list[int]
    mask: list[int]
    logprobs: list[float]
    reward: float


def script_of(number: int, row: dict[str, Any], end: str, *, closing: bool, opens: bool = False) -> Script:
    """The conversation of a row; the token that ends a turn gets the log-prob of the token before it."""
    runs, turns = _runs(row), list[Turn]()
    for n, (is_sampled, places) in enumerate(runs):
        if not is_sampled:
            continue
        last = n == len(runs) - 1
        cut_off = last and end == "length"
        tail = [] if cut_off else [_TAILS[end]]
        logprobs = [row["logprobs"][position] for position in places]
        after = [CLOSING] * closing if last else [id_of(number, position) for position in runs[n + 1][1]]
        sampled = [*(id_of(number, position) for position in places), *tail]
        turns.append(Turn(sampled, [*logprobs, *logprobs[-1:] * len(tail)], "length" if cut_off else "stop", after))
    return Script(turns, row["reward"], opens)


def tails_of(row: dict[str, Any], end: str, *, one_message: bool) -> list[int | None]:
    """The stop token after each turn; None after a turn that is cut off, and between the turns of one message."""
    turns = sum(is_sampled for is_sampled, _ in _runs(row))
    between = None if one_message else _TAILS[end]
    return [between] * (turns - 1) + [None if end == "length" else _TAILS[end]]


def generated_rows(output: Mapping[str, Any], engine: Engine) -> list[list[GeneratedRow]]:
    """The generated rows of each script: one row, or one per turn."""
    rows = [_row(output, n) for n in range(len(output["response_ids"]))]
    if len(rows) == len(engine.scripts):
        return [[row] for row in rows]
    remaining = iter(rows)
    return [[next(remaining) for _ in script.turns] for script in engine.scripts]


def _row(output: Mapping[str, Any], n: int) -> GeneratedRow:
    prompt, response, reward = output["prompt_token_ids"][n], output["response_ids"][n], output["rewards"][n]
    logprobs = (output["rollout_logprobs"][n] if output.get("rollout_logprobs") else None) or [0.0] * len(response)
    return GeneratedRow(
        ids=[*prompt, *response],
        mask=[*[0] * len(prompt), *output["loss_masks"][n]],
        logprobs=[*[0.0] * len(prompt), *logprobs],
        reward=_at_the_end(reward, output["loss_masks"][n]),
    )


def _at_the_end(reward: float | list[float], mask: Sequence[int]) -> float:
    """The reward of a row; rewards per token are summed from the last trained token on, or all if none is trained."""
    if not isinstance(reward, list):
        return float(reward)
    last = max((position for position, trained in enumerate(mask) if trained), default=0)
    return float(sum(reward[last:]))


@dataclass(slots=True)
class RowReader:
    """Read one batch row from the rows that the generator returned for it.

    Attributes:
        number: the index of the row in the batch.
        row: the columns of the row in the batch.
        generated: the rows that the generator returned: one, or one per turn.
        tokens: the tokens that are read; -1 where the output differs from the script.
        masks: whether each token trains in the output.
        logprobs: the log-probs that are read; an untrained token keeps that of the batch.
    """

    number: int
    row: dict[str, Any]
    generated: Sequence[GeneratedRow]
    tokens: list[int] = field(init=False)
    masks: list[bool] = field(init=False)
    logprobs: list[float] = field(init=False)

    def __post_init__(self) -> None:
        """Start with the columns of the batch."""
        self.tokens, self.logprobs = list(self.row["tokens"]), list(self.row["logprobs"])
        self.masks = [bool(trained) for trained in self.row["mask"]]

    def read(
        self, prompts: Sequence[list[int] | None], tails: Sequence[int | None], *, one_template: bool = True
    ) -> dict[str, Any]:
        """The columns. ``prompts`` has the engine's prompt of each turn, or None where the engine received messages.

        With ``one_template``, the first token is -1 if a row mixes two templates.
        """
        for turn, is_sampled, places in self._turns():
            row = self.generated[min(turn, len(self.generated) - 1)]
            first = self._read_segment(row, places, is_sampled=is_sampled)
            if first is None or not is_sampled:
                continue
            if prompts[turn] is not None and prompts[turn] != row.ids[:first]:
                self.tokens[places[0]] = -1
            if tails[turn] is not None:
                self._read_tail(row, first + len(places), tails[turn], places[-1])
            elif places[-1] == len(self.tokens) - 1 and any(row.mask[first + len(places) :]):
                self.tokens[-1] = -1  # a token that no model sampled trains
        if any(CLOSING in row.ids for row in self.generated):
            self.tokens[-1] = -1
        if any(row.ids.count(id_of(self.number, PER_ROW - 1)) != 1 for row in self.generated):
            self.masks[0] = False  # the prompt is in the response too, or missing
        if one_template and any({START, CUSTOM_START} <= set(row.ids) for row in self.generated):
            self.tokens[0] = -1
        return {
            "tokens": torch.tensor(self.tokens),
            "masks": torch.tensor(self.masks),
            "logprobs": torch.tensor(self.logprobs),
            "rewards": sum(row.reward for row in self.generated),
        }

    def _turns(self) -> Iterator[tuple[int, bool, list[int]]]:
        turn = -1
        for is_sampled, places in _runs(self.row):
            turn += is_sampled
            yield turn, is_sampled, places

    def _read_segment(self, row: GeneratedRow, places: list[int], *, is_sampled: bool) -> int | None:
        """Read a segment and return its start; None, with tokens of -1, if it is missing, repeated or interrupted."""
        ids = [id_of(self.number, position) for position in places]
        starts = [at for at, token in enumerate(row.ids) if token == ids[0]]
        if len(starts) != 1 or row.ids[starts[0] : starts[0] + len(ids)] != ids:
            for position in places:
                self.tokens[position] = -1
            return None
        for at, position in enumerate(places, starts[0]):
            self.masks[position] = bool(row.mask[at])
            if is_sampled and self.masks[position]:
                self.logprobs[position] = row.logprobs[at]
        return starts[0]

    def _read_tail(self, row: GeneratedRow, at: int, tail: int | None, position: int) -> None:
        """Compare the stop token after a turn with ``tail``; differences are marked at ``position``, the last token."""
        if at >= len(row.ids) or row.ids[at] != tail:
            self.tokens[position] = -1
        elif not row.mask[at]:
            self.masks[position] = False
        elif self.masks[position] and row.logprobs[at] != self.logprobs[position]:
            self.logprobs[position] = row.logprobs[at]


def _runs(row: dict[str, Any]) -> list[tuple[bool, list[int]]]:
    """Runs of equal mask values in the response: for each run, whether the model sampled it, and its positions."""
    return [(bool(sampled), list(at)) for sampled, at in groupby(range(len(row["mask"])), row["mask"].__getitem__)]
