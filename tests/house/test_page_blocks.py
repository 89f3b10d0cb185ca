"""Python blocks of pages that need something around them: each runs here, or in the test that is named."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.value_codecs import Knob
from rl_sentinel.core.boundary import Output, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import NAMES

ROOT = Path(__file__).parents[2]

#: Page -> where its blocks run, if they do not run as they are (``test_pages.py``).
RUN_BY = {
    "README.md": "here",
    "CONTRIBUTING.md": "here",
    "grpo-step.md": "tests/house/test_tutorial.py",
    "tutorial.md": "tests/house/test_tutorial.py",
    "own-functions.md": "tests/checks/test_own_functions_page.py",
    "train.md": "here, and tests/train/test_examples.py",
}

SOUND = """
def advantages(rewards, group):
    same = (group[:, None] == group[None, :]).float()
    return rewards - same @ rewards / same.sum(1)
"""


def _blocks(page: Path) -> list[str]:
    return re.findall(
        r"^```python(?: title=\"[^\"]+\")?\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


def _block(name: str, start: str) -> str:
    return next(text for text in _blocks(ROOT / name) if text.startswith(start))


def test_every_block_runs_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    alone = ("import torch", "from rl_sentinel")
    partial = {page.name for page in pages if any(not text.startswith(alone) for text in _blocks(page))}
    assert partial == set(RUN_BY)
    for place in (word.strip(",") for text in RUN_BY.values() for word in text.split() if word.endswith(".py")):
        assert (ROOT / place).exists(), place


@pytest.mark.slow
@pytest.mark.parametrize(("body", "status"), [(SOUND, 0), (SOUND.replace("/ same.sum(1)", ""), 1)])
def test_the_test_of_the_readme(body: str, status: int, tmp_path: Path) -> None:
    """It passes at a sound function, and fails at one that subtracts the sum of the group."""
    (tmp_path / "mine.py").write_text(body, encoding="utf-8")
    (tmp_path / "test_mine.py").write_text(_block("README.md", "import rl_sentinel"), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "test_mine.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout


def test_the_boundary_of_a_framework() -> None:
    names = {"Column": Column, "Object": Object, "Knob": Knob, "torch": torch}
    names |= {"one_call": one_call, "Output": Output, "Use": Use}
    boundary = eval(_block("CONTRIBUTING.md", "one_call("), names)  # noqa: S307 - our own page
    assert boundary.reads == {"logprob", "old_logprob", "advantage", "mask"}
    assert boundary.settings == {"default": {"clip_low": 0.2}}


def test_the_claims_of_an_estimator() -> None:
    space: dict[str, dict[str, str]] = {}
    exec(_block("docs/train.md", "CLAIMS"), space)  # noqa: S102 - our own page
    assert set(space["CLAIMS"]) <= set(NAMES)
