"""REF001 differs-from-reference: the result differs from the formula of the claimed algorithm.

What it says:
    A boundary that claims an algorithm by name gives the numbers of that algorithm's paper, recomputed from the raw
    batch in float64: rewards, advantages, a KL, a KL penalty in a reward, a KL controller, weights and decisions,
    log-probs and entropies, or a loss with its gradient. Where the paper leaves a choice, one reading must fit all
    cases. The law holds at each value of a claimed knob.

Why it matters:
    Readers expect the formula that the name promises. When two runs of "RLOO", or a run and a paper, are compared, a
    factor of n / (n - 1) between their formulas acts as a change of the learning rate.

A boundary that breaks it:
    >>> import torch
    >>> reward = torch.tensor([3.0, 0.0, 0.0])
    >>> (reward - reward.mean()).tolist()  # called leave-one-out, and divided by all
    [2.0, -1.0, -1.0]
    >>> [(r - (reward.sum() - r) / 2).item() for r in reward]
    [3.0, -1.5, -1.5]

How to fix it:
    Compare the printed numbers with the formula that the claim names, term by term: the divisor, epsilon inside
    or outside of the root, deviation by n or n - 1, order of the log-probs. ``rl_sentinel.signal.advantage``,
    ``rl_sentinel.signal.loss`` and ``rl_sentinel.signal.kl`` have one module or function per formula. If the
    difference is intended, give the algorithm another name.

Where it does not apply:
    Claims that the table of formulas does not know. Advantages of batches with rewards per token, or with a row that
    is dead, suppressed, alone in its group, masked at its last token, or one step of a trajectory, and groups of equal
    rewards. Where step-wise trajectories are claimed, the last step of each trajectory is compared, and all steps with
    the same mask must have its advantage. If credit runs over time, an untrained token between trained tokens may count
    as a time step, in all cases or in no case. If the boundary claims to pass over such tokens, they must not count.
    Only with this claim, baselines per token are compared on rows with such tokens. Losses whose aggregation is not
    claimed.

Seen in:
    See the audit's reports.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, Settings, with_batch, with_draw
from rl_sentinel.core.claims import STATED_AS, value_of
from rl_sentinel.core.errors import Refused, Undecided
from rl_sentinel.core.expectations import Equal, Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.formulas.algorithms import has_returns, known_advantages
from rl_sentinel.formulas.value_losses import at_bound
from rl_sentinel.search.claimed_advantages import accepted_advantages, are_comparable
from rl_sentinel.search.claimed_formulas import claimed, counted, known_output, references
from rl_sentinel.search.comparison import SIGNAL_STAGES, advantages, cells, finite_only, magnitude
from rl_sentinel.search.formula_reading import Fit, as_claimed, fitting
from rl_sentinel.search.on_policy_step import row_constant
from rl_sentinel.search.transforms import on_policy

#: Gradients of a clipped loss are compared only this far from a bound, in nats; rounding changes a log-ratio less.
NEAR = 1e-5


def _applies(boundary: Boundary) -> str:
    if boundary.undecided:
        raise Undecided(boundary.undecided)
    is_estimator = _is_estimator(boundary)
    known = is_estimator or any(known_output(boundary, name) for name in boundary.outputs)
    return "" if known else "the boundary claims no algorithm whose formula is known"


def _is_estimator(boundary: Boundary) -> bool:
    """Whether the boundary claims an advantage estimator with a known formula, which covers balanced batches only."""
    return boundary.stage == "advantage" and known_advantages(boundary)


def _vary(case: Case, variant: int) -> Case | None:
    return with_draw(case, variant=variant) if bool(case.batch.live.any()) else None


def _knobs(boundary: Boundary) -> Iterator[Settings]:
    """Overrides of settings: first none, then each value of each claimed knob that is a number."""
    yield {}
    for knob in boundary.claims.knobs:
        if knob.name not in _chosen(boundary):
            yield from ({knob.name: value} for value in knob.values)


def _chosen(boundary: Boundary) -> set[str]:
    """Names of settings with a text or a boolean value. Claims may depend on them, so they are not changed."""
    return {n for settings in boundary.settings.values() for n, v in settings.items() if isinstance(v, bool | str)}


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    for change in _knobs(ask.boundary):
        at = replace(case, override={**case.override, **change})
        suffix = "".join(f", at {n} {v}" for n, v in change.items())
        try:
            if _is_estimator(ask.boundary):
                yield from _compare_advantages(ask, at, suffix)
            yield from _compare_numbers(ask, at, suffix)
        except Refused:
            if not change:
                raise


def _even(boundary: Boundary, batch: Batch) -> Batch:
    """The batch with equal policies; the log-ratio to the sampler is kept if the boundary claims to correct for it."""
    even = on_policy(batch)
    gap = batch.rollout_logprob - batch.old_logprob if boundary.claims.corrected_at_most else 0.0
    return with_columns(even, rollout_logprob=even.rollout_logprob + gap)


def _compare_advantages(ask: Ask, case: Case, suffix: str) -> Iterator[Expectation]:
    boundary = ask.boundary
    if not are_comparable(boundary, case.batch):
        return
    even = replace(case, batch=_even(boundary, case.batch))
    observed = ask(even).values
    for name in (*advantages(boundary), *(["returns"] if has_returns(boundary) else [])):
        reading, among = fitting(ask, even, name, partial(accepted_advantages, boundary, name))
        accepted, where = accepted_advantages(boundary, name, even)
        if reading in accepted:
            alternatives = f", the nearest of its {among} readings" if among > 1 else ""
            algorithm = _named(boundary, claimed(boundary, name))
            reason = f"the formula of {algorithm} gives the expected value ({reading}{alternatives}){suffix}"
            scale = magnitude(case.batch, boundary.reads)
            equal = Equal(name, accepted[reading], observed[name], where, scale, reason=reason)
            yield finite_only(equal) if boundary.own else equal


def _compare_numbers(ask: Ask, case: Case, suffix: str) -> Iterator[Expectation]:
    boundary = ask.boundary
    if value_of(boundary.claims.scope) == "sequence" and "advantage" in boundary.reads:
        case = with_batch(case, row_constant(case.batch))
    batch = case.batch
    if not _asked(boundary, batch) or not any(known_output(boundary, name) for name in boundary.outputs):
        return
    settings, sloping = boundary.settings_of(case), _sloping(boundary)
    columns = _sloped(boundary) if sloping else ()
    observed = ask(case, gradients=columns)
    scale = magnitude(batch, boundary.reads) + (_weight(batch) if "advantage" in boundary.reads else 0.0)
    leaves = {c: getattr(batch, c).double().requires_grad_() for c in columns}
    readings, total = dict[str, str](), list[Tensor]()
    reason = ""
    for name in boundary.outputs:
        if not known_output(boundary, name):
            continue
        inputs = with_columns(batch, **leaves) if name in sloping else batch
        values = as_claimed(boundary, name, references(boundary, name, inputs, settings))
        only = next(iter(values)) if len(values) == 1 else ""
        fit = Fit(only, 1) if only else fitting(ask, case, name, partial(_reference_values, boundary, name))
        reading = fit.name
        if reading not in values:
            continue
        algorithm = _named(boundary, claimed(boundary, name)) or value_of(boundary.claims.aggregation)
        nearest = f", the nearest of its {fit.among} readings" if boundary.own and fit.among > 1 else ""
        chosen = f" ({reading}{nearest})" if len(values) > 1 else ""
        reason = f"the formula of {algorithm} gives the expected value{chosen}{suffix}"
        value, where = values[reading], counted(boundary, name, batch)
        yield finite_only(Equal(name, value.detach(), observed.values[name], where, scale, reason=reason))
        if name in sloping and bool(observed.values[name].isfinite().all()):
            readings[name] = reading
            total.append(torch.where(where, value, 0.0).sum())
    for column, leaf in leaves.items() if set(readings) == set(sloping) else ():
        loss = partial(_summed_references, boundary, readings)
        steady = cells(batch.mask, leaf) & _smooth(loss, batch, column, settings)
        steady = steady & ~at_bound(batch, settings) if column == "value" else steady
        expected, key = _slope(torch.stack(total).sum(), leaf), f"gradient of {column}"
        yield finite_only(Equal(key, expected, observed.gradients[column], steady, scale, reason=reason))


def _named(boundary: Boundary, algorithm: str) -> str:
    """The name of a claimed algorithm; if the user stated it for a method, followed by the name of the method."""
    said = boundary.claims.algorithm
    aliased = said is not None and said.value == algorithm and said.cite.startswith(STATED_AS)
    return f"{algorithm} (for {said.cite.removeprefix(STATED_AS)})" if said and aliased else algorithm


def _asked(boundary: Boundary, batch: Batch) -> bool:
    """Whether a case is compared. A user's loss or reward is not if a row has no trained token (see MSK001)."""
    whole = boundary.own and ("loss" in boundary.outputs or boundary.stage == "reward")
    return bool(batch.live.all() if whole else batch.live.any())


