"""DEG001 degenerate-batch-not-finite: a small or empty batch gives NaN or infinity.

What it says:
    On a batch with nothing to train, one row, one token, a lone response, a group without a live
    row, or equal rewards, every output is finite (per token: at response tokens), and so is the loss's gradient.

Why it matters:
    Such batches occur in every long run. NaN times a mask of zero is still NaN, and a single NaN in a gradient destroys
    the policy, sometimes without an error.

A boundary that breaks it:
    >>> import torch
    >>> reward, live = torch.tensor([1.0, 0.0]), torch.tensor([False, False])
    >>> ((reward - reward[live].mean()) * live).tolist()
    [nan, nan]

How to fix it:
    Select trained entries with ``torch.where`` before dividing, and return 0 where the count or the deviation
    is 0: ``rl_sentinel.signal.reduce.row_means`` and ``rl_sentinel.signal.groups.centered`` do so. Do not use a
    deviation by n - 1 on a group of one.

Where it does not apply:
    All other batches. Refusing such a batch with a message is not a fault. A user's function may never be called with a
    row, a group or a batch that has nothing to train, with one row, or with a lone response. In these cases, the level
    of a finding is hazard.

Seen in:
    See the audit's reports.
"""

from collections.abc import Callable, Iterator, Mapping

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_draw
from rl_sentinel.core.expectations import Expectation, Finite
from rl_sentinel.core.law import Law, Level
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.comparison import slopes
from rl_sentinel.search.preconditions import live_in_group, rewards_differ

#: Kinds of degenerate batches, one per variant.
KINDS: Mapping[str, Callable[[Batch], bool]] = {
    "no trained token": lambda b: not bool(b.live.any()),
    "one row": lambda b: b.rows == 1 and bool(b.live.all()),
    "one position": lambda b: b.width == 1 and bool(b.live.any()),
    "a group without a live row": lambda b: bool(b.live.any()) and bool((live_in_group(b) == 0).any()),
    "a lone response": lambda b: b.rows > 1 and bool((live_in_group(b) == 1).any()),
    "equal rewards in a group": lambda b: bool(((live_in_group(b) > 1) & ~rewards_differ(b)).any()),
}


#: Kinds of batch that the callers of a user's function may exclude.
_EXCLUDED = ("no trained token", "one row", "a group without a live row", "a lone response")


def _own_level(case: Case) -> Level:
    """Hazard if a row has no trained token, or if callers may exclude this kind of batch; else fault."""
    excluded = not bool(case.batch.live.all()) or any(KINDS[kind](case.batch) for kind in _EXCLUDED)
    return "hazard" if excluded else "fault"


def _applies(boundary: Boundary) -> str:
    return "" if boundary.outputs else "the boundary has no outputs"


def _vary(case: Case, variant: int) -> Case | None:
    kind = list(KINDS)[variant]
    return with_draw(case, variant=variant, kind=kind) if KINDS[kind](case.batch) else None


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    seen, valid = ask(case, gradients=slopes(ask.boundary)), case.batch.valid
    results = dict(seen.values) | {f"gradient of {n}": g for n, g in seen.gradients.items()}
    for name, value in results.items():
        where = valid if value.shape == valid.shape else None
        yield Finite(name, value, where, reason=f"the batch has {case.draw['kind']}")


LAW = Law(
    code="DEG001",
    name="degenerate-batch-not-finite",
    stages=frozenset({"normalize", "kl", "correct", "advantage", "policy-loss", "value-loss", "aggregate"}),
    applies=_applies,
    vary=_vary,
    expect=_expect,
    own_level=_own_level,
    of_dead_rows=True,
    variants=len(KINDS),
)
