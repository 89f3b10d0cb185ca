"""Functions of what is trained, differentiated otherwise than once backwards, and where a ratio has overflowed.

Forwards, and by ``torch.func``, a library has other code than backwards; what both follow must have one derivative.
"""

import warnings
from collections.abc import Callable, Collection, Mapping
from itertools import product
from typing import Any

import torch
from torch import Tensor

#: Parameters that are of what is trained, or of anything: gradients are taken to these.
LEARNED = frozenset({"logprob", "value", "values", "logits"})

#: How far a response is from the policy before, in nats: no ratio of float32 is so large, but one of float64 is.
FAR = 200.0

#: How far from certain, in nats: a chance that float64 can tell from 1.
HAIR = 1e-12

Answer = Callable[[Mapping[str, Any]], list[Any]]


def same_with_gradient(answer: Answer, given: Mapping[str, Any]) -> None:
    """Refuse a function that gives other numbers of columns with a gradient.

    Raises:
        ValueError: with both.
    """
    leaves = {
        n: v.detach().clone().requires_grad_() if isinstance(v, Tensor) and v.is_floating_point() else v
        for n, v in given.items()
    }
    for found, expected in zip(answer(leaves), answer(given), strict=True):
        if isinstance(found, Tensor) and found.is_floating_point():
            _alike("the number of columns with a gradient", found, expected)


def same_forwards(answer: Answer, given: Mapping[str, Any]) -> None:
    """Refuse a function whose values under ``torch.func``, or whose derivatives forwards, are not those backwards.

    Raises:
        ValueError: with both.
    """
    whole, leaves, along = _of(answer, given)
    if not whole(*leaves).requires_grad:
        return
    value, slope = _forwards(whole, leaves, along)
    expected = whole(*leaves)
    _alike("the value", value, expected)
    _alike("the derivative forwards", slope, _dot(_slopes(expected, leaves), along))


def same_twice(answer: Answer, given: Mapping[str, Any]) -> None:
    """Refuse a function whose second derivatives, backwards twice, are not those of its plain operations.

    Raises:
        ValueError: with both.
    """
    learned = {n for n in LEARNED if n in given}
    for only in (None, learned):  # of what is trained alone a library may have other code
        whole, leaves, along = _of(answer, given, only)
        first = whole(*leaves)
        if not first.requires_grad:
            return
        once = _slopes(first, leaves, again=True)
        found = _slopes(_dot(once, along), leaves)
        every = tuple(range(len(leaves)))
        expected = _forwards(torch.func.grad(whole, argnums=every), leaves, along)[1]
        for one, other in zip(found, expected, strict=True):
            _alike("the second derivative", one, other)


def same_far_apart(answer: Answer, given: Mapping[str, Any]) -> None:
    """Refuse an answer of float32, or its slope, that is not float64's where the first row's ratio overflows float32.

    What no ratio weighs stays out of sight of it, and what one weighs is as large as it is: infinite.

    Raises:
        ValueError: with both.
    """
    first = torch.arange(len(given["mask"])) == 0
    for away, gain, wanted in product((FAR, -FAR), (0.0, 1.0, -1.0), ("logprob", "advantage", "")):
        own = dict(given)
        own["advantage"] = _filled(given["advantage"], first, gain)
        own["old_logprob"] = _filled(given["old_logprob"], first, -FAR - 1)  # so that either way is a probability
        own["logprob"] = own["old_logprob"] + _filled(torch.zeros_like(given["old_logprob"]), first, away)
        narrow, wide = (_answered(answer, own, kind, wanted=wanted) for kind in (torch.float32, torch.float64))
        for one, other in zip(narrow, wide, strict=True):
            if not torch.allclose(one, other.to(one.dtype), rtol=1e-3, atol=1e-5):
                told = f"a log-ratio is {away:g} and the advantage {gain:g}"
                raise ValueError(f"{one} where {told}, expected {other}: what float64 gives")


