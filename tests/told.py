"""The command line run in this process: what it says, and how it ends."""

import sys

import pytest

from rl_sentinel.cli.main import run


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line of an error that ends with status 2, without the name of the command."""
    status, out, err = ran(capsys, *arguments)
    assert (status, out) == (2, ""), err
    assert err.startswith("rl-sentinel: "), err
    assert err.endswith("\n"), err
    assert err.count("\n") == 1, err
    return err.removeprefix("rl-sentinel: ").removesuffix("\n")


def ran(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit status, standard output, standard error."""
    before, sys.argv = sys.argv, ["rl-sentinel", *arguments]
    try:
        with pytest.raises(SystemExit) as ended:
            run()
    finally:
        sys.argv = before
    said = capsys.readouterr()
    code = ended.value.code
    return (code if isinstance(code, int) else 0 if code is None else 1), said.out, said.err
