"""Invalid settings are refused in words, and valid ones accepted."""

from rl_sentinel.core.expectations import Attempt, Refuses

CLOSED, OPEN = Attempt("none", "no rows", "rows is 0, expected 1 or more"), Attempt("lone", "nothing is left out", None)


def test_what_is_accepted() -> None:
    refuses = Refuses("accepted", (CLOSED, OPEN))
    assert refuses.measure() == (1.0, 0.0)
    assert refuses.broken().tolist() == [False, True]
    assert refuses.sentence() == "accepted, but must be refused: lone (nothing is left out)"
    assert Refuses("accepted", (CLOSED,)).measure() == (0.0, 0.0)
    assert Refuses("accepted", ()).measure() is None


def test_what_is_refused() -> None:
    accepts = Refuses("accepted", (CLOSED, OPEN), accepts=True, key="refused")
    assert accepts.sentence() == "refused, but must be accepted: none (no rows: rows is 0, expected 1 or more)"
    assert (accepts.name, accepts.assertion("message")) == ("refused", "(message) is None")
