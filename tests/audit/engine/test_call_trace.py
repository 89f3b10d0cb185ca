"""Which functions of a tree a call entered."""

import importlib
import sys
import threading
from pathlib import Path
from typing import Any

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


def test_functions_that_other_threads_enter(tmp_path: Path) -> None:
    """They follow those of this thread."""
    file = tmp_path / "code.py"
    file.write_text(CODE, encoding="utf-8")
    space: dict[str, Any] = {}
    exec(compile(CODE, str(file), "exec"), space)  # noqa: S102 - our own text, under a name in the tree
    before = threading.gettrace()
    with entered(tmp_path) as names:
        thread = threading.Thread(target=space["Kind"]().method)
        thread.start()
        thread.join()
        space["unused"]()
    assert names == ["code.py:11:unused", "code.py:3:Kind.method", "code.py:7:helper"]
    assert threading.gettrace() is before


def test_trace_function_is_put_back(tmp_path: Path) -> None:
    before = sys.gettrace()
    with pytest.raises(ZeroDivisionError), entered(tmp_path) as names:
        _ = 1 / 0
    assert sys.gettrace() is before
    assert names == []


def test_generated_constructor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The constructor of a dataclass counts as entered; alone it is no code of the tree."""
    text = (
        "from dataclasses import dataclass\n\n@dataclass\nclass Config:\n    low: float = 0.0\n\ndef use(config): ...\n"
    )
    (tmp_path / "generated_config.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("generated_config")
    with entered(tmp_path) as names:
        module.use(module.Config())
    assert names == ["generated_config.py:7:use", "generated_config.py:0:Config.__init__"]
    with entered(tmp_path) as names:
        module.Config()
    assert names == []
