"""The static walk: what counts as a function of the signal path."""

from pathlib import Path

import pytest

from rl_sentinel.audit.source.signal_functions import SignalFunction, signal_functions


def _found(folder: Path, source: str, place: str = "house/losses.py") -> list[SignalFunction]:
    file = folder / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source, encoding="utf-8")
    return signal_functions(folder, "house")


def test_parameters_and_keys_name_the_roles(tmp_path: Path) -> None:
    source = """
class Actor:
    @staticmethod
    def loss(self, advantages, old_log_probs):
        return advantages * old_log_probs

async def shape(data):
    return data["token_level_rewards"].sum() + data.get("response_mask")
"""
    assert _found(tmp_path, source) == [
        SignalFunction("house/losses.py", "Actor.loss", 3, ("advantage", "log-prob")),
        SignalFunction("house/losses.py", "shape", 7, ("mask", "reward")),
    ]


@pytest.mark.parametrize(
    "source",
    [
        "def passes_on(advantages, loss_mask):\n    return dict(a=advantages, m=loss_mask)",
        "def one_role(advantages):\n    return advantages * 2",
        "def too_common(values, input_ids):\n    return values * 2",
        "def broken(:",
    ],
)
def test_what_does_not_count(tmp_path: Path, source: str) -> None:
    assert _found(tmp_path, source) == []


def test_tests_of_the_target_are_left_out(tmp_path: Path) -> None:
    assert _found(tmp_path, "def f(advantages, loss_mask):\n    return advantages * 2", "house/tests/a.py") == []
