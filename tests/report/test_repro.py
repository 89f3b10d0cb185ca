"""The stand-alone script."""

import subprocess
import sys

import pytest

from report_fixtures import SENTENCE, finding
from rl_sentinel.adapters.installation import Installation
from rl_sentinel.report.repro import script


@pytest.mark.slow
def test_script_prepares_its_environment_and_runs() -> None:
    text = script(finding(), Installation(packages="verl==1.0"))
    first, second, *_ = text.splitlines()
    assert first == "# pip install torch==2.13.0 verl==1.0"
    assert second == f"# MSK001 dead-row-shifts-signal: {SENTENCE}"
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "2\n")
