"""Source code that is read: as text, as a file, as a code object; by adapters, by others, and from a cache."""

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

from rl_sentinel.adapters.source_reads import SourceReads, line_of, remembered
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.policy_loss import loss_outputs
from rl_sentinel.audit.sandbox.forked_events import forked_events

MODULE = '''
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
'''


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


def _failed(module: Any) -> str:  # noqa: ANN401 - a module
    try:
        module.fail()
    except ValueError:
        return traceback.format_exc()
    return ""


@pytest.mark.parametrize(
    ("run", "reads"),
    [
        (lambda m: inspect.getsource(m.second), [["house_module.py", 8]]),
        (lambda m: inspect.getsource(m.Loss().forward), [["house_module.py", 14]]),
        (lambda m: torch.jit.script(m.second), [["house_module.py", 8]]),
        (lambda m: inspect.getsource(m.first(1)), [["house_module.py", 0]]),  # a nested function counts as its file
        (lambda m: inspect.getsource(m.Loss), [["house_module.py", 0]]),
        (lambda m: inspect.getsource(m), [["house_module.py", 0]]),
        (lambda m: Path(m.__file__).read_text(encoding="utf-8"), [["house_module.py", 0]]),
        (lambda m: m.second.__code__.co_consts, [["house_module.py", 8]]),
        (lambda m: inspect.signature(m.second), []),
        (lambda m: m.second(1), []),
        (lambda m: line_of(m.second), []),
        (lambda m: Target(Path(m.__file__).parent).source(m.Loss), []),
        (_failed, []),
        (lambda m: (linecache.clearcache(), _failed(m)), []),
        (lambda m: importlib.reload(m), []),
    ],
)
def test_reads(tmp_path: Path, run: Callable[[Any], object], reads: list[list[Any]]) -> None:
    assert _reads(tmp_path, run) == reads


def test_reads_of_others_count_while_adapters_describe_boundaries(tmp_path: Path) -> None:
    assert _reads(tmp_path, lambda m: inspect.getsource(m.second), binding=True) == [["house_module.py", 8]]


def test_reads_of_adapters_show_in_the_descriptions(tmp_path: Path) -> None:
    def run(module: Any) -> None:  # noqa: ANN401 - a module
        assert list(loss_outputs(module.second, {})) == ["loss"]

    assert _reads(tmp_path, run, binding=True) == []
    assert _reads(tmp_path, run) == [["house_module.py", 8]]


def test_cached_reads_are_recorded_again(tmp_path: Path) -> None:
    asked = []

    @remembered
    def length(function: Callable[..., Any]) -> int:
        asked.append(function)
        return len(inspect.getsource(function))

    def run(module: Any) -> None:  # noqa: ANN401 - a module
        length(module.second)
        recorder = next(r for r in _recorders() if r.reads)
        recorder.reads.clear()
        length(module.second)
        assert len(asked) == 1

    assert _reads(tmp_path, run) == [["house_module.py", 8]]


def _recorders() -> list[SourceReads]:
    module = importlib.import_module("rl_sentinel.adapters.source_reads")
    return list(vars(module)["_active"])
