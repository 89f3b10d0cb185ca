"""The tutorials' files and commands, run in an empty folder: each shows what the page says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: A block of the page: its language, the file that it is, and its text.
_BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _commands(text: str) -> list[tuple[str, list[str]]]:
    """Each command of a console block, and the lines that it prints; ``...`` stands for any others."""
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    return [(first, rest.splitlines()) for first, _, rest in (part.partition("\n") for part in parts)]


def _shows(output: str, lines: list[str]) -> bool:
    """Whether the lines come in the output in this order; without ``...`` beside them, one after the other."""
    pattern = "\n".join("(?s:.*)" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") for line in lines)
    return re.search(pattern, output) is not None


def test_blocks_of_a_page() -> None:
    """A command may have several lines of output, or none."""
    assert _commands("$ a\none\n...\n$ b\n") == [("a", ["one", "..."]), ("b", [])]
    assert _shows("zero\none\ntwo\nthree\n", ["one", "...", "three"])
    assert not _shows("one\ntwo\nthree\n", ["one", "three"])


def test_the_example_is_the_file_of_the_page() -> None:
    """But for a lint that the page does not show."""
    blocks = _BLOCK.findall((ROOT / "docs" / "grpo-step.md").read_text(encoding="utf-8"))
    (text,) = [text for _, file, text in blocks if file == "grpo_step.py"]
    example = (ROOT / "examples" / "grpo_step.py").read_text(encoding="utf-8")
    assert text == re.sub(r"  # noqa: T201.*", "", example)


@pytest.mark.slow
@pytest.mark.parametrize(("page", "commands"), [("tutorial.md", 9), ("grpo-step.md", 1)])
def test_every_step(page: str, commands: int, tmp_path: Path) -> None:
    """From the first file to the last command; commands are those beside this Python."""
    identity = {f"GIT_{role}_{what}": "reader" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, **identity, "PATH": paths, "COLUMNS": "80", "PYTHONPATH": ""}
    ran = 0
    for language, file, text in _BLOCK.findall((ROOT / "docs" / page).read_text(encoding="utf-8")):
        if file:
            (tmp_path / file).write_text(text, encoding="utf-8")
        for command, lines in _commands(text) if language == "console" else ():
            shell = ["bash", "-c", command]
            done = subprocess.run(shell, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
            output = done.stdout + done.stderr
            assert _shows(output, lines), f"$ {command}\n{output}"
            ran += 1
    assert ran == commands
