"""Recorded calls as a few lines of Python that need torch and the target only."""

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from rl_sentinel.audit.worker.correspondence import Answers, correspondence
from rl_sentinel.audit.worker.ending import Ending
from rl_sentinel.audit.worker.literal import Names, Unwritable, source

#: How deep settings are looked for inside an object that the target made.
_DEPTH = 5

#: Stands for the label of a run until it is known.
_LABEL = "\0"


class Run:
    """The lines of one run of a boundary, written while it goes: arguments as they are on entry.

    Where ``watch`` is set, arguments get names, and one that the call changes is printed before and after.
    """

    def __init__(self, imports: dict[str, None], *, watch: bool = False) -> None:
        """Start a run whose imports are collected in ``imports``."""
        self.watch = watch
        self._entries: set[Any] = set()
        self._given: list[tuple[int, str, Tensor, Tensor]] = []
        self._changed: list[tuple[int, str]] = []
        self.names = Names(imports)
        self.outputs: Mapping[str, Tensor] = {}
        self.lines: list[tuple[str, str]] = []
        self.failed: Unwritable | None = None
        self._made: list[tuple[str, Any, dict[str, str]]] = []
        self._kept: list[Any] = []
        self._held: list[Any] = []
        self._table, self.shown = _LABEL, _LABEL
        self._depth, self.answered = 0, False

    def entering(self, path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Write a call, after what was set since on the objects that earlier calls made.

        What is entered while a call runs is that call's own business.
        """
        self._depth += 1
        self.answered = False
        if self._depth > 1:
            return
        try:
            self.lines += [("", line) for line in self._changes()]
            self._name_tables([*args, *kwargs.values()])
            self._entries = {key for value in (*args, *kwargs.values()) for key in _table(value)}
            if self.watch:
                self._name_tensors({**{f"argument_{n}": a for n, a in enumerate(args)}, **kwargs})
            given = [source(a, self.names) for a in args]
            given += [f"{k}={source(v, self.names)}" for k, v in kwargs.items()]
            inside = "\n    " + ",\n    ".join(given) + ",\n" if given else ""
            self.lines.append((f"_{len(self._kept)}", f" = {self.names.imported(path)}({inside})"))
        except Unwritable as why:
            self.failed = self.failed or why

    def returned(self, result: Any) -> None:  # noqa: ANN401 - whatever the target gives
        """Give the result its name, by which later calls know it."""
        self._depth -= 1
        self.answered = not self._depth
        if self._depth:
            return
        name = f"{_LABEL}_{len(self._kept)}"
        self.shown = _LABEL if result is not None else self._table
        new = [key for key in _table(result) if key not in self._entries]
        if new:
            self.shown = "{" + ", ".join(f"{k!r}: {_LABEL}.batch[{k!r}]" for k in new) + "}"
        self._changed += [(at, name) for at, name, x, was in self._given if not _same(x.detach(), was)]
        self._given = []
        self._kept.append(result)
        self.names.known[id(result)] = name
        if hasattr(result, "__dict__") and not isinstance(result, Tensor | type):
            self._made.append((name, result, self._state(result)))

    def text(self, label: str) -> list[str]:
        """The lines, results named after ``label``, the last one printed.

        Raises:
            Unwritable: if something that was passed has no source text, or nothing was called.
        """
        if self.failed or not self._kept:
            raise self.failed or Unwritable("the target was not called through its gate")
        last = self._last()
        lines_made = self._needed()
        named = [f"{label if mark == last else label + mark if mark else ''}{line}" for mark, line in lines_made]
        lines = [*named, f'print("{label}:", {self.shown})']
        if self._changed:
            lines = [*named, *(f'print("after:", {name})' for _, name in self._changed)]
        for at, name in reversed(self._changed):
            lines.insert(at, f'print("before:", {name})')
        return [line.replace(_LABEL, label) for line in lines]

    def _last(self) -> str:
        return next(mark for mark, _ in reversed(self.lines) if mark)

    def _needed(self) -> list[tuple[str, str]]:
        """The lines without configurations that nothing uses; where changes were printed, all of them."""
        if self._changed:
            return self.lines
        unused = set[str]()
        for number, made in enumerate(self._kept):
            mark, name = f"_{number}", re.compile(rf"{_LABEL}_{number}\b")
            used = mark == self._last() or any(name.search(line) for _, line in self.lines)
            if dataclasses.is_dataclass(made) and not used:
                unused.add(mark)
        return [line for line in self.lines if line[0] not in unused]

    def answers(self, label: str) -> Answers:
        """What was answered, by the name that it has behind a label; the last answer has the label itself."""
        kept = reversed(list(enumerate(self._kept)))
        named = [("" if f"_{number}" == self._last() else f"_{number}", made) for number, made in kept]
        tables = [(self.names.known[id(x)].removeprefix(_LABEL), x) for x in self._held if id(x) in self.names.known]
        return Answers(label, [*named, *((n, x) for n, x in tables if isinstance(x, dict))], self.outputs)

    def _name_tables(self, given: list[Any]) -> None:
        """Tables get a name of their own: a call that gives nothing has written into one."""
        for value in given:
            if type(value) is dict and value and id(value) not in self.names.known:
                self._table = f"{_LABEL}_data_{len(self._held)}"
                self.lines.append(("", f"{self._table} = {source(value, self.names)}"))
                self.names.known[id(value)] = self._table
                self._held.append(value)

    def _name_tensors(self, given: dict[str, Any]) -> None:
        """Tensors get names, so that they can be looked at before and after the call; so do lists of them."""
        for name, value in given.items():
            lone = isinstance(value, Tensor) or (isinstance(value, list) and any(isinstance(x, Tensor) for x in value))
            if lone and id(value) not in self.names.known:
                own = f"{_LABEL}_{name}"
                self.lines.append(("", f"{own} = {source(value, self.names)}"))
                self.names.known[id(value)] = own
                self._held.append(value)
        found = [pair for value in given.values() for pair in _tensors(self.names.known.get(id(value), ""), value)]
        self._given = [(len(self.lines), name, x, x.detach().clone()) for name, x in found]

    def _changes(self) -> Iterator[str]:
        for number, (name, made, before) in enumerate(self._made):
            now = self._state(made)
            yield from (f"{name}.{k} = {v}" for k, v in now.items() if before.get(k) != v)
            self._made[number] = (name, made, now)

    def _state(self, made: Any, prefix: str = "", depth: int = _DEPTH) -> dict[str, str]:  # noqa: ANN401
        state: dict[str, str] = {}
        for name, value in vars(made).items():
            if name.startswith("_") or not depth:
                continue
            if dataclasses.is_dataclass(value) and not isinstance(value, type) and hasattr(value, "__dict__"):
                state |= self._state(value, f"{prefix}{name}.", depth - 1)
                continue
            with contextlib.suppress(Unwritable):
                state[prefix + name] = source(value, Names({}))
        return state


def _table(value: Any) -> list[Any]:  # noqa: ANN401
    """Keys of the table that an object carries under the name ``batch``, in order."""
    keys = getattr(getattr(value, "batch", None), "keys", None)
    return sorted(keys()) if callable(keys) and not isinstance(value, type) else []


def _tensors(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:  # noqa: ANN401
    """The tensors of an argument that has a name, each by an expression."""
    if isinstance(value, Tensor) and name:
        yield name, value
    elif isinstance(value, list) and name:
        for number, part in enumerate(value):
            yield from _tensors(f"{name}[{number}]", part)
    elif type(value) is dict and name:
        for key, part in value.items():
            yield from _tensors(f"{name}[{key!r}]", part)


def _same(now: Tensor, before: Tensor) -> bool:
    """Whether a tensor is as it was; NaN is as NaN."""
    return now.shape == before.shape and bool(((now == before) | ((now != now) & (before != before))).all())  # noqa: PLR0124 - NaN


class Script:
    """A stand-alone script of two runs of a boundary."""

    def __init__(self) -> None:
        """Start an empty script."""
        self.imports: dict[str, None] = {"import torch": None}
        self.runs: list[Run] = []

    def run(self, *, watch: bool = False) -> Run:
        """A new run, to be told of the target's calls; ``watch`` what they change in their arguments."""
        self.runs.append(Run(self.imports, watch=watch))
        return self.runs[-1]

    def text(self, *, first: str, last: str, neighbours: bool = False, ending: Ending | None = None) -> list[str]:
        """The script, line by line, without its first line (which names the packages).

        It has the first run and the last, or the first two where ``neighbours`` are what was compared; a lone
        one is an ``answer``. The ``ending`` checks the expectation.

        Raises:
            Unwritable: if a call cannot be written.
        """
        if not self.runs:
            raise Unwritable("the boundary was not run")
        runs = [run for run in self.runs if run.answered] or self.runs
        pair = {first: runs[0], last: runs[1 if neighbours else -1]} if len(runs) > 1 else {"answer": runs[0]}
        lines = [line for label, run in pair.items() for line in run.text(label)]
        if ending:
            answers = [run.answers(label) for label, run in pair.items()]
            expectation = ending.expectation
            lines += ending.lines([correspondence(answers, one, expectation.where) for one in expectation.pairs()])
        return [*(i for i in sorted(self.imports) if _imports(i, lines)), "", *lines]


def _imports(line: str, lines: list[str]) -> bool:
    """Whether what an import brings is used."""
    name = re.escape(line.rpartition(" ")[2])
    return any(re.search(rf"\b{name}\b", other) for other in lines)
