"""What the pages show works: commands are taken by the command line, and whole Python examples run."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from rl_sentinel.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])

#: A command at the start of a line of a block, or as a whole between backticks; a comment may follow.
_COMMAND = re.compile(r"^(?:\$ |git bisect run )?(rl-sentinel [a-z][^#\n]*)|`(rl-sentinel [a-z][^`\n]*)`", re.MULTILINE)

#: Placeholders of a synopsis, such as ``[key=value...]``.
_SYNOPSIS = re.compile(r"\[[^\]]*\]|\.\.\.")

#: Commands that a page names to say that they do not exist yet.
_ABSENT = {"guard"}


def _commands() -> list[tuple[str, str]]:
    found = [
        (page.name, " ".join(_SYNOPSIS.sub("", one or other).split()))
        for page in PAGES
        for one, other in _COMMAND.findall(page.read_text(encoding="utf-8"))
    ]
    return sorted(set(found))


def _unknown(command: str) -> list[str]:
    """The command, or those of its options, that the command line does not have."""
    name, *words = shlex.split(command)[1:]
    known = typer.main.get_command(app).commands.get(name)  # type: ignore[attr-defined] # a group has commands
    if known is None:
        return [name]
    options = {option for parameter in known.params for option in (*parameter.opts, *parameter.secondary_opts)}
    return [word for word in words if word.startswith("-") and word.partition("=")[0] not in options]


@pytest.mark.parametrize(("page", "command"), _commands(), ids=str)
def test_commands_are_taken(page: str, command: str) -> None:
    """The command exists, with these options."""
    unknown = set(_unknown(command)) - _ABSENT
    assert not unknown, f"{page}: {command}"


class _FetchedError(Exception):
    """Raised in place of a fetch: the options go together."""


@pytest.mark.parametrize("command", [command for _, command in _commands() if "--against" in command])
def test_options_of_a_comparison_go_together(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some options of an audit cannot be combined with ``--against``."""

    def fetch(*_arguments: object) -> None:
        raise _FetchedError

    monkeypatch.setattr("rl_sentinel.cli.audit.fetch", fetch)
    with pytest.raises(_FetchedError):
        typer.main.get_command(app).main(shlex.split(command)[1:], standalone_mode=False)


def test_unknown_commands_and_options_are_noticed() -> None:
    assert _unknown("rl-sentinel audit verl==0.9.1 --color red --json x") == ["--color"]
    assert _unknown("rl-sentinel guards") == ["guards"]


def _examples() -> list[tuple[str, str]]:
    """Python blocks that import what they use."""
    blocks = [
        (page.name, text)
        for page in PAGES
        for text in re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    ]
    return [(name, text) for name, text in blocks if text.startswith(("import torch", "from rl_sentinel"))]


@pytest.mark.slow
@pytest.mark.parametrize(("page", "text"), _examples(), ids=str)
def test_examples_run(page: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / f"{Path(page).stem}.py"
    file.write_text(text, encoding="utf-8")
    done = subprocess.run([sys.executable, file], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{page}\n{done.stderr}"
