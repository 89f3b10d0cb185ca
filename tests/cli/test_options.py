"""Options that several commands share."""

import pytest

from told import told


@pytest.mark.parametrize(
    ("option", "value"), [("--seed", "-1"), ("--seed", str(2**32)), ("--level", "worst"), ("--seed", "x")]
)
def test_value_out_of_range_is_one_line(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It names the option and where to read on."""
    line = told(capsys, "audit", "verl", option, value)
    assert line.startswith(f"Invalid value for '{option}': ")
    assert line.endswith(": see rl-sentinel audit --help")