def _reference_values(boundary: Boundary, name: str, case: Case) -> tuple[dict[str, Tensor], Tensor]:
    batch = case.batch
    values = references(boundary, name, batch, boundary.settings_of(case)) if _asked(boundary, batch) else {}
    return {n: x.detach() for n, x in as_claimed(boundary, name, values).items()}, counted(boundary, name, batch)


def _summed_references(boundary: Boundary, readings: Mapping[str, str], batch: Batch, settings: Settings) -> Tensor:
    values = {n: references(boundary, n, batch, settings, only=reading)[reading] for n, reading in readings.items()}
    return torch.stack([torch.where(counted(boundary, n, batch), x, 0.0).sum() for n, x in values.items()]).sum()


def _sloping(boundary: Boundary) -> tuple[str, ...]:
    """The outputs whose gradient is compared: a loss with a known formula.

    Without a loss: all outputs, if a gradient is claimed and each has a known formula.
    """
    if "loss" in boundary.outputs:
        return ("loss",) if known_output(boundary, "loss") else ()
    known = all(known_output(boundary, n) for n in boundary.outputs)
    return tuple(boundary.outputs) if known and boundary.claims.gradient else ()


def _sloped(boundary: Boundary) -> tuple[str, ...]:
    """The columns whose gradients are compared."""
    by_stage = {"value-loss": ("value",), "aggregate": ("advantage", "logits"), "batch": ("logits",)}
    return tuple(c for c in by_stage.get(boundary.stage, ("logprob",)) if c in boundary.reads)


