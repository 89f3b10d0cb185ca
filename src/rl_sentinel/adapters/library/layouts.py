"""Boundaries of functions that rearrange rows: merging steps, padding steps to rows, mini-batches of prompts."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.library.arguments import SIGNAL
from rl_sentinel.adapters.library.boundary_builder import bind
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.case import Settings

STEP = f"{SIGNAL}.trajectory_step.Step"
MERGE = f"{SIGNAL}.merging.merge"
COUNTS = f"{SIGNAL}.merging.counts"
LAID = f"{SIGNAL}.rollout.laid_out"
MINIBATCHES = f"{SIGNAL}.minibatches.prompt_minibatches"

#: Field of a step -> its unit, and the column that fills it.
_FIELDS = {
    "logprob": ("nats", "logprob"),
    "token_reward": ("reward", "token_reward"),
    "response": ("", "token"),
    "trained": ("", "mask"),
}

#: Logged count -> its unit and definition.
_COUNTS = {
    "num_seq_after_merge": ("count", "sequences after merging"),
    "num_seq_before_merge": ("count", "turns"),
    "tokens": ("count", "trained tokens"),
    "rewards": ("reward", "token rewards of responses"),
}

#: The number of turns after which a conversation drops its history (0: never), or rewrites it.
_HISTORIES: Mapping[str, Settings] = {
    "all joined": {"forgets": 0},
    "some joined": {"forgets": 3},
    "some rewritten": {"forgets": 3, "rewrites": True},
}

#: Ways to distribute prompts over mini-batches.
_MINIBATCHES: Mapping[str, Settings] = {
    "in order, one each": {"prompts": 1, "shuffled": False},
    "in order, two each": {"prompts": 2, "shuffled": False},
    "shuffled": {"prompts": 2, "shuffled": True},
}

_COLUMNS = "logprob token_reward mask length token"


def boundaries(target: Target) -> Iterator[Boundary]:
    """Boundaries of merging for each kind of history, of steps as padded rows, and of mini-batches."""
    cells = {n: Output("B T", unit, column) for n, (unit, column) in _FIELDS.items()}
    for name, settings in _HISTORIES.items():
        yield bind(
            target,
            MERGE,
            "batch",
            _merged,
            reads=_COLUMNS,
            outputs=cells | {n: Output("", unit, n) for n, (unit, _) in _COUNTS.items()},
            settings={name: settings},
            claims={"conserves": "yes", "padding": "zero"}
            | {f"algorithm:{n}": words for n, (_, words) in _COUNTS.items()},
        )
    yield bind(
        target,
        LAID,
        "batch",
        _laid_out,
        reads=_COLUMNS,
        outputs=cells,
        settings={"apart": {"merged": False}},
        claims={"conserves": "yes", "padding": "zero"},
    )
    for name, settings in _MINIBATCHES.items():
        in_order = not settings["shuffled"]
        yield bind(
            target,
            MINIBATCHES,
            "batch",
            _minibatches,
            reads="reward group",
            outputs={"reward": Output("B", "reward", "reward")}
            | {n: Output("", "count", n) for n in ("count", "most")}
            | ({"turn": Output("B", "", "turn")} if in_order else {}),
            settings={name: settings},
            claims={"conserves": "yes", "algorithm:count": "mini-batches"}
            | {"algorithm:most": "prompts of the largest mini-batch"}
            | ({"algorithm:turn": "mini-batches of prompts in turn"} if in_order else {}),
        )


def _merged(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
    """Merge the rows as turns of one conversation, then slice each turn out of the merged rows."""
    forgets = int(settings["forgets"] or 0)
    steps = turns(target, batch, forgets, rewrites=bool(settings.get("rewrites")))
    merged = target.call(MERGE, steps)
    cells = {n: torch.zeros_like(getattr(batch, column)) for n, (_, column) in _FIELDS.items()}
    rest = iter(merged)
    whole = next(rest)
    for row, step in enumerate(steps):
        if row and forgets and row % forgets == 0:
            whole = next(rest, whole)
        first = len(step.prompt) - len(whole.prompt)
        for name, column in cells.items():
            part = getattr(whole, name)[first : first + len(step.response)]
            column[row, : len(part)] = torch.tensor(part, dtype=column.dtype)
    counts = dict(target.call(COUNTS, steps, merged))
    counts |= {"tokens": sum(sum(s.trained) for s in merged), "rewards": sum(sum(s.token_reward) for s in merged)}
    return {**cells, **{n: torch.tensor(float(x)) for n, x in counts.items()}}


def turns(target: Target, batch: Batch, forgets: int, *, rewrites: bool = False) -> list[Any]:
    """The rows as steps of one conversation, each after tokens of the environment.

    Every ``forgets`` steps (0: never) the history is dropped or, if ``rewrites`` is True, rewritten.
    """
    steps: list[Any] = []
    history: list[int] = [0]
    for row in range(batch.rows):
        if row and forgets and row % forgets == 0:
            before = steps[-1]
            history = [*before.prompt, *[-2] * len(before.response)] if rewrites and before.response else [row]
        history += [-1] * (1 + row % 2)
        columns = ("token", "mask", "token_reward", "logprob")
        tokens, *rest = (tuple(getattr(batch, n)[row, : int(batch.length[row])].tolist()) for n in columns)
        steps.append(target.call(STEP, "one", tuple(history), tokens, *rest, last=row == batch.rows - 1))
        history = history + list(tokens)
    return steps


def _laid_out(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
    """Lay out the rows as turns of one conversation, one row per turn."""
    known = {"reward": {"one": 0.0}, "group": {"one": 0}, "scored": {"one": True}}
    whole = target.call(LAID, turns(target, batch, 0), **known, merged=settings["merged"], padding=-1)
    rollout, response = whole.rollout, torch.zeros_like(batch.token)
    for row, (first, count) in enumerate(zip(whole.prompt_length.tolist(), whole.length.tolist(), strict=True)):
        response[row, :count] = whole.token[row, first : first + count]
    wide = {"logprob": rollout.rollout_logprob, "token_reward": rollout.token_reward, "trained": rollout.mask}
    missing = batch.width - rollout.mask.shape[1]
    return {"response": response} | {n: torch.nn.functional.pad(c, (0, missing)) for n, c in wide.items()}


def _minibatches(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
    """Split the rows into mini-batches of prompts.

    Returns:
        ``reward``: the reward of each row, summed over the mini-batches that have the row; ``turn``: the index of its
        mini-batch; ``count``: the number of mini-batches; ``most``: the largest number of prompts in a mini-batch.
    """
    generator = torch.Generator().manual_seed(0) if settings["shuffled"] else None
    parts = target.call(MINIBATCHES, batch.group, prompts=settings["prompts"], generator=generator)
    reward, turn = torch.zeros_like(batch.reward), torch.zeros_like(batch.reward)
    for number, rows in enumerate(parts):
        reward.index_add_(0, rows, batch.reward[rows])
        turn[rows] = float(number)
    most = max(len(set(batch.group[rows].tolist())) for rows in parts)
    return {"reward": reward, "turn": turn, "count": torch.tensor(len(parts)), "most": torch.tensor(most)}
