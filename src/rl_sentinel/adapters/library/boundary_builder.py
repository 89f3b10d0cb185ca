"""Build a boundary of the signal library from a path, a function that computes its outputs, and its claims."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from types import ModuleType
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.batch_steps import batch_step, by_name
from rl_sentinel.adapters.library.arguments import SIGNAL
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Stage
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claim_text import claims_from_text
from rl_sentinel.core.claims import Claims
from rl_sentinel.core.layout import Axis

#: Computes the outputs of a boundary by name.
Compute = Callable[[Target, Batch, Settings], Mapping[str, Tensor]]

ADVANTAGE = Output("B", "reward", "advantage")
TOKEN_ADVANTAGE = Output("B T", "reward", "advantage")
REQUIRES_GRAD = Output("", "", "requires_grad")

#: Setting with which kernels run at every size.
KERNELS = "kernels"

#: Values for :mod:`rl_sentinel.signal.kernels.sizes` with which kernels run on the small batches of an audit.
_SMALL = {
    "LOSS": 0,
    "LOGITS": 0,
    "SUMS": 0,
    "BLOCK": 6,
    "ROWS": 6,
    "LOGITS_CPU": 6,
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
    claims: Mapping[str, str] | None = None,
    claims_of: str = "",
    follows: frozenset[Axis] = frozenset(),
    kernels: bool = False,
) -> Boundary:
    """A boundary of the library.

    Args:
        target: the audited tree.
        path: dotted path of the function; several paths are joined by ``" -> "``.
        stage: stage of the signal path.
        compute: computes the outputs by name.
        reads: columns of the batch, separated by spaces.
        outputs: output descriptions by name.
        settings: settings by name; an empty ``default`` if None.
        claims: claims besides those of the function's module.
        claims_of: path of the function whose module states the claims; if empty, the last path of ``path``.
        follows: layout fields that ``compute`` reads from the settings.
        kernels: repeat each setting with the kernels that large batches use.
    """
    function = target.find(claims_of or path.rpartition(" -> ")[2])
    settings = settings or {"default": {}}
    if kernels:
        settings = {**settings, **{f"{n}, kernels": {**s, KERNELS: "always"} for n, s in settings.items()}}
    return Boundary(
        path=path,
        stage=stage,
        steps=(batch_step(partial(_compute, compute, target), frozenset(reads.split()), follows),),
        outputs=by_name(outputs),
        settings=settings,
        claims=_claims(function, claims or {}),
    )


def _compute(compute: Compute, target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
    with _small_sizes(target) if settings.get(KERNELS) else nullcontext():
        return compute(target, batch, {n: v for n, v in settings.items() if n != KERNELS})


@contextmanager
def _small_sizes(target: Target) -> Iterator[None]:
    """Run kernels at every size, with small blocks, so that small batches have several blocks."""
    sizes = vars(target.module(f"{SIGNAL}.kernels.sizes"))
    before = {name: sizes[name] for name in _SMALL}
    sizes.update(_SMALL)
    try:
        yield
    finally:
        sizes.update(before)


def _claims(function: Callable[..., Any], claims: Mapping[str, str]) -> Claims:
    module = inspect.getmodule(function)
    texts = {**getattr(module, "CLAIMS", {}), **getattr(module, "CLAIMS_OF", {}).get(function.__name__, {}), **claims}
    if "aggregation" in claims:
        texts["rows"] = "live"  # every mean of a loss is over live rows
    if claims.get("standardized") == "no":
        texts.pop("knob:epsilon", None)  # without division by a deviation, epsilon has no effect
    texts.pop("lone", None)  # only the trainer reads it
    cite = f"{function.__module__}: CLAIMS and docstring"
    return claims_from_text(texts, cite)


def functions(module: ModuleType) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public functions that a module defines, by dotted path."""
    for name, function in inspect.getmembers(module, inspect.isfunction):
        if function.__module__ == module.__name__ and not name.startswith("_"):
            yield f"{module.__name__}.{name}", function
