"""Fake engines with a request at work while new weights arrive."""

from rl_sentinel.adapters.kit.engines_at_update import Engines, columns

ROW = {"logprobs": [-0.5, -1.0], "versions": [3, 3]}


def test_a_response_that_is_sampled_during_the_update_has_old_versions() -> None:
    """The engines were not paused."""
    engines = Engines(ROW)
    engines.receive()
    assert engines.finished() == {"logprobs": [-0.5, -1.0], "versions": [2, 2]}


def test_a_paused_request_is_sampled_with_the_new_weights() -> None:
    """It goes on after the update."""
    engines = Engines(ROW)
    engines.paused = True
    engines.receive()
    engines.paused = False
    assert engines.finished() == ROW


def test_an_update_that_never_arrives_leaves_old_versions() -> None:
    """The request is sampled with the weights of the step before."""
    assert Engines(ROW).finished()["versions"] == [2, 2]


def test_a_pause_that_never_ends_loses_the_response() -> None:
    """Missing tokens are infinite, so that no law takes them for a number."""
    engines = Engines(ROW)
    engines.paused = True
    engines.receive()
    table = columns([engines.finished()])
    assert {name: column[0].isinf().all().item() for name, column in table.items()} == {
        "logprobs": True,
        "versions": True,
    }


def test_sleeping_engines_sample_nothing() -> None:
    """A response is sampled after they wake up."""
    engines = Engines(ROW, asleep=True)
    engines.receive()
    assert engines.answer is None
    engines.asleep = False
    assert engines.finished() == ROW
