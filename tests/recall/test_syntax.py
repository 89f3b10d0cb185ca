"""The interpreter of a revision: the first one that can read all of its files."""

import sys
from pathlib import Path

import pytest

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.recall.syntax import interpreter_for

#: An interpreter that takes every file with the word for no Python, as an older one takes newer syntax.
OLDER = """#!{real}
import ast, sys
read = ast.parse
def parse(source):
    if b"{word}" in source:
        raise SyntaxError("newer syntax")
    return read(source)
ast.parse = parse
code, sys.argv = sys.argv[2], ["-c", *sys.argv[3:]]
exec(code)
"""


def _older(folder: Path, word: str) -> str:
    place = folder / f"older-{word}"
    place.write_text(OLDER.format(real=sys.executable, word=word), encoding="utf-8")
    place.chmod(0o755)
    return str(place)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "package").mkdir(parents=True)
    for name in ("one", "two"):
        (root / "package" / f"{name}.py").write_text(f"{name} = 'both'\n", encoding="utf-8")
    return root


def test_first_that_reads_all_files(tree: Path, tmp_path: Path) -> None:
    older, other = _older(tmp_path, "two"), _older(tmp_path, "absent")
    assert interpreter_for(tree, [older, sys.executable, other]) == sys.executable
    assert interpreter_for(tree, [other, sys.executable]) == other


def test_the_one_that_reads_most(tree: Path, tmp_path: Path) -> None:
    oldest, older = _older(tmp_path, "both"), _older(tmp_path, "one")
    assert interpreter_for(tree, [oldest, older]) == older


def test_no_interpreter(tree: Path) -> None:
    with pytest.raises(SentinelError, match="it did not run Python code"):
        interpreter_for(tree, ["/bin/true", sys.executable])
