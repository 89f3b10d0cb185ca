"""Boundaries of learning rates, where each row of the batch is an update; and a fake of Megatron's schedule."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.core.boundary import Boundary, Output, Step
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims
from rl_sentinel.core.codec import Inputs

#: Number of updates of a run; few, so that the rows of a case reach the decay.
UPDATES = 16

#: Peak of the learning rate; rates are divided by it.
PEAK = 0.5

#: Kind of schedule -> its formula, and its settings. With a warm-up the floor is 0, because frameworks begin the
#: warm-up either at 0 or at the floor.
KINDS: Mapping[str, tuple[str, Mapping[str, Settings]]] = {
    "constant": (
        "constant after warm-up",
        {"no warm-up": {"updates": UPDATES, "warm_up": 0}, "warm-up": {"updates": UPDATES, "warm_up": 2}},
    ),
    "cosine": (
        "cosine after warm-up",
        {
            "no warm-up": {"updates": UPDATES, "warm_up": 0, "floor": 0.1},
            "warm-up": {"updates": UPDATES, "warm_up": 2, "floor": 0.0},
        },
    ),
}


def rows_are_updates(inputs: Inputs) -> str:
    """The reason why the batch does not fit: it has more rows than the run has updates; empty if it fits.

    Each row is one update.
    """
    return "" if inputs.batch.rows <= UPDATES else f"more than {UPDATES} updates"


def rates_of(optimizer: Any, advance: Callable[[], Any], count: int) -> list[float]:  # noqa: ANN401 - an optimizer
    """The learning rates of ``count`` updates as fractions of the peak; ``advance`` ends an update."""
    rates = []
    for _ in range(count):
        rates.append(optimizer.param_groups[0]["lr"] / PEAK)
        advance()
    return rates


class MegatronSchedule:
    """A fake ``OptimizerParamScheduler`` of Megatron; the decay ends at ``lr_decay_steps``, counted from the start.

    Megatron-LM, megatron/core/optimizer_param_scheduler.py, get_lr.
    """

    def __init__(self, optimizer: Any, **options: Any) -> None:  # noqa: ANN401 - as Megatron's
        """Store the options, and set the rate of the first update."""
        self.optimizer, self.options, self.num_steps = optimizer, options, 0
        self.step(0)

    def step(self, increment: int) -> None:
        """Advance, and set the rate of the next update."""
        self.num_steps += increment
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate()

    def rate(self) -> float:
        """The rate of the next update.

        Raises:
            NotImplementedError: during the decay, if ``lr_decay_style`` is not constant, linear or cosine.
        """
        first, most, least = (float(self.options[name]) for name in ("init_lr", "max_lr", "min_lr"))
        warm, end = (float(self.options[name]) for name in ("lr_warmup_steps", "lr_decay_steps"))
        kind = self.options["lr_decay_style"]
        if warm > 0 and self.num_steps <= warm:
            return first + (most - first) * self.num_steps / warm
        if kind == "constant":
            return most
        if self.num_steps > end:
            return least
        progress = (self.num_steps - warm) / (end - warm)
        if kind not in ("linear", "cosine"):
            raise NotImplementedError(f"lr_decay_style is {kind!r}, expected constant, linear or cosine")
        return least + (most - least) * (1 - progress if kind == "linear" else (1 + math.cos(math.pi * progress)) / 2)


def rate_boundary(path: str, step: Step, families: Mapping[str, Settings], claimed: Claims, reach: str) -> Boundary:
    """The boundary of the rates that a step returns, one per row."""
    return Boundary(
        path=path,
        stage="batch",
        steps=(step,),
        reads=frozenset({"group"}),
        outputs={"learning rate": Output("B", "ratio", "learning_rate", at=Use(step.name), form=PerRow("list"))},
        settings=families,
        claims=claimed,
        reach=reach,
        requires=(rows_are_updates,),
    )
