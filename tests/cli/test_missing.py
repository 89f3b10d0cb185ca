"""``boundaries --missing``: the list of functions that no boundary enters."""

from pathlib import Path

import pytest

from audit_fixtures import MODULE, checkout
from command_line import error_line, run_cli

#: A loss that no adapter knows.
MORE = """

def house_loss(advantages, log_probs, response_mask):
    return -(advantages * log_probs * response_mask).sum()
"""


@pytest.mark.slow
def test_function_that_no_boundary_enters(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(cache))
    status, out, _ = run_cli(capsys, "boundaries", f"verl@{checkout(tmp_path, MODULE + MORE)}", "--missing")
    line = 1 + (MODULE + MORE).splitlines().index("def house_loss(advantages, log_probs, response_mask):")
    assert (status, out.splitlines()) == (
        0,
        [
            "1 of 3 functions of the signal path are not entered by any boundary, 1 without a reviewed reason",
            f"verl/trainer/ppo/core_algos.py:{line} house_loss (advantage, log-prob, mask)",
            "    to do",
        ],
    )


def test_function_of_a_user_has_no_path(capsys: pytest.CaptureFixture[str]) -> None:
    assert error_line(capsys, "boundaries", "mine:loss", "--missing", "--stage", "policy-loss") == (
        "--missing applies to a framework, not to the function mine:loss: drop --missing"
    )
