"""Source code that is read: as text, as a file, as a code object; by adapters, by others, and from a cache."""

import ast
import importlib
import inspect
import linecache
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import rl_sentinel.adapters
from rl_sentinel.adapters.source_reads import SourceReads, line_of, remembered, sources_read_once
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.policy_loss import loss_outputs
from rl_sentinel.audit.sandbox.forked_events import forked_events

MODULE = """
def first(x: int):
    def inner():
        return x
    return inner


def second(x):
    # type: (int) -> int
    return x + 1


class Loss:
    def forward(self, x):
        return x


def fail():
    raise ValueError
"""


def _reads(folder: Path, run: Callable[[Any], object], *, binding: bool = False) -> list[list[Any]]:
    (folder / "house_module.py").write_text(MODULE, encoding="utf-8")

    def work(send: Callable[[dict[str, Any]], None]) -> None:
        sys.path.insert(0, str(folder))
        reads = SourceReads(folder)
        reads.install()
        module = importlib.import_module("house_module")
        assert not reads.reads
        reads.binding = binding
        run(module)
        send({"event": "reads", "reads": sorted(reads.reads)})

    return list(forked_events(work)[0]["reads"])


def _failed(module: Any) -> str:
    try:
        module.fail()
    except ValueError:
        return traceback.format_exc()
    return ""


def _failed_without_cache(module: Any) -> str:
    linecache.clearcache()
    return _failed(module)


@pytest.mark.parametrize(
    ("run", "reads"),
    [
        (lambda m: inspect.getsource(m.second), [["house_module.py", 8]]),
        (lambda m: inspect.getsource(m.Loss().forward), [["house_module.py", 14]]),
        (lambda m: torch.jit.script(m.second), [["house_module.py", 8]]),
        (lambda m: inspect.getsource(m.first(1)), [["house_module.py", 0]]),  # a nested function counts as its file
        (lambda m: inspect.getsource(m.Loss), [["house_module.py", 0]]),
        (inspect.getsource, [["house_module.py", 0]]),
        (lambda m: Path(m.__file__).read_text(encoding="utf-8"), [["house_module.py", 0]]),
        (lambda m: m.second.__code__.co_consts, [["house_module.py", 8]]),
        (lambda m: inspect.signature(m.second), []),
        (lambda m: m.second(1), []),
        (lambda m: line_of(m.second), []),
        (lambda m: Target(Path(m.__file__).parent).source(m.Loss), []),
        (_failed, []),
        (_failed_without_cache, []),
        (importlib.reload, []),
    ],
)
def test_reads(tmp_path: Path, run: Callable[[Any], object], reads: list[list[Any]]) -> None:
    assert _reads(tmp_path, run) == reads


def test_reads_of_others_count_while_adapters_describe_boundaries(tmp_path: Path) -> None:
    assert _reads(tmp_path, lambda m: inspect.getsource(m.second), binding=True) == [["house_module.py", 8]]


def test_reads_of_adapters_show_in_the_descriptions(tmp_path: Path) -> None:
    def run(module: Any) -> None:
        assert list(loss_outputs(module.second, {})) == ["loss"]

    assert _reads(tmp_path, run, binding=True) == []
    assert _reads(tmp_path, run) == [["house_module.py", 8]]


def test_cached_reads_are_recorded_again(tmp_path: Path) -> None:
    asked = []

    @remembered
    def length(function: Callable[..., Any]) -> int:
        asked.append(function)
        return len(inspect.getsource(function))

    def run(module: Any) -> None:
        length(module.second)
        recorder = next(r for r in _recorders() if r.reads)
        recorder.reads.clear()
        length(module.second)
        assert len(asked) == 1

    assert _reads(tmp_path, run) == [["house_module.py", 8]]


def test_sources_are_read_once_with_the_same_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, lines = list[object](), inspect.getsourcelines

    def counted(thing: Any) -> tuple[list[str], int]:
        found.append(thing)
        return lines(thing)

    monkeypatch.setattr(inspect, "getsourcelines", counted)

    def run(module: Any) -> None:
        with sources_read_once():
            first = inspect.getsource(module.second)
            recorder = next(r for r in _recorders() if r.reads)
            recorder.reads.clear()
            assert inspect.getsource(module.second) == first
        assert found == [module.second]
        inspect.getsource(module.second)
        assert len(found) == 2

    assert _reads(tmp_path, run) == [["house_module.py", 8]]


#: Cached readers whose result shows elsewhere: in the modules that are loaded, or in the outline of a file.
SHOWN = {"_users", "_definitions", "_optional_lines"}


def test_adapters_cache_what_they_read_with_its_record() -> None:
    readers = {"getsource", "getsourcelines", "findsource", "read_text", "read_bytes"}
    silent = set[str]()
    for file in Path(rl_sentinel.adapters.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_bytes())):
            cached = isinstance(node, ast.FunctionDef) and any(
                ast.unparse(d) in ("cache", "functools.cache", "lru_cache") for d in node.decorator_list
            )
            if cached and readers & {getattr(n, "attr", getattr(n, "id", "")) for n in ast.walk(node)}:
                silent.add(getattr(node, "name", ""))
    assert silent == SHOWN


def _recorders() -> list[SourceReads]:
    module = importlib.import_module("rl_sentinel.adapters.source_reads")
    return list(vars(module)["_active"])
