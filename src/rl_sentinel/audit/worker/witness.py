"""A second witness: what is hardly more than rounding must survive in float64 before it is reported."""

from collections.abc import Callable
from dataclasses import replace

from rl_sentinel.audit.worker.asking import Asker
from rl_sentinel.core.batch import COLUMNS, with_columns
from rl_sentinel.core.case import Case
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Relation

#: Up to so many times its allowance a difference is asked for a second time.
NEAR = 10

#: Distance and allowance of a relation, or None where there is nothing to compare.
Measure = Callable[[Relation], tuple[float, float] | None]


def vanishes(law: Law, ask: Asker, case: Case, relation: Relation, measure: Measure) -> bool:
    """Whether a break is near its allowance, and gone when every signal is given in float64.

    A relation whose tolerance is part of its law is taken at its word. So is a break on a boundary
    that cannot be asked in float64.
    """
    distance, allowed = measure(relation) or (0.0, 0.0)
    if relation.tolerance is not None or distance > NEAR * allowed:
        return False
    signals = (n for n in ask.boundary.reads if COLUMNS[n]["role"] == "signal")
    wide = with_columns(case.batch, **{n: getattr(case.batch, n).double() for n in signals})
    try:
        again = [measure(r) for r in law.relate(ask, replace(case, batch=wide)) if r.key == relation.key]
    except Exception:  # noqa: BLE001 - whatever a boundary says of float64, it is no witness
        return False
    return not any(seen is not None and seen[0] > seen[1] for seen in again)
