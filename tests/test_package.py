"""The package as it is imported and run."""

import importlib
import pkgutil
import subprocess
import sys

import pytest

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


@pytest.mark.slow
def test_package_runs_as_a_module() -> None:
    run = _run("-m", "rl_sentinel", "explain", "MSK001")
    line = "MSK001 dead-row-shifts-signal: a row without a trained token changes the results of other rows."
    assert (run.returncode, run.stdout.splitlines()[0]) == (0, line)


def test_version_is_a_release_number() -> None:
    assert all(part.isdigit() for part in rl_sentinel.__version__.split("."))


#: Modules that import the framework that they are for.
OF_FRAMEWORKS = {"rl_sentinel.remedies.verl", "rl_sentinel.remedies.skyrl", "rl_sentinel.__main__"}


@pytest.mark.parametrize("name", [m.name for m in pkgutil.iter_modules(rl_sentinel.__path__) if m.name != "__main__"])
def test_every_module_is_imported(name: str) -> None:
    """Each is in the wheel, and imports what the wheel requires."""
    package = importlib.import_module(f"rl_sentinel.{name}")
    for module in pkgutil.walk_packages(getattr(package, "__path__", []), f"{package.__name__}."):
        if module.name not in OF_FRAMEWORKS:
            importlib.import_module(module.name)
