"""Which functions of a tree a call entered."""

import sys
from pathlib import Path

import pytest

import misbehaving_work
from rl_sentinel.audit.engine.call_trace import entered

CODE = """
class Kind:
    def method(self):
        return helper() + len([1])


def helper():
    return 1


def unused():
    return 2
"""


def test_functions_of_the_tree_in_order(tmp_path: Path) -> None:
    file = tmp_path / "code.py"
    file.write_text(CODE, encoding="utf-8")
    space: dict[str, type] = {}
    exec(compile(CODE, str(file), "exec"), space)  # noqa: S102 - our own text, under a name in the tree
    with entered(tmp_path) as names:
        space["Kind"]().method()
        space["Kind"]().method()
        misbehaving_work.MisbehavingWork("f", {}).pieces()
    assert names == ["code.py:3:Kind.method", "code.py:7:helper"]


def test_profiler_is_put_back(tmp_path: Path) -> None:
    before = sys.getprofile()
    with pytest.raises(ZeroDivisionError), entered(tmp_path) as names:
        _ = 1 / 0
    assert sys.getprofile() is before
    assert names == []
