"""An option without a value is an error of one line."""

import pytest

from command_line import error_line

ASKED = (["--against="], ["--boundary", ""], ["--law="], ["--algorithm", " "], ["--json="], ["--claim", ""])


@pytest.mark.parametrize("options", ASKED)
def test_an_empty_value_is_refused(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    message = f"{options[0].rstrip('=')} has no value: state a value, or drop the option"
    assert error_line(capsys, "audit", "rl_sentinel", *options) == message


def test_an_empty_argument_after_a_flag_is_an_argument(capsys: pytest.CaptureFixture[str]) -> None:
    assert "has no value" not in error_line(capsys, "audit", "--fresh", "")
