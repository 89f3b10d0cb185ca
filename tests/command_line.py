"""Run the command line in this process, and return its output and exit status."""

import sys

import pytest

from rl_sentinel.cli.main import run


def error_line(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the one-line message of an error that exits with status 2, without the name of the command."""
    status, out, err = run_cli(capsys, *arguments)
    assert (status, out) == (2, ""), err
    assert err.startswith("rl-sentinel: "), err
    assert err.endswith("\n"), err
    assert err.count("\n") == 1, err
    return err.removeprefix("rl-sentinel: ").removesuffix("\n")


def run_cli(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Return exit status, standard output and standard error."""
    before, sys.argv = sys.argv, ["rl-sentinel", *arguments]
    try:
        with pytest.raises(SystemExit) as ended:
            run()
    finally:
        sys.argv = before
    output = capsys.readouterr()
    code = ended.value.code
    return (code if isinstance(code, int) else 0 if code is None else 1), output.out, output.err
