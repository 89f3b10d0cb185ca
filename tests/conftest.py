"""A test is skipped for a listed reason only; for any other the run fails."""

import tempfile
from collections.abc import Iterator

import pytest

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
