"""The optimizer step of an engine, whose gradient may have a number that is not finite."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from rl_sentinel.adapters.kit.codecs import Labels
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.incomplete_rows import unless_refused
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.core.boundary import Boundary, Output, one_call
from rl_sentinel.core.call import Function, Use

#: Largest norm of a gradient, above any norm of a case, so that nothing finite is clipped.
LARGEST = 1e6

#: ``take(owner, model, optimizer)`` runs the optimizer step of an engine of the class ``owner``, or calls ``owner``.
Take = Callable[[Any, torch.nn.Module, torch.optim.Optimizer], object]

_GRADIENT = (
    "the gradient of the backward pass of all micro-batches; a loss that overflows makes a number of it infinite"
)


def overflowing_steps(owner: Any, take: Take, gradient: list[float], number: str) -> dict[str, list[float]]:  # noqa: ANN401 - the target's class
    """Take a step with a finite gradient, and one for each weight whose gradient is ``number``: ``nan`` or ``inf``.

    All weights are 0 before a step. Returns the weights after the finite step, and how many weights each other step
    changes; 0 if it raises.
    """
    changed = []
    for row in range(len(gradient)):
        spoiled = [float(number) if place == row else slope for place, slope in enumerate(gradient)]
        weights = unless_refused(partial(_after_step, owner, take, spoiled))
        changed.append(0.0 if weights is None else float(sum(weight != 0.0 for weight in weights)))
    return {"weights": _after_step(owner, take, gradient), "changed": changed}


def _after_step(owner: Any, take: Take, gradient: list[float]) -> list[float]:  # noqa: ANN401
    model = torch.nn.Linear(len(gradient), 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    model.weight.grad = torch.tensor([gradient])
    take(owner, model, torch.optim.SGD(model.parameters(), lr=1.0))
    weights: list[float] = model.weight.detach()[0].tolist()
    return weights


def overflow_boundary(path: str, take: Take, reach: str, *, owner: str = "") -> Boundary:
    """The boundary of ``path``, which takes the optimizer step; ``owner`` if it is not the class of this method."""
    steps, form = Use("steps"), PerRow("list")
    return one_call(
        path=path,
        stage="step",
        call=overflowing_steps,
        name="steps",
        arguments={
            "owner": Constant(Function(owner or path.rpartition(".")[0])),
            "take": Constant(take),
            "gradient": Labels("reward"),
            "number": Knob("number"),
        },
        produced_by={"gradient": _GRADIENT},
        outputs={
            "weights": Output("B", at=steps["weights"], form=form),
            "weights changed by such a gradient": Output(
                "B", "count", "changed_by_overflow", at=steps["changed"], form=form
            ),
        },
        settings={"NaN in the gradient": {"number": "nan"}, "infinite gradient": {"number": "inf"}},
        reach=reach,
    )
