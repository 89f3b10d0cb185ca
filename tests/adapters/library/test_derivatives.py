"""Derivatives in a direction: equal in every mode, and a mode with a fault is found."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from adapters.checks import check_verdict
from rl_sentinel.adapters.kit.batch_steps import batch_step, by_name
from rl_sentinel.adapters.library.derivatives import COLUMNS, MODE, boundaries, direction_of, forward, reverse
from rl_sentinel.core.batch import Batch, batch_of
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.case import Settings
from rl_sentinel.laws.knob_with_side_effect import LAW as CFG002

BATCH = batch_of(torch.tensor([[True, True], [True, False]]), logprob=torch.tensor([[-1.0, -2.0], [-3.0, torch.nan]]))

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*torch.jit.script:DeprecationWarning"
)  # torch's own forward mode uses it


class _Square(torch.autograd.Function):
    """A square, whose tangent and whose slope under ``create_graph`` have these factors."""

    @staticmethod
    def forward(x: Tensor, _ahead: float, _again: float) -> Tensor:
        return x**2

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float, float], output: Tensor) -> None:  # noqa: ARG004 - the signature of torch
        x, ctx.ahead, ctx.again = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return grads[0] * ctx.saved_tensors[0] * (ctx.again if torch.is_grad_enabled() else 2), None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Any:
        return tangents[0] * ctx.saved_tensors[0] * ctx.ahead


def _boundary(ahead: float, again: float) -> Boundary:
    def compute(batch: Batch, _settings: Settings) -> Mapping[str, Tensor]:
        kept = torch.where(batch.mask, batch.logprob, 0.0)
        return {"loss": _Square.apply(kept, ahead, again).sum()}  # type: ignore[no-untyped-call]  # torch has no types here

    return Boundary(
        path=next(path for path, column in COLUMNS.items() if column == "logprob"),
        stage="policy-loss",
        steps=(batch_step(compute, frozenset({"logprob", "mask"})),),
        outputs=by_name({"loss": Output("", "", "loss")}),
        settings={"default": {}},
    )


def test_slopes_by_hand() -> None:
    """The sum of squares changes by twice the value times the direction; an untrained token does not count."""

    def squares(batch: Batch) -> dict[str, Tensor]:
        return {"a": torch.where(batch.mask, batch.logprob, 0.0) ** 2, "b": 3 * batch.reward}

    values, direction = BATCH.logprob[BATCH.mask], direction_of(BATCH.logprob, BATCH.mask)
    assert direction[1, 1] == 0
    expected = (2 * values * direction[BATCH.mask]).sum()
    once, again = (reverse(squares, BATCH, "logprob", create_graph=create_graph) for create_graph in (False, True))
    for found in (forward(squares, BATCH, "logprob"), once, again):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(("ahead", "again"), [(2.0, 2.0), (3.0, 2.0), (2.0, 5.0)])
def test_wrong_modes_are_found(ahead: float, again: float) -> None:
    for boundary, sound in zip(boundaries([_boundary(ahead, again)]), (ahead == 2.0, again == 2.0), strict=True):
        (name,) = boundary.settings
        assert boundary.settings[name][MODE] in {"forward", "create_graph"}
        check_verdict(CFG002, boundary, name, found=not sound)


def test_other_boundaries_have_none() -> None:
    assert list(boundaries([replace(_boundary(2.0, 2.0), path="rl_sentinel.signal.value.value_loss")])) == []
