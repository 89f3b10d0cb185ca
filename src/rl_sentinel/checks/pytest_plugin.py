"""The pytest plugin: a fixture ``rl_sentinel_check``, ``--rl-sentinel-budget``, and failures that show the report.

It needs no configuration. Without the option, it does not import torch until a test uses a check.
"""

import json
import re
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rl_sentinel.checks.result import CheckResult

#: Folder in pytest's cache where findings are stored.
FOLDER = "rl-sentinel"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option ``--rl-sentinel-budget``."""
    group = parser.getgroup("rl-sentinel", "checks of the training signal")
    group.addoption(
        "--rl-sentinel-budget",
        type=int,
        default=None,
        metavar="N",
        help="random cases per law in rl_sentinel.check and assert_sound; at least 2 (16 by default)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Validate ``--rl-sentinel-budget``.

    Raises:
        UsageError: if the budget is below 2.
    """
    budget = config.getoption("--rl-sentinel-budget")
    if budget is not None and budget < 2:
        raise pytest.UsageError(f"--rl-sentinel-budget is {budget}, expected at least 2")


@pytest.fixture
def rl_sentinel_check() -> "Callable[..., CheckResult]":
    """``rl_sentinel.assert_sound`` as a fixture."""
    from rl_sentinel.checks.api import assert_sound  # noqa: PLC0415 - it imports torch

    return assert_sound


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Pass the budget of the command line to the checks of a test."""
    budget = item.config.getoption("--rl-sentinel-budget")
    if budget is None:
        return (yield)
    from rl_sentinel.checks import api  # noqa: PLC0415 - it imports torch

    before = api.default_budget[0]
    api.default_budget[0] = budget
    try:
        return (yield)
    finally:
        api.default_budget[0] = before


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the report of a failed check instead of a traceback through the code of the check.

    If the check has a finding, the report ends with how to replay it.
    """
    report = yield
    result = getattr(call.excinfo.value, "result", None) if call.excinfo else None
    if report.when == "call" and report.failed and type(result).__name__ == "CheckResult":
        assert call.excinfo is not None  # noqa: S101 - for the type
        report.longrepr = f"{call.excinfo.value}\n{_replay(item, result)}"
    return report


def _replay(item: pytest.Item, result: Any) -> str:  # noqa: ANN401 - a CheckResult, which is imported where needed
    """The line that says how to replay the first finding, or why it cannot be replayed; empty without findings."""
    if not result.findings:
        return ""
    if result.no_replay:
        return f"replay: not possible, since {result.no_replay}; run the test again"
    cache = getattr(item.config, "cache", None)
    if cache is None:
        return "replay: not stored, since pytest runs without its cache: run it without -p no:cacheprovider"
    name = re.sub(r"[^\w.-]+", "-", item.nodeid)
    file = Path(cache.mkdir(FOLDER)) / f"{name}.json"
    file.write_text(json.dumps(dict(result.findings[0].evidence), indent=1), encoding="utf-8")
    return f"replay: rl-sentinel replay {file}"