def _slope(loss: Tensor, leaf: Tensor) -> Tensor:
    gradient = torch.autograd.grad(loss.sum(), leaf, allow_unused=True)[0] if loss.requires_grad else None
    return torch.zeros_like(leaf) if gradient is None else gradient


def _smooth(loss: Callable[[Batch, Settings], Tensor], batch: Batch, column: str, settings: Settings) -> Tensor:
    """True where the formula has the same gradient on both sides of a value. At a bound, both gradients are correct."""
    sides = []
    for step in (-NEAR, NEAR):
        leaf = (getattr(batch, column).double() + step).requires_grad_()
        sides.append(_slope(loss(with_columns(batch, **{column: leaf}), settings), leaf))
    size = torch.stack(sides).abs().amax(0)
    return (sides[1] - sides[0]).abs() <= size * 100 * NEAR


def _weight(batch: Batch) -> float:
    """The largest size of a trained token's ratio times its advantage."""
    ratio = torch.where(batch.mask, batch.logprob - batch.old_logprob, 0.0).exp()
    return float(torch.where(batch.mask, ratio * batch.advantage, 0.0).abs().max())


LAW = Law(
    code="REF001",
    name="differs-from-reference",
    stages=SIGNAL_STAGES - {"metric"} | {"batch"},
    claims=(
        "aggregation",
        "algorithm",
        "baseline",
        "corrected_at_most",
        "corrected_by",
        "deviation",
        "deviation_of",
        "factor",
        "gradient",
        "grouping",
        "kl",
        "knobs",
        "masked",
        "measure",
        "output_algorithms",
        "output_definitions",
        "pairing",
        "rows",
        "scope",
        "standardized",
        "trajectories",
        "untrained",
    ),
    applies=_applies,
    vary=_vary,
    expect=_expect,
    level=lambda _case: "contested",
    own_level=lambda _case: "fault",
    intended="The name may mean a variant that has no reference formula.",
)