def same_where_certain(answer: Answer, given: Mapping[str, Any]) -> None:
    """Refuse a jump where the policy before was certain of the first row: a hair from certainty it gives the same.

    Raises:
        ValueError: with both.
    """
    first = torch.arange(len(given["mask"])) == 0
    wide = {n: v.double() if isinstance(v, Tensor) and v.is_floating_point() else v for n, v in given.items()}
    found, near = (
        _answered(
            answer, wide | {"old_logprob": _filled(wide["old_logprob"], first, -away)}, torch.float64, wanted="logprob"
        )
        for away in (0.0, HAIR)
    )
    for one, other in zip(found, near, strict=True):
        if not torch.allclose(one.double(), other.double(), rtol=1e-4, atol=1e-6):
            raise ValueError(f"{one} where a token was certain, expected {other}: what is given beside it")


def _filled(column: Tensor, rows: Tensor, number: float) -> Tensor:
    return column.masked_fill(rows.reshape(-1, *[1] * (column.dim() - 1)), number)


def _answered(answer: Answer, given: Mapping[str, Any], kind: torch.dtype, *, wanted: str) -> list[Tensor]:
    """All numbers that it gives, and their slopes to a column where one is wanted."""
    own = {n: v.to(kind) if isinstance(v, Tensor) and v.is_floating_point() else v for n, v in given.items()}
    leaf = own["logprob"] if not wanted else own[wanted].detach().clone().requires_grad_()
    own |= {wanted: leaf} if wanted else {}
    found = [v for v in answer(own) if isinstance(v, Tensor)]
    rising = [v for v in found if v.requires_grad]
    slopes = [torch.autograd.grad(v.sum(), leaf, retain_graph=True)[0] for v in rising]
    return [v.detach() for v in (*found, *slopes)]


def _of(
    answer: Answer, given: Mapping[str, Any], only: Collection[str] | None = None
) -> tuple[Callable[..., Tensor], list[Tensor], tuple[Tensor, ...]]:
    """One number of all that it gives, its columns, of which trained ones hold no number twice, and where they move."""
    wide = {n: v.double() if isinstance(v, Tensor) and v.is_floating_point() else v for n, v in given.items()}
    names = [n for n, v in wide.items() if isinstance(v, Tensor) and v.is_floating_point()]
    names = [n for n in names if only is None or n in only]
    leaves = [(wide[n] + (0.4 * _waves(wide[n]) if n in LEARNED else 0.0)).detach().requires_grad_() for n in names]

    def whole(*columns: Tensor) -> Tensor:
        found = answer(wide | dict(zip(names, columns, strict=True)))
        parts = [(v * _waves(v)).sum() for v in found if isinstance(v, Tensor) and v.is_floating_point()]
        return torch.stack(parts).sum() if parts else torch.zeros(())

    return whole, leaves, tuple(_waves(x, 2.0 + number) for number, x in enumerate(leaves))


def _forwards(whole: Callable[..., Any], leaves: list[Tensor], along: tuple[Tensor, ...]) -> tuple[Any, Any]:
    """What it gives, and how that moves along."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "`torch.jit.script` is deprecated", DeprecationWarning
        )  # torch's own use of it
        value, slope = torch.func.jvp(whole, tuple(x.detach() for x in leaves), along)[:2]
    return value, slope


def _waves(like: Tensor, first: float = 1.0) -> Tensor:
    """Numbers between -1 and 1, of which no two are alike."""
    return torch.sin(first + 7.3 * torch.arange(like.numel(), dtype=torch.float64)).reshape(like.shape)


def _slopes(value: Tensor, leaves: list[Tensor], *, again: bool = False) -> list[Tensor]:
    if not value.requires_grad:
        return [torch.zeros_like(x) for x in leaves]
    found = torch.autograd.grad(value, leaves, create_graph=again, allow_unused=True)
    return [torch.zeros_like(x) if s is None else s for s, x in zip(found, leaves, strict=True)]


def _dot(slopes: list[Tensor], along: tuple[Tensor, ...]) -> Tensor:
    return torch.stack([(s * a).sum() for s, a in zip(slopes, along, strict=True)]).sum()


def _alike(what: str, found: Tensor, expected: Tensor) -> None:
    if not torch.allclose(found.detach(), expected.detach(), rtol=1e-6, atol=1e-8):
        raise ValueError(f"{what} is {found}, expected {expected}: what backwards gives")
