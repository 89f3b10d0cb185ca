"""A test is skipped for a listed reason only, for any other the run fails; examples of docstrings must be whole."""

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rl_sentinel

#: Folders whose examples a reader is shown. The others are for who works on this package, and run in their module.
SHOWN = {"audit", "cli", "core", "laws", "remedies", "report", "signal", "train"}

#: Reasons: what lies beside the source tree alone, and extras, of which one environment has all and one none.
LISTED = {
    "transformers is an extra",
    "transformers is installed",
    "matplotlib is an extra",
    "matplotlib is installed",
    "tensorboard is an extra",
    "reasoning-gym is an extra",
    "reasoning-gym is installed",
    "verifiers is not installed",
    "verifiers is installed",
    "datasets is not installed",
    "peft is an extra",
    "CUDA is not available",
    "CUDA is available",
    "recipes lie in the source tree, not in the wheel",
    "examples lie in the source tree, not in the wheel",
    "Chromium is not installed",
}

_UNLISTED: list[str] = []


@pytest.fixture(scope="session", autouse=True)
def _temporary_folder() -> Iterator[None]:
    """Trainers of a framework get folders that nobody removes; a worker of the audit removes its own at its end."""
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory(prefix="rl-sentinel-tests-") as folder:
        tempfile.tempdir = folder
        yield
        tempfile.tempdir = before


@pytest.fixture(autouse=True)
def _on_cpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device ``auto`` is the CPU, where a test compares with tensors that it makes there."""
    if request.node.get_closest_marker("on_cpu") is not None:
        monkeypatch.setattr("torch.cuda.is_available", lambda: False)


def require_whole_examples(items: Iterable[Any]) -> None:
    """Run the examples that a reader is shown as in a fresh interpreter: without the names of their module."""
    package = Path(rl_sentinel.__file__).parent
    for item in items:
        if hasattr(item, "dtest") and item.path.relative_to(package).parts[0] in SHOWN:
            item.dtest.globs.clear()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    require_whole_examples(items)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if reason not in LISTED:
            _UNLISTED.append(f"{report.nodeid}: {reason}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if _UNLISTED and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in _UNLISTED:
        terminalreporter.write_line(f"skipped, and its reason is not listed in tests/conftest.py: {line}")
