"""The package as it is imported and run."""

import subprocess
import sys

import rl_sentinel

OLD = "import sys; sys.version_info = (3, 10, 13); sys.argv[0] = {!r}; import rl_sentinel"
LINE = "rl-sentinel: Python is 3.10, expected 3.11 or newer: run it with another interpreter"


def _run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)


def test_older_interpreter_is_told_in_one_line() -> None:
    """As a command it ends with 2, as a library it is an import error."""
    command = _run("-c", OLD.format("-m"))
    assert (command.returncode, command.stderr) == (2, f"{LINE}\n")
    library = _run("-c", OLD.format("-c"))
    assert library.returncode == 1
    assert library.stderr.splitlines()[-1] == f"ImportError: {LINE}"


def test_package_runs_as_a_module() -> None:
    run = _run("-m", "rl_sentinel", "explain", "MSK001")
    assert (run.returncode, run.stdout.splitlines()[0]) == (0, "MSK001 dead-row-shifts-signal.")


def test_version_is_a_release_number() -> None:
    assert all(part.isdigit() for part in rl_sentinel.__version__.split("."))
