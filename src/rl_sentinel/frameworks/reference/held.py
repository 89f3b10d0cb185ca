"""What each public function is held to by its signature alone: kinds, shapes, numbers that count and those that do not.

A new function is asked unasked. What it takes is made of the names of its parameters, what it gives is checked by
its annotation; packed tokens must give what padded ones give, and places off the mask must decide nothing.
"""

import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import UnionType
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.frameworks.reference.arguments import SIGNAL
from rl_sentinel.frameworks.reference.derivatives import (
    LEARNED,
    same_far_apart,
    same_forwards,
    same_twice,
    same_where_certain,
    same_with_gradient,
)
from rl_sentinel.frameworks.reference.refusals import RAW, names, of_words
from rl_sentinel.frameworks.reference.rewards import functions
from rl_sentinel.frameworks.reference.signatures import (
    LENGTH,
    annotations,
    answer,
    arguments,
    choices,
    takes_segments,
    trained_tokens,
)
from rl_sentinel.frameworks.target import Target

#: Functions that take records or functions, or are checks themselves; what they refuse is asked by name.
APART = frozenset(
    {f"checks.{n}" for n in ("answered", "checked", "finite", "instance", "kinds", "ordered", "within")}
    | {f"checks.{n}" for n in ("possible", "probabilities")}
    | {f"segments.{n}" for n in ("packed", "padded", "trained", "narrowed", "rows_taken", "turns", "lengths")}
    | {"path.is_outcome", "path.loss_ready", "ready.prompts_apart", "ready.trusted", "rollout.laid_out"}
    | {"merging.merge", "merging.counts", "blocks.summed", "blocks.by_rows", "scan.lined_up", "scan.put_back"}
    | {"steps.over_trajectories", *(f"ratios.{n}" for n in ("weighed", "exponential", "traced"))}
)

#: Modules whose numbers are for the log, and carry no gradient.
_LOGGED = ("metrics", "staleness")

#: Functions of tokens that take numbers of rows as well, each a row of one token.
_OF_ROWS_TOO = frozenset(
    {f"metrics.{n}" for n in ("statistics", "share", "effective_sample_size")} | {"staleness.staleness"}
)

#: Parameters of a function that weighs an advantage by a ratio of policies.
_WEIGHS = frozenset({"logprob", "old_logprob", "advantage"})

#: Parameters that say which row is whose, and so count wherever they stand.
_LAID_OUT = frozenset({"mask", "live", "group", "length", "prompt_length", "trajectory"})


#: Function and parameter that its refusals call otherwise: what it is made of, or what it is to all who call it.
_TOLD_AS = {
    ("groups.centred", "values"): "reward",
    ("groups.require_finite", "values"): "reward",
    ("minibatches.aggregation", "mask"): "tokens",
}

