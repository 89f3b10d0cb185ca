"""The action, the hook and the sample project: their commands run as they are written."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
BROKEN = "(rewards.std(correction=0) + epsilon)"


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **more}


def repaired(text: str) -> str:
    """The estimator with the deviation of the group."""
    assert BROKEN in text
    text = text.replace(f"return centered / {BROKEN}", "return centered")
    old = "rewards[mine] - rewards[mine].mean()"
    assert old in text
    return text.replace(old, f"({old}) / (rewards[mine].std(correction=0) + epsilon)")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ROOT / "examples" / "grpo_project", tmp_path / "project"))


def steps() -> list[dict[str, Any]]:
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    assert action["runs"]["using"] == "composite"
    named: list[dict[str, Any]] = action["runs"]["steps"]
    assert [step["shell"] for step in named] == ["bash", "bash"]
    return named


def run(step: dict[str, Any], folder: Path, inputs: dict[str, str], **more: str) -> subprocess.CompletedProcess[str]:
    """Run a step as the runner does: bash with -e and pipefail, its environment with inputs filled in."""
    env = {name: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda m: inputs[m[1]], v) for name, v in step["env"].items()}
    assert not any("${{" in value for value in env.values())
    command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]]
    return subprocess.run(
        command, cwd=folder, env=environment(**env, **more), capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_action_reports_the_fault_of_the_sample_project_and_passes_after_the_repair(project: Path) -> None:
    summary = project / "summary-of-the-job.md"
    first = run(steps()[1], project, {"reports": "out"}, GITHUB_STEP_SUMMARY=str(summary))
    assert first.returncode == 1, first.stderr
    assert "fault GRP001" in summary.read_text(encoding="utf-8")
    sarif = json.loads((project / "out" / "rl-sentinel.sarif").read_text(encoding="utf-8"))
    assert {r["ruleId"] for one in sarif["runs"] for r in one["results"]} >= {"GRP001"}
    assert (project / "out" / "rl-sentinel.xml").is_file()
    file = project / "grpo" / "advantage.py"
    file.write_text(repaired(file.read_text(encoding="utf-8")), encoding="utf-8")
    second = run(steps()[1], project, {"reports": "out"}, GITHUB_STEP_SUMMARY=str(summary))
    assert second.returncode == 0, second.stdout


@pytest.mark.slow
def test_pytest_of_the_sample_project_fails_with_a_small_case_and_passes_after_the_repair(project: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    first = subprocess.run(command, cwd=project, env=environment(), capture_output=True, text=True, check=False)
    assert first.returncode == 1, first.stdout
    shown = first.stdout[first.stdout.index("fault GRP001") :].partition("\n\n")[0]
    rewards = re.search(r"reward +\[(.*)\]", shown)
    assert rewards is not None
    assert rewards[1].count(",") <= 2
    file = project / "grpo" / "advantage.py"
    file.write_text(repaired(file.read_text(encoding="utf-8")), encoding="utf-8")
    second = subprocess.run(command, cwd=project, env=environment(), capture_output=True, text=True, check=False)
    assert second.returncode == 0, second.stdout


@pytest.mark.slow
def test_scripts_and_tests_of_findings_run_in_the_project(project: Path) -> None:
    """Without a setting of pytest that makes the project importable; they pass after the repair."""
    settings = project / "pyproject.toml"
    setting = '[tool.pytest.ini_options]\npythonpath = ["."]\n'
    text = settings.read_text(encoding="utf-8")
    assert setting in text
    settings.write_text(text.replace(setting, ""), encoding="utf-8")

    def status(*command: str) -> int:
        return subprocess.run(command, cwd=project, env=environment(), capture_output=True, check=False).returncode

    options = ("--stage", "advantage", "--algorithm", "grpo", "--law", "GRP001", "--report", "repro=scripts")
    assert status("rl-sentinel", "audit", "grpo.advantage:advantages", *options) == 1
    (script,) = (project / "scripts").glob("GRP001*.py")
    assert (status("python", str(script)), status("pytest", "-p", "no:cacheprovider", "scripts")) == (1, 1)
    file = project / "grpo" / "advantage.py"
    file.write_text(repaired(file.read_text(encoding="utf-8")), encoding="utf-8")
    assert (status("python", str(script)), status("pytest", "-p", "no:cacheprovider", "scripts")) == (0, 0)


def test_hook_calls_a_command_of_the_package() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert hook["id"] == "rl-sentinel"
    assert hook["entry"].split()[:2] == ["rl-sentinel", "audit"]
    assert hook["pass_filenames"] is False


def blocks(language: str) -> list[str]:
    """The blocks of a language in the page on projects."""
    page = (ROOT / "docs" / "project.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_table_of_the_page_audits_the_sample_project(project: Path) -> None:
    """It names two of its functions; the one with the fault is found."""
    (table,) = blocks("toml")
    (project / "pyproject.toml").write_text(table, encoding="utf-8")
    done = subprocess.run(
        ["rl-sentinel", "audit", "--quiet"], cwd=project, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "fault GRP001" in done.stdout


def test_the_page_uses_the_action_and_the_hook_as_they_are() -> None:
    """The inputs of the action and the name of the hook exist."""
    workflow, hooks = (yaml.safe_load(text) for text in blocks("yaml"))
    (step,) = [one for one in workflow if one["uses"].endswith("rl-sentinel@REVISION")]
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    assert set(step["with"]) <= set(action["inputs"])
    offered = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert {hook["id"] for one in hooks for hook in one["hooks"]} <= {hook["id"] for hook in offered}
