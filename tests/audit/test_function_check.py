"""The audit of a function of this process."""

import pytest

from rl_sentinel.adapters.user_function import Statement
from rl_sentinel.audit.function_check import audit_function, why_no_replay
from rl_sentinel.core.errors import InputError


def test_a_lambda_is_audited_and_cannot_be_replayed() -> None:
    function = lambda rewards: rewards * 2  # noqa: E731 - a lambda is the subject
    audit = audit_function(function, Statement(stage="advantage"), laws=("SHF001", "MSK003"), jobs=1)
    assert audit.verdicts
    assert "cannot be imported by name" in why_no_replay(function, {})
    assert why_no_replay(why_no_replay, {}) == ""
    assert "bind holds a function" in why_no_replay(why_no_replay, {"x": why_no_replay})


@pytest.mark.parametrize("function", [3, len])
def test_what_is_no_python_function(function: object) -> None:
    with pytest.raises(InputError, match="expected a Python function, method, lambda or partial"):
        audit_function(function, Statement(stage="advantage"))  # type: ignore[arg-type]
