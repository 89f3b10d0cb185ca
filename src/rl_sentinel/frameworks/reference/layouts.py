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


#: What a turn hands on -> its unit; and the column that it is, where the batch calls it otherwise.
_HANDED_ON = {"logprob": "nats", "token_reward": "reward", "response": "", "trained": ""}
_COLUMN = {"response": "token", "trained": "mask"}

#: What is counted of merged steps -> its unit, and what it is.
_MERGED = {
    "num_seq_after_merge": "count",
    "num_seq_before_merge": "count",
    "tokens": "count",
    "rewards": "reward",
}
_SAID = {
    "num_seq_after_merge": "sequences after merging",
    "num_seq_before_merge": "turns",
    "tokens": "trained tokens",
    "rewards": "token rewards of responses",
}

#: How many turns go by until a conversation forgets what was said; 0 where none does.
_FORGETFUL: Mapping[str, Settings] = {
    "all joined": {"forgets": 0},
    "some joined": {"forgets": 3},
    "some rewritten": {"forgets": 3, "rewrites": True},
}

#: Ways of dealing prompts to mini-batches.
_DEALT: Mapping[str, Settings] = {
    "in order, one each": {"prompts": 1, "shuffled": False},
    "in order, two each": {"prompts": 2, "shuffled": False},
    "shuffled": {"prompts": 2, "shuffled": True},
}


def boundaries(target: Target) -> Iterator[Boundary]:
    """Each of the three; denominators at each mode that has its own."""
    yield from _merged(target)
    yield from _minibatches(target)
    for mode in _COUNTED:
        yield _counted(target, mode)


def _merged(target: Target) -> Iterator[Boundary]:
    """Rows as turns of one conversation, of which every third forgets what was said; then each turn cut out again."""

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        forgets = int(settings["forgets"] or 0)
        told = turns(target, batch, forgets, rewrites=bool(settings.get("rewrites")))
        merged = target.call(MERGE, told)
        found = {n: torch.zeros_like(getattr(batch, _COLUMN.get(n, n))) for n in _HANDED_ON}
        rest = iter(merged)
        whole = next(rest)
        for row, step in enumerate(told):
            if row and forgets and row % forgets == 0:
                whole = next(rest, whole)
            first = len(step.prompt) - len(whole.prompt)
            for name, column in found.items():
                kept = getattr(whole, name)[first : first + len(step.response)]
                column[row, : len(kept)] = torch.tensor(kept, dtype=column.dtype)
        count = target.call(COUNTS, told, merged)
        numbers = {n: float(count[n]) for n in sorted(count)}
        numbers |= {"tokens": sum(sum(x.trained) for x in merged), "rewards": sum(sum(x.token_reward) for x in merged)}
        return {**found, **{n: torch.tensor(float(x)) for n, x in numbers.items()}}

    outputs = {n: Output("B T", unit, _COLUMN.get(n, n)) for n, unit in _HANDED_ON.items()}
    outputs |= {n: Output("", unit, n) for n, unit in _MERGED.items()}
    for name, settings in _FORGETFUL.items():
        yield Boundary(
            path=MERGE,
            stage="batch",
            call=call,
            reads=frozenset({"logprob", "token_reward", "mask", "length", "token"}),
            outputs=outputs,
            settings={name: settings},
            claims=claims(
                target.find(MERGE), conserves="yes", padding="zero", **{f"algorithm:{n}": _SAID[n] for n in _MERGED}
            ),
        )


def turns(target: Target, batch: Batch, forgets: int, *, rewrites: bool = False) -> list[Any]:
    """Each row as a turn, with words of the other side before it; what forgets begins anew, or is rewritten."""
    found: list[Any] = []
    history: list[int] = [0]
    for row in range(batch.rows):
        if row and forgets and row % forgets == 0:
            before = found[-1]
            history = [*before.prompt, *[-2] * len(before.response)] if rewrites and before.response else [row]
        history += [-1] * (1 + row % 2)
        columns = ("token", "mask", "token_reward", "logprob")
        own, *rest = (tuple(getattr(batch, n)[row, : int(batch.length[row])].tolist()) for n in columns)
        last = row == batch.rows - 1
        found.append(target.call(f"{SIGNAL}.merging.Step", "one", tuple(history), own, *rest, last=last))
        history = history + list(own)
    return found


def _minibatches(target: Target) -> Iterator[Boundary]:
    """The rows of all mini-batches together; how many there are; where prompts keep their order, whose turn it is."""
    for name, settings in _DEALT.items():
        shuffled = bool(settings["shuffled"])

        def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
            chance = torch.Generator().manual_seed(0) if settings["shuffled"] else None
            parts = target.call(MINIBATCHES, batch.group, prompts=settings["prompts"], generator=chance)
            reward, turn = torch.zeros_like(batch.reward), torch.zeros_like(batch.reward)
            for n, rows in enumerate(parts):
                reward.index_add_(0, rows, batch.reward[rows])
                turn[rows] = float(n)
            most = max(len(set(batch.group[rows].tolist())) for rows in parts)
            return {"reward": reward, "turn": turn, "count": torch.tensor(len(parts)), "most": torch.tensor(most)}

        outputs = {"reward": Output("B", "reward", "reward")}
        outputs |= {n: Output("", "count", n) for n in ("count", "most")}
        outputs |= {} if shuffled else {"turn": Output("B", "", "turn")}
        said = {"count": "mini-batches", "most": "prompts of the largest mini-batch"}
        said |= {} if shuffled else {"turn": "mini-batches of prompts in turn"}
        yield Boundary(
            path=MINIBATCHES,
            stage="batch",
            call=call,
            reads=frozenset({"reward", "group"}),
            outputs=outputs,
            settings={name: settings},
            claims=claims(target.find(MINIBATCHES), conserves="yes", **{f"algorithm:{n}": a for n, a in said.items()}),
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
