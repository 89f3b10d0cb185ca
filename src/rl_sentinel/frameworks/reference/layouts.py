"""Boundaries of what lays rows out anew: merging of steps, mini-batches of prompts and their denominators."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.case import Settings
from rl_sentinel.frameworks.reference.arguments import SIGNAL, claims
from rl_sentinel.frameworks.reference.parts import loss_output, settings_of
from rl_sentinel.frameworks.target import Target

MERGE = f"{SIGNAL}.merging.merge"
COUNTS = f"{SIGNAL}.merging.counts"
MINIBATCHES = f"{SIGNAL}.minibatches.prompt_minibatches"
DENOMINATOR = f"{SIGNAL}.minibatches.aggregation"
AGGREGATE = f"{SIGNAL}.reduce.aggregate"

#: Modes whose denominator is counted by the mask alone.
_COUNTED = ("token-mean", "sequence-mean-token-mean", "sequence-mean-token-sum")


def boundaries(target: Target) -> Iterator[Boundary]:
    """Each of the three; denominators at each mode that has its own."""
    yield _merged(target)
    yield _minibatches(target)
    for mode in _COUNTED:
        yield _counted(target, mode)


def _merged(target: Target) -> Boundary:
    """Rows as turns of one conversation, of which every third forgets what was said; then each turn cut out again."""

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        told = turns(target, batch, int(settings["forgets"] or 0))
        merged = target.call(MERGE, told)
        found = {n: torch.zeros_like(getattr(batch, n)) for n in ("logprob", "token_reward")}
        rest = iter(merged)
        whole = next(rest)
        for row, step in enumerate(told):
            if step.prompt[:1] != whole.prompt[:1]:
                whole = next(rest)
            first = len(step.prompt) - len(whole.prompt)
            for name, column in found.items():
                kept = getattr(whole, name)[first : first + len(step.response)]
                column[row, : len(kept)] = torch.tensor(kept, dtype=column.dtype)
        count = target.call(COUNTS, told, merged)
        return {**found, **{n: torch.tensor(float(count[n])) for n in sorted(count)}}

    outputs = {n: Output("B T", unit, n) for n, unit in (("logprob", "nats"), ("token_reward", "reward"))}
    numbers = {n: Output("", "count", n) for n in ("num_seq_after_merge", "num_seq_before_merge")}
    return Boundary(
        path=MERGE,
        stage="batch",
        call=call,
        reads=frozenset({"logprob", "token_reward", "mask", "length", "token"}),
        outputs={**outputs, **numbers},
        settings={"all joined": {"forgets": 0}, "some joined": {"forgets": 3}},
        claims=claims(target.find(MERGE), conserves="yes", padding="zero"),
    )


def turns(target: Target, batch: Batch, forgets: int) -> list[Any]:
    """Each row as a turn, with a word of the other side before it; a conversation begins with its number."""
    found: list[Any] = []
    history: list[int] = [0]
    for row in range(batch.rows):
        if row and forgets and row % forgets == 0:
            history = [row]
        history.append(-1)
        columns = ("token", "mask", "token_reward", "logprob")
        own, *rest = (tuple(getattr(batch, n)[row, : int(batch.length[row])].tolist()) for n in columns)
        last = row == batch.rows - 1
        found.append(target.call(f"{SIGNAL}.merging.Step", "one", tuple(history), own, *rest, last=last))
        history = history + list(own)
    return found


def _minibatches(target: Target) -> Boundary:
    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        chance = torch.Generator().manual_seed(0) if settings["shuffled"] else None
        parts = target.call(MINIBATCHES, batch.group, prompts=settings["prompts"], generator=chance)
        found = torch.zeros_like(batch.reward)
        for rows in parts:
            found.index_add_(0, rows, batch.reward[rows])
        return {"reward": found}

    return Boundary(
        path=MINIBATCHES,
        stage="batch",
        call=call,
        reads=frozenset({"reward", "group"}),
        outputs={"reward": Output("B", "reward", "reward")},
        settings={
            "in order": {"prompts": 1, "shuffled": False},
            "shuffled": {"prompts": 2, "shuffled": True},
        },
        claims=claims(target.find(MINIBATCHES), conserves="yes"),
    )


def _counted(target: Target, mode: str) -> Boundary:
    def call(batch: Batch, _settings: Settings) -> Mapping[str, Tensor]:
        by = target.call(DENOMINATOR, mode, mask=batch.mask, length=None)
        return {"loss": target.call(AGGREGATE, batch.advantage, mask=batch.mask, aggregation=by)}

    return Boundary(
        path=f"{DENOMINATOR} -> {AGGREGATE}",
        stage="aggregate",
        call=call,
        reads=frozenset({"advantage", "mask"}),
        outputs={"loss": loss_output(mode)},
        settings={mode: settings_of(mode)},
        claims=claims(target.find(AGGREGATE), aggregation=mode, mean="yes", masked_slots="any"),
    )