#: What an argument may not be, made of one that is taken; nothing where an argument is of another kind.
Wrong = Callable[[Any], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Held:
    """A function, and the words that it is called with."""

    target: Target
    path: str
    by: Mapping[str, Any]

    def given(self, mask: Tensor | None = None) -> dict[str, Any]:
        """Arguments that are taken."""
        return arguments(self.target, self.path, self.by, trained_tokens() if mask is None else mask)

    def answer(self, given: Mapping[str, Any]) -> list[Any]:
        """What it gives, of the kinds and shapes that it tells."""
        return answer(self.target, self.path, given)

    def same(self, found: list[Any], expected: list[Any], where: Tensor | None) -> None:
        """Refuse another answer than the expected one, at the places that count.

        Raises:
            ValueError: with both.
        """
        for one, other in zip(found, expected, strict=True):
            if not isinstance(one, Tensor) or one.shape != other.shape:  # places of another layout
                continue
            near = torch.isclose(one.double(), other.double(), rtol=1e-4, atol=1e-6)
            if where is not None and where.shape == near.shape:
                near = near[where]
            if not bool(near.all()):
                raise ValueError(f"{self.path} gave {one}, expected {other}")


def boundaries(target: Target) -> Iterator[Boundary]:
    """One for each function; its settings are sound calls and nonsense, each asked with all words it may be given."""
    package = target.module(SIGNAL)
    for info in sorted(pkgutil.walk_packages(package.__path__, f"{SIGNAL}."), key=lambda i: i.name):
        for path, _ in functions(target.module(info.name)):
            if path.removeprefix(f"{SIGNAL}.") not in APART:
                yield _of(target, path)


def _of(target: Target, path: str) -> Boundary:
    every = [Held(target, path, by) for by in choices(target.find(path))]
    sound, nonsense = _sound(target.find(path), path), _nonsense(target.find(path))

    def call(setting: str) -> None:
        if setting in nonsense:
            _refused(every, nonsense[setting])
        else:
            for one in every:
                sound[setting](one)

    (found,) = of_words(f"{path} by its signature", call, {**sound, **nonsense}, sound=sound)
    return found


def _sound(function: Callable[..., Any], path: str) -> dict[str, Callable[[Held], None]]:
    found: dict[str, Callable[[Held], None]] = {"sound": _plain}
    found["sound with a gradient"] = partial(_judged, by=same_with_gradient)
    if {"mask", "live"} & set(annotations(function)):
        found |= {"sound off the mask": _elsewhere, "sound with nothing trained": _untrained, "sound and empty": _empty}
    if LEARNED & set(annotations(function)):
        found |= {"sound forwards": partial(_judged, by=same_forwards), "sound twice": partial(_judged, by=same_twice)}
    if set(annotations(function)) >= _WEIGHS:
        found["sound far apart"] = partial(_judged, by=same_far_apart)
        found["sound where certain"] = partial(_judged, by=same_where_certain)
    found |= {"sound, of rows": _of_rows} if path.removeprefix(f"{SIGNAL}.") in _OF_ROWS_TOO else {}
    found |= {"sound for the log": _without_gradient} if path.split(".")[-2] in _LOGGED else {}
    return found | ({"sound packed": _packed} if takes_segments(function) else {})


def _nonsense(function: Callable[..., Any]) -> dict[str, Wrong]:
    """Ways of being wrong; numbers count where the docstring says so, infinite ones unless they may be cut."""
    docs = inspect.getdoc(function) or ""
    others = re.findall(r"as :func:`(\w+)`", docs)  # of which it refuses what they do
    told = " ".join(" ".join([docs, *(getattr(inspect.getmodule(function), n).__doc__ for n in others)]).split())
    found: dict[str, Wrong] = {"other kinds": _other_kinds, "an axis more": _axis_more, "something else": _something}
    if {int, float} & {kind for kind in annotations(function).values() if isinstance(kind, type)}:
        found["no number"] = _no_number
    if sum("Tensor" in str(kind) for kind in annotations(function).values()) > 1:
        found["other rows"] = _other_rows
    if "finite" in told:
        bad = (torch.nan,) if "finite where it counts" in told else (torch.nan, torch.inf, -torch.inf)
        found["no numbers"] = partial(_no_numbers, bad=bad)
    return found


def _plain(one: Held) -> None:
    one.answer(one.given())


def _elsewhere(one: Held) -> None:
    """Numbers that are none, and labels of nothing, wherever nothing is trained."""
    plain = one.given()
    masks = [plain[n] for n in ("mask", "live") if n in plain]
    masks += [trained_tokens().any(dim=1)] if len(masks) == 1 and masks[0].dim() > 1 else []
    other = dict(plain)
    for name, value in plain.items():
        if isinstance(value, Tensor) and name not in _LAID_OUT:
            counts = next((m for m in masks if m.shape == value.shape[: m.dim()]), torch.tensor(data=True))
            off = ~counts.reshape(*counts.shape, *[1] * (value.dim() - counts.dim()))
            nothing = torch.nan if value.is_floating_point() else 99
            other[name] = value.masked_fill(off, nothing) if value.dtype != torch.bool else value | off
    one.same(one.answer(other), one.answer(plain), masks[0])


def _untrained(one: Held) -> None:
    """With nothing trained a number is finite, but for the largest of nothing."""
    _of_nothing(one, torch.zeros_like(trained_tokens()))


def _of_nothing(one: Held, mask: Tensor) -> None:
    least = "minus infinity" in (inspect.getdoc(one.target.find(one.path)) or "")
    for value in one.answer(one.given(mask)):
        if isinstance(value, Tensor) and not bool((value.isfinite() | (least & (value == -torch.inf))).all()):
            raise ValueError(f"{one.path} gave {value} of nothing, expected finite numbers")


def _empty(one: Held) -> None:
    """The same of rows without a place for a token."""
    _of_nothing(one, trained_tokens()[:, :0])


def _judged(one: Held, *, by: Callable[..., None]) -> None:
    by(one.answer, one.given())


def _of_rows(one: Held) -> None:
    """Numbers of rows give what rows of one token do."""
    first = {n: v[:, :1] if isinstance(v, Tensor) else v for n, v in one.given().items()}
    plain = one.answer(first)
    one.same(one.answer({n: v.squeeze(1) if isinstance(v, Tensor) else v for n, v in first.items()}), plain, None)


def _without_gradient(one: Held) -> None:
    """Of columns with a gradient."""
    for value in one.answer({n: _leaf(v) for n, v in one.given().items()}):
        if isinstance(value, Tensor) and value.requires_grad:
            raise ValueError(f"{one.path} gave {value}, expected a number without a gradient")


def _packed(one: Held) -> None:
    """Packed tokens give what padded ones do, and gradients as well."""
    plain, length = one.given(), torch.tensor(LENGTH)

    def stored(value: Any) -> Any:  # noqa: ANN401 - whatever an argument is
        wide = isinstance(value, Tensor) and value.shape == trained_tokens().shape
        return one.target.call(f"{SIGNAL}.segments.packed", value, length=length) if wide else value

    leaves = {n: _leaf(v) if n in LEARNED else v for n, v in plain.items()}
    padded, slopes = _with_gradients(one, leaves)
    other = {n: _leaf(stored(v)) if n in LEARNED else stored(v) for n, v in plain.items()}
    other["mask"] = one.target.call(f"{SIGNAL}.segments.Segments", other["mask"], length)
    for name, kind in annotations(one.target.find(one.path)).items():
        if isinstance(kind, UnionType) and name in one.by and isinstance(other[name], Tensor):  # of rows
            other[name] = one.target.call(f"{SIGNAL}.align.spread", other[name], mask=other["mask"])
    found, others = _with_gradients(one, other)
    one.same(found, [stored(v) for v in padded], None)
    one.same(others, [stored(v) for v in slopes], None)


def _leaf(value: Any) -> Any:  # noqa: ANN401 - whatever an argument is
    """The same numbers, to which gradients are taken."""
    floats = isinstance(value, Tensor) and value.is_floating_point()
    return value.detach().clone().requires_grad_() if floats else value


def _with_gradients(one: Held, given: Mapping[str, Any]) -> tuple[list[Any], list[Tensor]]:
    """What it gives, without a graph, and the gradients of all of that to the columns."""
    found = one.answer(given)
    rising = [v.sum() for v in found if isinstance(v, Tensor) and v.requires_grad]
    if rising:
        torch.stack(rising).sum().backward()  # type: ignore[no-untyped-call]  # torch has no types here
    leaves = [v for v in given.values() if isinstance(v, Tensor) and v.requires_grad]
    slopes = [torch.zeros_like(v) if v.grad is None else v.grad for v in leaves]
    return [v.detach() if isinstance(v, Tensor) else v for v in found], slopes


def _refused(every: list[Held], wrong: Wrong) -> None:
    """Return if anything is taken that is wrong in this way, or refused without a word of which argument it is.

    Raises:
        ValueError: if each is refused by its name.
    """
    for one in every:
        plain = one.given()
        short = one.path.removeprefix(f"{SIGNAL}.")
        for name, value in plain.items():
            for strange in wrong(value):
                try:
                    one.target.call(one.path, **plain | {name: strange})
                except ValueError as told:
                    if not names(told, name, _TOLD_AS.get((short, name), name)):
                        return
                except RAW:
                    return
                else:
                    return
    raise ValueError(f"{every[0].path} refuses them all")


def _other_kinds(value: Any) -> list[Tensor]:  # noqa: ANN401 - whatever an argument is
    """The same numbers as those of two other kinds."""
    kinds = (torch.bool, torch.int64, torch.float32) if isinstance(value, Tensor) else ()
    return [value.to(kind) for kind in kinds if kind != value.dtype]


def _something(value: Any) -> list[Any]:  # noqa: ANN401 - as above
    """What no parameter takes: no number, no word, no tensor, and nothing that can be called."""
    return [(), *([object()] if not callable(value) else [])]


def _axis_more(value: Any) -> list[Tensor]:  # noqa: ANN401 - as above
    return [value.unsqueeze(-1)] if isinstance(value, Tensor) else []


def _other_rows(value: Any) -> list[Tensor]:  # noqa: ANN401 - as above
    """Beside other tensors: with a row more, and with one for all."""
    return [torch.cat([value, value[:1]]), value[:1]] if isinstance(value, Tensor) else []


def _no_number(value: Any) -> list[Any]:  # noqa: ANN401 - as above
    """Of a number what is none, and of a count what lies between two."""
    counts = isinstance(value, int) and not isinstance(value, bool)
    return [torch.nan, "one", None, *([value + 0.5] if counts else [])] if counts or isinstance(value, float) else []


def _no_numbers(value: Any, *, bad: tuple[float, ...]) -> list[Tensor]:  # noqa: ANN401 - as above
    """No number in the first place, which is trained; nothing for labels and masks."""
    if not isinstance(value, Tensor):
        return []
    first = torch.arange(value.numel()).reshape(value.shape) == 0
    return [value.masked_fill(first, x) for x in bad] if value.is_floating_point() else []
