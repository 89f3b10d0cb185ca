"""The pytest plugin, in runs of pytest of their own."""

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

CODE = """
    def centered(rewards, group):
        same = (group[:, None] == group[None, :]).float()
        return rewards - same @ rewards / same.sum(1)

    def doubled(rewards, group):
        return 2 * centered(rewards, group)
"""

TESTS = """
    import rl_sentinel
    from own_code import centered, doubled

    def test_sound():
        rl_sentinel.assert_sound(centered, stage="advantage", algorithm="grpo", laws=["REF001"])

    def test_unsound():
        rl_sentinel.assert_sound(doubled, stage="advantage", algorithm="grpo", laws=["REF001"])

    def test_by_fixture(rl_sentinel_check):
        rl_sentinel_check(lambda rewards, group: -centered(rewards, group), stage="advantage", algorithm="grpo",
                          laws=["REF001"])
"""


def _pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "own_code.py").write_text(dedent(CODE), encoding="utf-8")
    (folder / "test_own_code.py").write_text(dedent(TESTS), encoding="utf-8")
    plugin = ("-p", "rl_sentinel.checks.pytest_plugin") if not _installed() else ()
    command = [sys.executable, "-m", "pytest", "-q", *plugin, *options]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": ""}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)


def _installed() -> bool:
    """Whether the entry point is known to this environment: an editable install from before has none."""
    from importlib.metadata import entry_points  # noqa: PLC0415

    return any(e.value == "rl_sentinel.checks.pytest_plugin" for e in entry_points(group="pytest11"))


@pytest.mark.slow
@pytest.mark.parametrize("options", [("--rl-sentinel-budget", "4"), ("-n", "2")], ids=["budget", "xdist"])
def test_a_failure_shows_the_finding_and_its_replay(tmp_path: Path, options: tuple[str, ...]) -> None:
    run = _pytest(tmp_path, *options)
    assert "2 failed, 1 passed" in run.stdout, run.stdout
    assert "fault REF001 advantage is " in run.stdout
    assert "replay: rl-sentinel replay " in run.stdout
    assert "replay: not possible, since a lambda" in run.stdout
    assert "def assert_sound" not in run.stdout
    (evidence,) = (tmp_path / ".pytest_cache" / "d" / "rl-sentinel").iterdir()
    command = [sys.executable, "-m", "rl_sentinel", "replay", str(evidence)]
    replay = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert replay.returncode == 1, replay
    assert replay.stdout.startswith("reproduced: own:REF001:own_code.doubled:default")


def test_a_budget_that_is_too_small(tmp_path: Path) -> None:
    assert "--rl-sentinel-budget is 1, expected at least 2" in _pytest(tmp_path, "--rl-sentinel-budget", "1").stderr
