"""The table of a few responses."""

import io
from typing import Any

from rich.console import Console

from rl_sentinel.report.completions import completions_table


def _text(*lines: dict[str, Any]) -> list[str]:
    console = Console(file=io.StringIO(), width=160)
    console.print(completions_table(lines))
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]  # a StringIO


def test_rows_have_rewards_by_name_and_the_advantage() -> None:
    one = {"prompt": "[b]1+2=", "completion": "3\n", "rewards": {"right": 1.0, "short": 0.25}, "reward": 1.25}
    two = {"prompt": "x" * 50, "completion": "y" * 70, "rewards": {}, "reward": -1.0, "advantage": -0.5}
    lost = {"prompt": "a", "completion": "b", "rewards": None, "reward": None, "advantage": None, "failure": "it hangs"}
    assert _text({**one, "advantage": 0.5}, two, lost) == [
        "prompt completion rewards advantage",
        r"[b]1+2= 3\n right 1 short 0.25 +0.500",
        f"...{'x' * 40} {'y' * 60}... reward -1 -0.500",
        "a b failed -",
    ]
