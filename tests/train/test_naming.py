"""Names become functions, numbers are filled in."""

from pathlib import Path

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.signal.advantage import gdpo
from rl_sentinel.train.naming import filled, imported, read_by


def test_place_of_a_file_is_imported(tmp_path: Path) -> None:
    """Once; and what is no Python is told."""
    (tmp_path / "mine_here.py").write_text("VALUE = []\n")
    place = f"{tmp_path / 'mine_here.py'}:VALUE"
    assert imported("path", place) is imported("path", place)
    (tmp_path / "none_here.py").write_text("def (:\n")
    with pytest.raises(SentinelError, match=r"path '.*none_here.py:VALUE' cannot be imported \(invalid syntax"):
        imported("path", f"{tmp_path / 'none_here.py'}:VALUE")


def test_parameter_that_is_no_number_is_not_asked_of_the_recipe() -> None:
    """It is what the trainer gives."""

    def halved(reward: float, *, factor: float = 0.5) -> float:
        return reward * factor

    assert filled("estimator", halved, {}, frozenset({"reward"}))(2.0) == 1.0
    with pytest.raises(SentinelError, match=r"estimator.reward is unknown, expected one of factor"):
        filled("estimator", halved, {"reward": 1.0}, frozenset({"reward"}))


def test_several_numbers_become_a_tensor() -> None:
    """Which is no column: its entries are neither of responses nor of tokens."""
    columns = frozenset({"reward_parts", "group", "live"})
    found = filled("estimator", gdpo.advantages, {"weight": (1, 0.5), "epsilon": 0.0}, columns)
    assert torch.equal(found.keywords["weight"], torch.tensor([1.0, 0.5]))  # type: ignore[attr-defined]  # numbers filled in
    assert read_by(found) == columns
