"""Functions by the ends of their file and name."""

from rl_sentinel.audit.engine.function_filter import entry_matches, path_matches


def test_entry_of_a_call_trace() -> None:
    entry = "house/trainer/losses.py:7:Actor.loss"
    for function in (
        "losses.py:loss",
        "trainer/losses.py:Actor.loss",
        "losses.py:Actor.*",
        "house/trainer/losses.py:*",
    ):
        assert entry_matches(entry, function)
    for function in ("losses.py:oss", "ses.py:loss", "losses.py:Critic.loss", "house/losses.py:*"):
        assert not entry_matches(entry, function)


def test_path_of_a_boundary() -> None:
    path = "house.losses.Actor.loss -> house.metrics.reduce"
    assert all(path_matches(path, f) for f in ("losses.py:loss", "losses.py:Actor.*", "src/house/metrics.py:reduce"))
    assert not any(path_matches(path, f) for f in ("losses.py:*", "metrics.py:loss", "losses.py:Actor"))
