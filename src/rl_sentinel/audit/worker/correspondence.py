"""Where answers hold what was compared: as it is, some columns or rows, rows of a list, or what is finite."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

#: How deep an answer is looked into.
_DEPTH = 3

#: Up to so many outputs are compared in one line.
_FEW = 4


@dataclass(frozen=True, slots=True)
class Answers:
    """What one run came to: its label, what it answered by name, and the outputs that a law was given of it."""

    label: str
    named: Sequence[tuple[str, Any]]
    outputs: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Compared:
    """The output that was compared, the two tensors, and the positions that count."""

    output: str
    expected: Tensor
    observed: Tensor
    where: Tensor | None = None


@dataclass(frozen=True, slots=True)
class _Place:
    """A stem (an answer, without its label), and the whole expression of what stands there."""

    stem: str
    text: str


def correspondence(runs: Sequence[Answers], c: Compared) -> tuple[str, str]:
    """Expressions of what was expected and of what was got; empty where a script cannot make them.

    Example:
        >>> import torch
        >>> from rl_sentinel.audit.worker.correspondence import Answers, Compared, correspondence
        >>> one, two = torch.tensor([0.5]), torch.tensor([1.0])
        >>> runs = [Answers("was", [("", (one, two))]), Answers("is", [("", (two, two))])]
        >>> correspondence(runs, Compared("advantage", one, two))
        ('was[0]', 'is[0]')
    """
    last = runs[-1]
    pairs = ((runs[0], last), (last, runs[0])) if len(runs) > 1 else ()
    if last.outputs and c.output not in last.outputs:
        return "", _unmoved(runs, c) if pairs else ""
    for one, other in pairs:
        if both := _both(one, other, c):
            return both
    if got := next(_held(last, c.observed, c), None):
        return "", got.text
    if finite := _finite(last, c):
        return "", finite
    return "", _unmoved(runs, c) if pairs else ""


def _both(one: Answers, other: Answers, c: Compared) -> tuple[str, str] | None:
    """Both tensors under one name, in the answers of two runs."""
    expected = list(_held(one, c.expected, c))
    for got in _held(other, c.observed, c):
        for known in (e for e in expected if e.stem == got.stem):
            return known.text, got.text
    return None


def _held(run: Answers, wanted: Tensor, c: Compared) -> Iterator[_Place]:
    """Where a run holds these numbers; where its output is known, nowhere but there."""
    output = run.outputs.get(c.output)
    homes = {p.stem for p in _places(run, output, None)} if output is not None else set()
    yield from (p for p in _places(run, wanted, c.where) if not homes or p.stem in homes)


def _finite(run: Answers, c: Compared) -> str:
    """Where a law counts what is NaN or infinite, as 1 each: the line that counts it."""
    output = run.outputs.get(c.output)
    if output is None or not _alike((~output.isfinite()).float(), c.observed, c.where):
        return ""
    if output.isfinite().all() or bool(c.expected.any()):
        return ""
    return next((f"(~{p.text}.isfinite()).float()" for p in _places(run, output, None)), "")


def _unmoved(runs: Sequence[Answers], c: Compared) -> str:
    """Where 1 says that something moves, and nothing did: the line that compares every output of the two runs."""
    if c.expected.dim() or (c.expected.item(), c.observed.item()) != (1.0, 0.0):
        return ""
    one, other = runs[0], runs[-1]
    names = [c.output] if c.output in one.outputs else list(one.outputs)
    seen = list[str]()
    for name in names:
        before, after = one.outputs[name], other.outputs.get(name)
        stems = {p.stem: p for p in _places(one, before, None)}
        both = [(stems[p.stem], p) for p in _places(other, after, None) if p.stem in stems] if after is not None else []
        if after is None or not _alike(before, after, None) or not both:
            return ""
        seen.append(f"bool(({both[0][0].text} != {both[0][1].text}).any())")
    return f"torch.tensor(float({' or '.join(list(dict.fromkeys(seen))[:_FEW])}))" if seen else ""


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
