"""Boundaries of directional derivatives: equal in reverse mode, in forward mode, and with ``create_graph``."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from rl_sentinel.adapters.kit.batch_steps import by_name
from rl_sentinel.adapters.library.arguments import SIGNAL
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

#: Computes outputs by name from a batch.
Run = Callable[[Batch], Mapping[str, Tensor]]

#: Start of a path -> the column of its derivatives; together, these enter every kernel with derivatives of its own.
COLUMNS = {
    f"{SIGNAL}.loss.importance_sampling.loss": "logprob",
    f"{SIGNAL}.loss.gspo.loss": "logprob",
    f"{SIGNAL}.advantage.gae.advantages": "value",
    f"{SIGNAL}.logprob.logprobs": "logits",
}

#: The setting that says how a derivative is computed, and its values.
MODE, REVERSE, FORWARD, CREATE_GRAPH = "derivative", "reverse", "forward", "create_graph"

_DOCS = "signal/kernels: the derivatives of kernels are those of the formulas, in every mode of torch"


def boundaries(every: Iterable[Boundary]) -> Iterator[Boundary]:
    """Boundaries of the derivatives of those of ``every`` that are in :data:`COLUMNS`, in each of their settings."""
    for boundary in every:
        column = next((c for path, c in COLUMNS.items() if boundary.path.startswith(path)), "")
        if column:
            yield from (_derivative(boundary, column, mode) for mode in (FORWARD, CREATE_GRAPH))


def _derivative(boundary: Boundary, column: str, mode: str) -> Boundary:
    (step,) = boundary.steps
    call: Any = step.call

    def slope(batch: Batch, settings: Settings) -> dict[str, Tensor]:
        passed = {name: value for name, value in settings.items() if name != MODE}
        found = _DERIVATIVES[str(settings[MODE])](lambda part: call(part, passed), batch, column)
        return {"slope": found}

    return replace(
        boundary,
        stage="batch",
        steps=(replace(step, call=slope, name="result"),),
        outputs=by_name({"slope": Output("", "", "slope")}),
        settings={f"{name}, {mode}": {**settings, MODE: mode} for name, settings in boundary.settings.items()},
        claims=claims(_DOCS, inert={MODE: (mode, REVERSE)}),
    )


def direction_of(column: Tensor, mask: Tensor) -> Tensor:
    """A direction that depends on the values of the column alone, and is 0 where nothing is trained."""
    trained = mask.reshape(*mask.shape, *[1] * (column.dim() - mask.dim()))
    return torch.where(trained, column.nan_to_num().sin() + 2, torch.zeros_like(column))


def reverse(run: Run, batch: Batch, column: str, *, create_graph: bool = False) -> Tensor:
    """The derivative of the sum of all outputs in that direction, by its gradient (``create_graph`` as in torch)."""
    leaf = getattr(batch, column).detach().requires_grad_()
    total = torch.stack([output.sum() for output in run(with_columns(batch, **{column: leaf})).values()]).sum()
    (gradient,) = torch.autograd.grad(total, leaf, create_graph=create_graph, materialize_grads=True)
    along: Tensor = gradient.detach() * direction_of(leaf.detach(), batch.mask)
    return along.sum()


def forward(run: Run, batch: Batch, column: str) -> Tensor:
    """The derivative of the sum of all outputs in that direction, in forward mode."""
    leaf = getattr(batch, column).detach().requires_grad_()
    with warnings.catch_warnings(), forward_ad.dual_level():
        # torch's own forward mode uses torch.jit.script when it starts.
        warnings.filterwarnings("ignore", ".*torch.jit.script", DeprecationWarning)
        dual = forward_ad.make_dual(leaf, direction_of(leaf.detach(), batch.mask))  # type: ignore[no-untyped-call]  # torch has no types here
        outputs = run(with_columns(batch, **{column: dual})).values()
        tangents = [forward_ad.unpack_dual(output).tangent for output in outputs]  # type: ignore[no-untyped-call]  # as above
    return torch.stack([leaf.new_zeros(()), *(t.detach().sum() for t in tangents if t is not None)]).sum()


_DERIVATIVES: Mapping[str, Callable[[Run, Batch, str], Tensor]] = {
    REVERSE: reverse,
    FORWARD: forward,
    CREATE_GRAPH: partial(reverse, create_graph=True),
}
