"""One row of a table of boundaries: a path, a function that computes its outputs, what it reads and claims."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from types import ModuleType
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.own_functions import batch_step, by_name
from rl_sentinel.adapters.library.arguments import SIGNAL
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Stage
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims_from_text
from rl_sentinel.core.layout import Axis

#: Computes the outputs of a boundary by name.
Compute = Callable[[Target, Batch, Settings], Mapping[str, Tensor]]

ADVANTAGE = Output("B", "reward", "advantage")
TOKEN_ADVANTAGE = Output("B T", "reward", "advantage")
REQUIRES_GRAD = Output("", "", "requires_grad")

#: The setting that makes kernels run at every size.
KERNELS = "kernels"

#: Sizes of :mod:`rl_sentinel.signal.kernels.sizes` at which kernels run on the small batches of an audit.
_SMALL = {
    "LOSS": 0,
    "LOGITS": 0,
    "SUMS": 0,
    "BLOCK": 6,
    "ROWS": 6,
    "LOGITS_CPU": 14,
    "PROJECTED": 0,
    "PROJECTED_ROWS": 3,
}


def bind(  # noqa: PLR0913 - the fields of one row
    target: Target,
    path: str,
    stage: Stage,
    compute: Compute,
    *,
    reads: str,
    outputs: Mapping[str, Output],
    settings: Mapping[str, Settings] | None = None,
    said: Mapping[str, str] | None = None,
    claims_of: str = "",
    follows: frozenset[Axis] = frozenset(),
    kernels: bool = False,
) -> Boundary:
    """A boundary of the library.

    Args:
        target: the tree under audit.
        path: dotted path of what runs; several joined by ``" -> "``.
        stage: where on the path of the signal it stands.
        compute: computes the outputs by name.
        reads: columns of the batch, separated by spaces.
        outputs: by name.
        settings: by name; ``default`` without numbers if None.
        said: claims besides those of the function's module.
        claims_of: path of the function whose module's claims hold; the last of ``path`` if empty.
        follows: fields of the layout that ``compute`` reads among the settings.
        kernels: also ask at each of the settings with the kernels that large batches run by.
    """
    function = target.find(claims_of or path.rpartition(" -> ")[2])
    settings = settings or {"default": {}}
    if kernels:
        settings = {**settings, **{f"{n}, kernels": {**s, KERNELS: "always"} for n, s in settings.items()}}
    return Boundary(
        path=path,
        stage=stage,
        steps=(batch_step(partial(_computed, compute, target), frozenset(reads.split()), follows),),
        outputs=by_name(outputs),
        settings=settings,
        claims=_claims(function, said or {}),
    )


def _computed(compute: Compute, target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
    with _small_sizes(target) if settings.get(KERNELS) else nullcontext():
        return compute(target, batch, {n: v for n, v in settings.items() if n != KERNELS})


@contextmanager
def _small_sizes(target: Target) -> Iterator[None]:
    """Let kernels run at every size, in blocks of a few numbers, so that small batches have several blocks."""
    sizes = vars(target.module(f"{SIGNAL}.kernels.sizes"))
    before = {name: sizes[name] for name in _SMALL}
    sizes.update(_SMALL)
    try:
        yield
    finally:
        sizes.update(before)


def _claims(function: Callable[..., Any], said: Mapping[str, str]) -> Claims:
    module = inspect.getmodule(function)
    whole = {**getattr(module, "CLAIMS", {}), **getattr(module, "CLAIMS_OF", {}).get(function.__name__, {}), **said}
    if "aggregation" in said:
        whole["rows"] = "live"  # every mean of a loss is over live rows
    if said.get("standardised") == "no":
        whole.pop("knob:epsilon", None)  # nothing is divided by a deviation
    whole.pop("lone", None)  # which only the trainer reads
    cite = f"{function.__module__}: CLAIMS and docstring"
    return claims_from_text(whole, cite)


def functions(module: ModuleType) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public functions that a module defines, by dotted path."""
    for name, function in inspect.getmembers(module, inspect.isfunction):
        if function.__module__ == module.__name__ and not name.startswith("_"):
            yield f"{module.__name__}.{name}", function
