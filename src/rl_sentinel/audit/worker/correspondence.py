"""Where the answers of recorded calls hold the compared tensors: whole, some columns or rows, or rows of a list."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.audit.worker.ending import Places
from rl_sentinel.core.expectations import Pair

#: How deep an answer is looked into.
_DEPTH = 3


@dataclass(frozen=True, slots=True)
class Answers:
    """What one run came to: its label, what it answered by name, and the outputs that a law was given of it."""

    label: str
    named: Sequence[tuple[str, Any]]
    outputs: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Place:
    """A stem (an answer, without its label), and the whole expression of what stands there."""

    stem: str
    text: str


def correspondence(runs: Sequence[Answers], pair: Pair, where: Tensor | None = None) -> Places:
    """Expressions of what was expected and of what was observed; empty where a script has none.

    Example:
        >>> import torch
        >>> from rl_sentinel.audit.worker.correspondence import Answers, correspondence
        >>> from rl_sentinel.core.expectations import Pair
        >>> one, two = torch.tensor([0.5]), torch.tensor([1.0])
        >>> runs = [Answers("was", [("", (one, two))]), Answers("is", [("", (two, two))])]
        >>> correspondence(runs, Pair("advantage", one, two))
        Places(expected='was[0]', observed='is[0]')
    """
    last = runs[-1]
    if last.outputs and pair.output not in last.outputs:
        return Places("", "")
    if pair.expected is not None and len(runs) > 1:
        for one, other in ((runs[0], last), (last, runs[0])):
            if both := _both(one, other, pair.output, (pair.expected, pair.observed), where):
                return both
    found = next(_held(last, pair.output, pair.observed, where), None)
    return Places("", found.text if found else "")


def _both(
    one: Answers, other: Answers, output: str, wanted: tuple[Tensor, Tensor], where: Tensor | None
) -> Places | None:
    """Both tensors under one name, in the answers of two runs."""
    expected = list(_held(one, output, wanted[0], where))
    for got in _held(other, output, wanted[1], where):
        for known in (e for e in expected if e.stem == got.stem):
            return Places(known.text, got.text)
    return None


def _held(run: Answers, output: str, wanted: Tensor, where: Tensor | None) -> Iterator[_Place]:
    """Where a run holds these numbers; where its output is known, nowhere but there."""
    made = run.outputs.get(output)
    homes = {p.stem for p in _places(run, made, None)} if made is not None else set()
    yield from (p for p in _places(run, wanted, where) if not homes or p.stem in homes)


def _places(run: Answers, wanted: Tensor, where: Tensor | None) -> Iterator[_Place]:
    for name, answer in run.named:
        for stem, found in _leaves(name, answer, _DEPTH):
            own = f"{run.label}{stem}"
            yield from (_Place(stem, text) for text, seen in _views(own, found, wanted) if _alike(seen, wanted, where))


def _leaves(name: str, answer: Any, depth: int) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - a target's answer
    """Tensors, lists of tensors and numbers of an answer, by the expression that stands behind its name."""
    lone = isinstance(answer, Tensor | float)
    if lone or _rows(answer):
        yield name, answer
    if not lone and depth:
        yield from (leaf for inner, part in _parts(name, answer) for leaf in _leaves(inner, part, depth - 1))


def _rows(answer: Any) -> bool:  # noqa: ANN401 - a target's answer
    return isinstance(answer, list) and bool(answer) and all(isinstance(x, Tensor) and x.dim() == 1 for x in answer)


def _parts(name: str, answer: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - a target's answer
    table: Any = getattr(answer, "batch", None)
    if isinstance(answer, list | tuple):
        yield from ((f"{name}[{n}]", part) for n, part in enumerate(answer))
    elif isinstance(answer, Mapping):
        yield from ((f"{name}[{key!r}]", answer[key]) for key in answer)
    elif callable(getattr(table, "keys", None)) and not isinstance(answer, type):
        yield from ((f"{name}.batch[{key!r}]", table[key]) for key in sorted(table.keys()))


def _views(name: str, leaf: Any, wanted: Tensor) -> Iterator[tuple[str, Tensor]]:  # noqa: ANN401 - a leaf
    """What of a leaf may be what was compared: all of it, a stretch of its columns, or rows in their order."""
    if isinstance(leaf, float):
        yield f"torch.tensor(float({name}))", torch.tensor(leaf)
        return
    if _rows(leaf):
        leaf = torch.nn.utils.rnn.pad_sequence([x.detach() for x in leaf], batch_first=True)
        name = f"torch.nn.utils.rnn.pad_sequence({name}, batch_first=True)"
    yield name, leaf
    if leaf.dim() != wanted.dim() or not leaf.dim() or not wanted.numel():
        return
    if leaf.dim() > 1 and leaf.shape[0] == wanted.shape[0] and leaf.shape[1] > wanted.shape[1]:
        width = wanted.shape[1]
        stretches = range(leaf.shape[1] - width + 1)
        yield from ((f"{name}[:, {k}:{k + width}]", leaf[:, k : k + width]) for k in stretches)
    if leaf.shape[1:] == wanted.shape[1:] and leaf.shape[0] > wanted.shape[0]:
        rows = _kept(leaf, wanted)
        yield from [(f"{name}[{rows}]", leaf[rows])] if rows else []


def _kept(leaf: Tensor, wanted: Tensor) -> list[int]:
    """Rows of a leaf that are the wanted ones, in their order; none where there are none."""
    rows = list[int]()
    for number, row in enumerate(leaf):
        if len(rows) < wanted.shape[0] and _alike(row, wanted[len(rows)], None):
            rows.append(number)
    return rows if len(rows) == wanted.shape[0] else []


def _alike(one: Tensor, other: Tensor, where: Tensor | None) -> bool:
    if one.shape != other.shape:
        return False
    a, b = one.detach().double(), other.detach().double()
    same = (a == b) | (a.isnan() & b.isnan())
    return bool((same | ~where if where is not None else same).all())
