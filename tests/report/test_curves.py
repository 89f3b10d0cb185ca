"""Curves of runs."""

import importlib.util
import io
from pathlib import Path

import pytest
from rich.console import Console

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.report.curves import bars, picture, table

LINES = [{"step": n + 1, "reward": n / 10, "accuracy": n / 20} for n in range(10)]
DRAWS = importlib.util.find_spec("matplotlib") is not None


def test_table_tells_both_ends_of_each_run_on_one_scale() -> None:
    out = io.StringIO()
    Console(file=out, width=120).print(
        table([("one", LINES), ("two", [{"step": 1, "reward": 1.8}])], window=2, width=3)
    )
    assert [line.split() for line in out.getvalue().splitlines()] == [
        ["metric", "run", "steps", "first", "last", "curve"],
        ["reward", "one", "10", "0.050", "0.850", "▁▂▄"],
        ["reward", "two", "1", "1.800", "1.800", "█"],
        ["accuracy", "one", "10", "0.025", "0.425", "▁▄▇"],
    ]


def test_curve_of_equal_numbers_is_flat() -> None:
    assert bars([2.0] * 5, width=3, least=2.0, most=2.0) == "▁▁▁"


@pytest.mark.skipif(not DRAWS, reason="matplotlib is an extra")
def test_picture_is_a_png(tmp_path: Path) -> None:
    picture([("one", LINES)], tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(SentinelError, match=r"cannot be written \(No such file or directory\)"):
        picture([("one", LINES)], tmp_path / "none" / "a.png")


@pytest.mark.skipif(DRAWS, reason="matplotlib is installed")
def test_without_matplotlib_there_is_no_picture(tmp_path: Path) -> None:
    with pytest.raises(ImportError, match="matplotlib"):
        picture([("one", LINES)], tmp_path / "a.png")
    assert not (tmp_path / "a.png").exists()
