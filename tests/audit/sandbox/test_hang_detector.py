"""Who is suspected, and when a call is looked at."""

from rl_sentinel.audit.sandbox.hang_detector import Suspects, Time


def test_innermost_function_is_remembered() -> None:
    suspects = Suspects()
    assert suspects.add(["a.py:1", "b.py:2"], spins=True) == "a.py:1"
    assert suspects.add([], spins=True) == ""
    assert suspects.spinning == {"a.py:1"}


def test_a_loop_is_recognized_by_processor_time_only() -> None:
    suspects = Suspects()
    suspects.add(["a.py:1"], spins=True)
    assert not suspects.should_read_stack(Time(0.1, 50.0), Time(0.5, 5.0))
    assert suspects.should_read_stack(Time(0.6, 0.6), Time(0.5, 5.0))
    assert suspects.recognize(["c.py:3", "a.py:1"], Time(0.6, 0.6)) == "a.py:1"
    assert suspects.recognize(["a.py:1"], Time(0.1, 50.0)) == ""
    assert suspects.recognize(["b.py:2"], Time(9.0, 9.0)) == ""


def test_a_sleeper_is_recognized_by_the_clock() -> None:
    suspects = Suspects()
    suspects.add(["a.py:1"], spins=False)
    assert suspects.should_read_stack(Time(0.0, 6.0), Time(0.5, 5.0))
    assert suspects.recognize(["a.py:1"], Time(0.0, 6.0)) == "a.py:1"
