"""Functions of the path that no boundary enters, and the table of reviewed reasons."""

from rl_sentinel.audit.source.signal_functions import SignalFunction
from rl_sentinel.audit.unbound_functions import reviewed_reasons, unbound_functions


def test_function_is_entered_itself_or_through_one_within_it() -> None:
    functions = [SignalFunction("a.py", name, 1, ("kl", "mask")) for name in ("f", "g", "h")]
    entered = ["a.py:1:f", "a.py:9:g.<locals>.inner", "b.py:1:h"]
    assert [f.name for f in unbound_functions(functions, entered)] == ["h"]


def test_every_row_has_a_reason_and_no_function_two() -> None:
    reasons = reviewed_reasons("verl")
    assert reasons
    assert all(reason.strip() for reason in reasons.values())
    assert reviewed_reasons("nonesuch") == {}
