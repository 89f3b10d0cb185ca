"""DTP001 low-precision-differs: bfloat16 inputs change a result by more than rounding.

What it says:
    The numbers of a model (log-probs, logits, entropies, values) give the same outputs whether they are passed as
    bfloat16 or as float64, up to the rounding of bfloat16. The allowed error is half a unit in the last place for each
    of a few operations and for each summed cell, relative to the largest input, to the output, and to their product,
    because an exponential turns an input error into a relative output error.

Why it matters:
    Models often return log-probs in bfloat16. If they are subtracted, summed or counted in bfloat16, long rows lose
    whole tokens: above 256, bfloat16 has no odd numbers.

A boundary that breaks it:
    >>> import torch
    >>> ones = torch.ones(300)
    >>> total = torch.tensor(0.0, dtype=torch.bfloat16)
    >>> for one in ones.bfloat16():
    ...     total = total + one
    >>> total.item(), ones.sum().item()
    (256.0, 300.0)

How to fix it:
    Convert log-probs to float32 before they are subtracted, summed or exponentiated, and count in integers.
    ``rl_sentinel.signal.logprob.logprobs`` returns float32 or wider for any logits.

Where it does not apply:
    Boundaries that refuse bfloat16 with a message (as torch does where it is mixed with float32), that read no number
    of a model (rewards, returns and advantages are passed in float32), or whose adapter passes everything in one
    precision. Batches that no model can return: with a log-prob above 0, or with a sum of squared probabilities that is
    too small for the probability of the token. Decisions and fractions of decisions, which may flip at their threshold,
    and cases in which an output contains a decision that flips: there, the float64 output also changes by more than
    rounding if the inputs move by a few roundings.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from rl_sentinel.core.batch import MODEL_COLUMNS, Batch, columns, with_columns
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.case import Case, with_batch, with_draw, with_layout
from rl_sentinel.core.errors import Crashed, Refused
from rl_sentinel.core.expectations import Change, Equal, Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask, Observation
from rl_sentinel.search.comparison import magnitude, places
from rl_sentinel.search.filled_batch import at_least

#: Number of operations from a cell to an output, sums not counted.
OPERATIONS = 4

#: Largest relative error of rounding once to bfloat16.
UNIT = torch.finfo(torch.bfloat16).eps / 2

#: How often inputs are perturbed, each cell up or down, to detect outputs that jump.
DRAWS = 16

_LOGPROBS = ("logprob", "old_logprob", "ref_logprob", "rollout_logprob")

_DECISIONS = frozenset({"keep", "clip_fraction", "accepted", "requires_grad"})


def _model_columns(boundary: Boundary) -> list[str]:
    return sorted(boundary.reads & MODEL_COLUMNS)


def _judged(output: Output) -> bool:
    return output.quantity not in _DECISIONS


def _applies(boundary: Boundary) -> str:
    if not _model_columns(boundary):
        return "the boundary reads no column that a model computes"
    if "dtype" not in boundary.axes:
        return "the adapter passes everything in one precision"
    return "" if any(map(_judged, boundary.outputs.values())) else "the boundary exposes only decisions"


def _possible(batch: Batch) -> Batch:
    """The batch with log-probs and sums of squared probabilities in the range that a model can return."""
    possible = {n: getattr(batch, n).clamp(max=0.0) for n in _LOGPROBS}
    largest = torch.stack(list(possible.values())).amax(dim=0)
    return with_columns(batch, **possible, pi_squared=torch.maximum(batch.pi_squared, at_least(largest)))


def _cast(batch: Batch, names: list[str], dtype: torch.dtype) -> Batch:
    """The batch with these columns rounded to bfloat16. For float64, all columns are converted: mixed dtypes fail."""
    rounded = {n: getattr(batch, n).bfloat16().to(dtype) for n in names}
    wide = [n for n in columns(role="signal") if n not in rounded] if dtype == torch.float64 else []
    return with_columns(batch, **rounded, **{n: getattr(batch, n).to(dtype) for n in wide})


def _summed(output: Output, batch: Batch) -> int:
    """The most cells that a number of an output may sum: all for one number, else those of a row and one per row."""
    return batch.mask.numel() if output.axes == "" else batch.rows + batch.width


def _moved(x: Tensor, draw: torch.Generator) -> Tensor:
    """Move each cell up or down by two rounding errors of the largest cell."""
    signs = 2 * torch.randint(2, x.shape, generator=draw, device=draw.device).double() - 1
    found: Tensor = x + 2 * UNIT * x.abs().max() * signs if x.numel() else x
    return found


def _jumps(ask: Ask, case: Case, name: str, exact: Tensor, where: Tensor, allowed: float) -> bool:  # noqa: PLR0913 - two runs and the compared positions
    """Whether a float64 output changes by more than rounding when its inputs change by a few rounding errors."""
    names = _model_columns(ask.boundary)
    wide, draw = _cast(case.batch, names, torch.float64), torch.Generator().manual_seed(0)
    for _ in range(DRAWS):
        moved = {n: _moved(getattr(wide, n), draw) for n in names}
        result = ask(with_batch(case, with_columns(wide, **moved))).values[name].double()[where]
        if not bool(((result - exact).abs() <= allowed).all()):
            return True
    return False


def _low_precision(ask: Ask, case: Case) -> Observation:
    try:
        return ask(case)
    except (Crashed, RuntimeError) as error:  # torch's error for a dtype, or for mixed ones, shows in the first step
        message = str(error) if isinstance(error, Crashed) else f"{type(error).__name__}: {error}"
        if not message.startswith(RuntimeError.__name__):
            raise
        raise Refused(message) from error


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    batch, names = case.batch, _model_columns(ask.boundary)
    rounded = with_layout(with_batch(case, _cast(batch, names, torch.float32)), dtype="bfloat16")
    low = _low_precision(ask, rounded).values
    high = ask(with_batch(case, _cast(batch, names, torch.float64))).values
    for name, output in ask.boundary.outputs.items():
        if not _judged(output):
            continue
        where = places(output, batch, batch.live)
        exact = high[name].double()[where]
        size = exact[exact.isfinite()].abs().max().item() if bool(exact.isfinite().any()) else 0.0
        input_size = magnitude(batch, ask.boundary.reads)
        allowed = (OPERATIONS + _summed(output, batch)) * UNIT * max(size, input_size, size * input_size, 1e-3)
        gap = (low[name].double() - high[name].double())[where].abs()
        if bool((gap > allowed).any()) and _jumps(ask, case, name, exact, where, allowed):
            continue
        change = Change(f"passing {', '.join(names)} as bfloat16 instead of float64")
        reason = "the same numbers must give the same result up to rounding"
        yield Equal(name, high[name], low[name], where, tolerance=allowed, change=change, reason=reason)


LAW = Law(
    code="DTP001",
    name="low-precision-differs",
    stages=frozenset({"advantage", "policy-loss", "kl"}),
    applies=_applies,
    vary=lambda case, variant: with_draw(with_batch(case, _possible(case.batch)), variant=variant),
    expect=_expect,
    level=lambda _case: "hazard",
)
