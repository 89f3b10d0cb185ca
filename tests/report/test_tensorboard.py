"""TensorBoard, where it is installed."""

import importlib.util
from pathlib import Path

import pytest

from rl_sentinel.report.tensorboard import TensorBoard

THERE = importlib.util.find_spec("tensorboard") is not None


def test_steps_are_written_where_it_is_there(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path)
    board.step({"step": 1, "reward": 0.5}, {"step": 1, "seconds": 2.0})
    board.close()
    assert (tmp_path / "tensorboard").is_dir() == THERE


@pytest.mark.skipif(not THERE, reason="tensorboard is an extra")
def test_numbers_come_back(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: PLC0415 - an extra

    board = TensorBoard(tmp_path)
    for step in (1, 2):
        board.step({"step": step, "reward": step / 2}, {"step": step, "seconds": 2.0})
    board.close()
    found = EventAccumulator(str(tmp_path / "tensorboard"))
    found.Reload()
    assert [(e.step, e.value) for e in found.Scalars("reward")] == [(1, 0.5), (2, 1.0)]
    assert set(found.Tags()["scalars"]) == {"reward", "time/seconds"}
