"""A second check in float64 of a difference that is hardly more than rounding, before it is reported."""

from dataclasses import replace

from rl_sentinel.audit.engine.executor import Asker
from rl_sentinel.core.batch import COLUMNS, with_columns
from rl_sentinel.core.case import Case
from rl_sentinel.core.expectations import Expectation
from rl_sentinel.core.law import Law

#: A difference of at most so many times its allowance is checked a second time.
NEAR = 10


def is_rounding(law: Law, ask: Asker, case: Case, expectation: Expectation) -> bool:
    """Whether a break is near its allowance, and gone when every signal is given in float64.

    An expectation whose tolerance is part of its law is exact. A break on a boundary that cannot be called in float64
    stays as well.
    """
    measured = expectation.measure()
    if expectation.exact or measured is None or measured.distance > NEAR * measured.allowed:
        return False
    signals = (n for n in ask.boundary.reads if COLUMNS[n]["role"] == "signal")
    wide = with_columns(case.batch, **{n: getattr(case.batch, n).double() for n in signals})
    try:
        again = [e.measure() for e in law.expect(ask, replace(case, batch=wide)) if e.name == expectation.name]
    except Exception:  # noqa: BLE001 - whatever a boundary says of float64, it confirms nothing
        return False
    return not any(seen is not None and seen.distance > seen.allowed for seen in again)
