"""MET004 quantity-answers-to-wrong-input: a quantity changes with an input that its definition does not contain.

What it says:
    A reported quantity depends only on the inputs of its definition: a KL, a ratio or an entropy on log-probs and
    logits, a clip fraction also on the advantage, a length on no signal. Moving any other column by 1 or by 100, up or
    down, does not change the quantity. The coefficient that multiplies a KL afterwards does not change the KL.

Why it matters:
    A curve called KL that is really a shaped reward looks calm while the policy runs away, and every alarm and
    controller that uses it gets another quantity.

A boundary that breaks it:
    >>> import torch
    >>> log_ratio, coefficient = torch.tensor([0.5, -0.5]), 0.1
    >>> token_rewards = torch.tensor([0.0, 1.0])
    >>> kl = token_rewards.sub_(coefficient * log_ratio)  # written where the KL was to be
    >>> [round(x, 2) for x in kl.tolist()]
    [-0.05, 1.05]

How to fix it:
    Compute the logged quantity from its own columns before anything is added to them: a KL from two log-probs
    (``rl_sentinel.signal.metrics.mean_kl``), not from a shaped reward. ``rl_sentinel.signal.penalty.in_reward``
    returns both separately.

Where it does not apply:
    Quantities that the table of allowed inputs does not know. A KL that is not computed at
    coefficient 0 (it is 0 everywhere) is not compared with the others. A clip fraction is not
    judged where the boundary computes the advantage itself.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.case import Case, with_batch, with_draw
from rl_sentinel.core.errors import NotApplicable, Refused
from rl_sentinel.core.expectations import Change, Equal, Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.formulas.allowed import UNWEIGHED, kind, wrong_inputs
from rl_sentinel.search.comparison import change_of, magnitude
from rl_sentinel.search.transforms import moved

#: How far a column is moved, in the unit of the column, one per variant: in every row, and in one row alone.
AMOUNTS = (1.0, -100.0, -1.0, 100.0)

#: Coefficients of a KL; the results under the others are compared with the result under the first.
COEFFICIENTS = (1.0, 0.1, 0.0)


def _applies(boundary: Boundary) -> str:
    outputs = [
        o for o in boundary.outputs.values() if wrong_inputs(o.quantity, boundary.reads) or _weighed(boundary, o)
    ]
    return "" if outputs else "the boundary reads nothing that one of its logged quantities must not depend on"


def _weighed(boundary: Boundary, output: Output) -> list[str]:
    known = {key for settings in boundary.settings.values() for key in settings}
    return [key for key in UNWEIGHED.get(kind(output.quantity), ()) if key in known]


def _valid(output: Output, batch: Batch) -> Tensor | None:
    return batch.valid if output.axes == "B T" else None


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    boundary, batch, variant = ask.boundary, case.batch, int(case.draw["variant"] or 0)
    amount, row = AMOUNTS[variant], (variant + case.seed // len(AMOUNTS)) % batch.rows
    places = {
        f"row {row}": torch.arange(batch.rows, device=batch.device) == row,
        "every row": torch.ones_like(batch.live),
    }
    for columns, names in _outputs_by_wrong_inputs(boundary).items():
        for label, rows in places.items():
            jointly = _moved_together(ask, case, names, columns, rows, amount, label)
            singly = list[Equal]()
            for column in () if jointly and not _moving(jointly) else columns:  # which of them it was
                singly += _comparisons(ask, case, names, (column,), rows, amount, label)
            yield from (singly if _moving(singly) else jointly or singly)
    for name, output in boundary.outputs.items():
        for key in _weighed(boundary, output):
            yield from _weights(ask, case, name, key)


def _outputs_by_wrong_inputs(boundary: Boundary) -> dict[tuple[str, ...], list[str]]:
    """Columns -> the outputs that must not depend on them."""
    outputs: dict[tuple[str, ...], list[str]] = {}
    for name, output in boundary.outputs.items():
        if columns := wrong_inputs(output.quantity, boundary.reads):
            outputs.setdefault(columns, []).append(name)
    return outputs


def _moved_together(  # noqa: PLR0913 - a comparison has these parts
    ask: Ask, case: Case, names: list[str], columns: tuple[str, ...], rows: Tensor, amount: float, label: str
) -> list[Equal]:
    """The comparisons with all columns moved at once; empty if the boundary refuses the changed case."""
    try:
        return list(_comparisons(ask, case, names, columns, rows, amount, label))
    except (Refused, NotApplicable):
        return []


def _moving(results: list[Equal]) -> bool:
    return not all(torch.equal(r.expected, r.observed) for r in results)


def _comparisons(  # noqa: PLR0913 - a comparison has these parts
    ask: Ask, case: Case, names: list[str], columns: tuple[str, ...], rows: Tensor, amount: float, label: str
) -> Iterator[Equal]:
    """The outputs before and after these columns were moved."""
    boundary, batch, before, changed = ask.boundary, case.batch, ask(case), case.batch
    for number, column in enumerate(columns):
        changed = moved(changed, column, rows, amount * 2**number)  # by different amounts, so a difference of two moves
    after, scale = ask(with_batch(case, changed)), magnitude(changed, boundary.reads)
    for name in names:
        old, new, where = before.values[name], after.values[name], _valid(boundary.outputs[name], batch)
        subject = columns[0] if len(columns) == 1 else f"a change of {' and '.join(columns)}"
        change = change_of(columns[0], batch, changed, f"{subject} of {label}")
        reason = f"{name} does not depend on {' or '.join(columns)}"
        yield Equal(name, old, new, where, scale, change=change, reason=reason)


def _weights(ask: Ask, case: Case, name: str, key: str) -> Iterator[Expectation]:
    if key not in ask.boundary.settings.get(case.setting, {}):
        return
    results = [ask(replace(case, override={**case.override, key: x})).values[name] for x in COEFFICIENTS]
    where, scale = _valid(ask.boundary.outputs[name], case.batch), magnitude(case.batch, ask.boundary.reads)
    for value, number in list(zip(results, COEFFICIENTS, strict=True))[1:]:
        if number or bool((value != 0).any()):
            change = Change(f"setting {key} to {number:g} instead of {COEFFICIENTS[0]:g}")
            reason, key_name = f"{name} does not depend on {key}", f"{name} by {key}"
            yield Equal(name, results[0], value, where, scale, change=change, reason=reason, key=key_name)


LAW = Law(
    code="MET004",
    name="quantity-answers-to-wrong-input",
    stages=frozenset({"reward", "normalize", "kl", "correct", "advantage", "policy-loss", "value-loss", "metric"}),
    applies=_applies,
    vary=lambda case, variant: with_draw(case, variant=variant),
    expect=_expect,
    variants=len(AMOUNTS),
)
