"""Check a difference again in float64, so that rounding is not reported as a finding.

Rounding may be large: a division by the standard deviation of equal numbers amplifies it ten thousand times.
"""

from dataclasses import replace
from math import isfinite

from rl_sentinel.audit.engine.executor import Asker
from rl_sentinel.core.batch import COLUMNS, with_columns
from rl_sentinel.core.case import Case
from rl_sentinel.core.expectations import Expectation
from rl_sentinel.core.law import Law


def is_rounding(law: Law, ask: Asker, case: Case, expectation: Expectation) -> bool:
    """Whether a break disappears when all inputs are float64.

    False if the tolerance is part of the law, if a result is not finite (float32 overflows in training, too), or if the
    boundary returns nothing that can be compared in float64.
    """
    measured = expectation.measure()
    if expectation.exact or measured is None or not isfinite(measured.distance):
        return False
    signals = (n for n in ask.boundary.reads if COLUMNS[n]["role"] == "signal")
    wide = with_columns(case.batch, **{n: getattr(case.batch, n).double() for n in signals})
    try:
        again = [e.measure() for e in law.expect(ask, replace(case, batch=wide)) if e.name == expectation.name]
    except Exception:  # noqa: BLE001 - a boundary without float64 support cannot confirm anything
        return False
    return bool(again) and all(m is not None and m.distance <= m.allowed for m in again)
