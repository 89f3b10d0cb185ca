"""The pytest file of a finding: the script's computation as a test, which fails as released."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from report_fixtures import finding
from rl_sentinel.adapters.installation import Installation
from rl_sentinel.audit.findings import Finding
from rl_sentinel.audit.repro.script import EXIT_2_ON_ERROR
from rl_sentinel.report.pytest_file import as_pytest
from rl_sentinel.report.pytest_file import test_name as name_of

VERL = Installation(packages="verl==1.0")


def _finding(observed: str) -> Finding:
    """A finding whose script compares a number with 2."""
    lines = [
        "from __future__ import annotations",
        *EXIT_2_ON_ERROR,
        "import math",
        "",
        "def run():",
        f"    return {observed}",
        "",
        'print("observed:", run())',
        "holds = run() == math.sqrt(4)",
        "raise SystemExit(0 if holds else 1)",
    ]
    return finding(script=lines)


@pytest.mark.slow
@pytest.mark.parametrize(("observed", "status"), [("2", 0), ("3", 1)])
def test_it_passes_once_fixed(tmp_path: Path, observed: str, status: int) -> None:
    """It runs by itself: pytest exits with 1 as released and with 0 once fixed."""
    file = tmp_path / "test_finding.py"
    file.write_text(as_pytest(_finding(observed), VERL), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == status, run.stdout


def test_text_of_a_file() -> None:
    """Imports first, then one test; nothing prints, and no status is set."""
    assert as_pytest(_finding("2"), Installation(packages="verl==1.0")) == (
        "# pip install torch==2.13.0 verl==1.0\n"
        "from __future__ import annotations\n\n"
        "import math\n\n\n"
        "def test_msk001_estimator_default():\n"
        "    def run():\n"
        "        return 2\n\n"
        "    holds = run() == math.sqrt(4)\n"
        "    assert holds\n"
    )


@pytest.mark.slow
def test_a_failing_test_shows_the_numbers(tmp_path: Path) -> None:
    lines = [
        "from __future__ import annotations",
        "import torch",
        "expected = torch.tensor([1.0])",
        "observed = torch.tensor([2.0])",
        'print("expected:", expected.tolist())',
        'print("observed:", observed.tolist())',
        "holds = bool((observed == expected).all())",
        "raise SystemExit(0 if holds else 1)",
    ]
    file = tmp_path / "test_finding.py"
    file.write_text(as_pytest(finding(script=lines), VERL), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "AssertionError: expected [1.0], observed [2.0]" in run.stdout


@pytest.mark.parametrize("again", ["sqrt = sqrt", "sqrt, other = sqrt, 1", "for sqrt in (sqrt,): pass"])
def test_an_imported_name_can_be_assigned_again(again: str) -> None:
    """A Ray actor is imported as a handle; the script takes its class under the same name."""
    lines = [
        "from __future__ import annotations",
        "from math import sqrt",
        "import math",
        "",
        again,
        "def run():",
        "    return sqrt(4)",
        "holds = run() == math.sqrt(9)",
        "raise SystemExit(0 if holds else 1)",
    ]
    names: dict[str, Any] = {}
    exec(as_pytest(finding(script=lines), VERL), names)  # noqa: S102 - a test file of this package
    with pytest.raises(AssertionError):
        names["test_msk001_estimator_default"]()


def test_a_script_that_judges_nothing_is_no_test() -> None:
    """Where the script could not be written, there is no test either."""
    assert as_pytest(finding(), VERL) == ""
    assert name_of(finding(setting="ppo, dual clip")) == "msk001_estimator_ppo_dual_clip"
