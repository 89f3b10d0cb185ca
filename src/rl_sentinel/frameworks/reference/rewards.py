"""Boundaries of what is done to rewards before they are compared, and of their normalisation."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.frameworks.reference.arguments import SIGNAL, claims, columns, given, numbers, unknown
from rl_sentinel.frameworks.reference.refusals import by_name, of_numbers, of_words, refusals
from rl_sentinel.frameworks.target import Target

NORMALISED = f"{SIGNAL}.normalisation.normalised"
NORMALISATION = f"{SIGNAL}.normalisation.Normalisation"
SUPPRESSED = f"{SIGNAL}.reward.suppressed"

#: Normalisations that are audited (mean, deviation, leave one out, biased): any two choices meet in each way they can.
WAYS: tuple[tuple[str, str, bool, bool], ...] = (
    ("group", "group", False, False),
    ("group", "batch", True, True),
    ("group", "none", True, False),
    ("batch", "batch", False, True),
    ("batch", "group", True, False),
    ("batch", "none", False, False),
    ("none", "batch", False, False),
    ("none", "group", False, True),
    ("none", "none", False, False),
)

_SOUND: Settings = {"mean": "group", "deviation": "batch", "leave_one_out": False, "biased": False, "epsilon": 0.0}

#: Setting -> what of a sound normalisation is changed into nonsense.
_NONSENSE: Mapping[str, Settings] = {
    "sound": {},
    "an unknown mean": {"mean": "row"},
    "an unknown deviation": {"deviation": "row"},
    "one left out of nothing": {"mean": "none", "leave_one_out": True},
    "epsilon negative": {"epsilon": -1e-6},
    "epsilon nan": {"epsilon": torch.nan},
    "one left out or not": {"leave_one_out": 1},
    "biased a number": {"biased": 1},
}


def functions(module: ModuleType) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public functions that a module itself defines, by dotted path."""
    for name, function in inspect.getmembers(module, inspect.isfunction):
        if function.__module__ == module.__name__ and not name.startswith("_"):
            yield f"{module.__name__}.{name}", function


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Each function on rewards; each normalisation, and one that comes after suppression; then what is refused."""
    for path, function in functions(target.module(f"{SIGNAL}.reward")):
        if strange := unknown(function):
            yield Unbound(path, "reward", f"{path} wants {strange!r}, of which this adapter does not know the column")
            continue
        yield _reward(target, path, function)
        yield from refusals(target, path, function)
        yield from of_numbers(target, path, function)
    for mean, deviation, left, biased in WAYS:
        chosen: Settings = {"mean": mean, "deviation": deviation, "leave_one_out": left, "biased": biased}
        yield _normalised(target, {**chosen, "epsilon": 1e-6})
    for mean, deviation in (("group", "none"), ("batch", "batch")):
        yield _after_suppression(target, {**_SOUND, "mean": mean, "deviation": deviation, "suppress": True})
    by = target.call(NORMALISATION, **_SOUND)
    yield from refusals(target, NORMALISED, target.find(NORMALISED), by=by)
    yield from of_words(NORMALISATION, partial(_refused, target), _NONSENSE)


def _reward(target: Target, path: str, function: Callable[..., Any]) -> Boundary:
    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        return {"reward": target.call(path, **given(function, batch), **settings)}

    return Boundary(
        path=path,
        stage="reward",
        call=call,
        reads=columns(function),
        outputs={"reward": Output("B", "reward", "reward")},
        settings={"default": numbers(function)},
        claims=claims(function, algorithm=function.__name__.replace("_", " ")),
    )


def _told(settings: Settings) -> str:
    words = [f"mean {settings['mean']}", f"deviation {settings['deviation']}"]
    return ", ".join(words + [n.replace("_", " ") for n in ("leave_one_out", "biased") if settings[n]])


def _by(settings: Settings) -> dict[str, Any]:
    return {n: v for n, v in settings.items() if n != "suppress"}


def _refused(target: Target, setting: str) -> object:
    changed = _NONSENSE[setting]
    asked = partial(target.call, NORMALISATION, **{**_SOUND, **changed})
    return by_name(asked, *changed) if changed else asked()


def _scope(settings: Settings) -> dict[str, str]:
    """What the choices claim: how far a reward reaches, and what a shift and a scale of rewards do."""
    over = {settings["mean"], settings["deviation"]}
    said = {"scope": "batch" if "batch" in over else "group", "grouping": "id"}
    said["standardised"] = "no" if settings["deviation"] == "none" else "yes"
    return said | ({} if settings["mean"] == "none" else {"baseline": "relative"})


def _normalised(target: Target, settings: Settings) -> Boundary:
    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        by = target.call(NORMALISATION, **_by(settings))
        return {"advantage": target.call(NORMALISED, batch.reward, group=batch.group, live=batch.live, by=by)}

    return Boundary(
        path=NORMALISED,
        stage="normalise",
        call=call,
        reads=frozenset({"reward", "group", "mask"}),
        outputs={"advantage": Output("B", "reward", "advantage")},
        settings={_told(settings): settings},
        claims=claims(target.find(NORMALISED), **_scope(settings)),
    )


def _after_suppression(target: Target, settings: Settings) -> Boundary:
    """The route that an engineer takes: what never ended is void before anything is compared with it."""
    plain = _normalised(target, settings)

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        left = target.call(SUPPRESSED, batch.reward, live=batch.live, scored=batch.scored)
        return plain.call(with_columns(batch, reward=left), settings)

    return Boundary(
        path=f"{SUPPRESSED} -> {NORMALISED}",
        stage="normalise",
        call=call,
        reads=plain.reads | {"scored"},
        outputs=plain.outputs,
        settings={_told(settings): settings},
        claims=plain.claims | claims(target.find(SUPPRESSED), algorithm="normalised", **_scope(settings)),
    )
