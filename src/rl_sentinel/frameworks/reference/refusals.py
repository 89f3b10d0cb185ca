"""What the library says that it refuses: one boundary for each function, and a setting for each refusal."""

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch, batch_of
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.frameworks.reference.arguments import SIGNAL, choices, given, numbers
from rl_sentinel.frameworks.target import Target

_SOUND = "sound"

#: What code runs into that went on with nonsense: nobody has refused it.
RAW = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError)

#: Setting -> reward of a live row that no statistic can be taken of.
_REWARDS = {"reward nan": torch.nan, "reward infinite": torch.inf, "reward minus infinite": -torch.inf}

#: Parameter -> values outside its range.
_OUTSIDE: Mapping[str, tuple[float, ...]] = {
    "epsilon": (-1e-6, torch.nan),
    "ceiling": (0.5, 1.0),
    "temperature": (-1.0, 0.0),
    "negative_temperature": (-1.0, 0.0),
    "discount": (-0.5, 1.5),
    "decay": (-0.5, 1.5),
    "scale": (-1.0, 0.0),
    "most": (-1.5, torch.nan),
    "buffer": (-1.0, 0.0, 6.0),
    "factor": (-1.0,),
    "coefficient": (-1.0, torch.nan),
    "low": (-0.5, 1.7),
    "high": (-0.5, torch.nan),
    "floor": (0.0, 1.5),
    "threshold": (-0.5,),
    "value_clip": (-0.5, 0.0),
    "clip_low": (-0.5, torch.nan, torch.inf),
    "clip_high": (-0.5, torch.nan, torch.inf),
    "penalty": (-0.5, torch.nan),
    "limit": (0,),
    "share": (0.0, 1.5),
}

#: Parameter -> values at the edge of its range, which are sound.
_INSIDE: Mapping[str, tuple[float, ...]] = {
    "epsilon": (0.0,),
    "ceiling": (1.01,),
    "temperature": (0.01,),
    "negative_temperature": (0.01,),
    "discount": (0.0, 1.0),
    "decay": (0.0, 1.0),
    "scale": (0.01,),
    "most": (-1.0,),
    "buffer": (1, 5),
    "factor": (0.0,),
    "coefficient": (0.0,),
    "low": (0.0, 1.6),
    "high": (0.6,),
    "floor": (0.01, 1.0),
    "threshold": (0.0,),
    "value_clip": (0.01,),
    "clip_low": (0.0, 1e4),
    "clip_high": (0.0, 1e4),
    "penalty": (0.0,),
    "limit": (3,),
    "share": (0.01, 1.0),
}

#: Setting -> denominator that no count can be.
_DENOMINATORS: Mapping[str, float] = {_SOUND: 0.5, "denominator 0": 0.0, "denominator negative": -1.0}

#: Setting -> where a response stands in four positions, how many tokens it has, and how wide the result is.
_PLACES: Mapping[str, tuple[int, int, int, bool]] = {
    _SOUND: (2, 2, 2, False),
    "sound, to the end": (3, 1, 2, False),
    "sound, of no token": (1, 0, 2, False),
    "sound, of no token at the end": (4, 0, 2, False),
    "sound, from the start": (0, 2, 2, False),
    "sound, predicted from the start": (1, 2, 2, True),
    "past its sequence": (3, 2, 2, False),
    "past its sequence by one token": (4, 1, 2, False),
    "before its sequence": (0, 2, 2, True),
    "wider than the result": (1, 2, 1, False),
    "of fewer than no tokens": (1, -1, 2, False),
}


def refusals(target: Target, path: str, function: Callable[..., Any], **more: object) -> Iterator[Boundary]:
    """A boundary for an estimator, which refuses a live row without a finite reward."""
    if "reward" not in inspect.signature(function).parameters:
        return
    plain = {**numbers(function), **dict.fromkeys(choices(function), True), **more}

    def call(setting: str) -> object:
        mask = torch.tensor([[True], [True], [False]])
        first = _REWARDS.get(setting, 0.0)
        batch = batch_of(mask, reward=torch.tensor([1.0, first, torch.nan]))
        return target.call(path, **given(function, batch), **plain)

    yield _boundary(path, call, [_SOUND, *_REWARDS], "reward is not finite on a live row")


def of_numbers(target: Target, path: str, function: Callable[..., Any], **more: object) -> Iterator[Boundary]:
    """A boundary for a function some of whose numbers have a range; each value outside is a setting.

    ``more`` are arguments that no column of a batch is.
    """
    wanted = numbers(function) | dict.fromkeys(choices(function), True)
    outside, inside = (
        {f"{n} {v:g}": (n, v) for n, values in table.items() if n in wanted for v in values}
        for table in (_OUTSIDE, _INSIDE)
    )
    if not outside:
        return
    tried = outside | inside
    extra = {"aggregation": ("token-mean", 1.0)} if "aggregation" in inspect.signature(function).parameters else {}

    def call(setting: str) -> object:
        changed = dict([tried[setting]]) if setting in tried else {}
        made = {n: target.call(f"{SIGNAL}.reduce.Aggregation", *about) for n, about in extra.items()}
        every: dict[str, Any] = {**given(function, batch_of(torch.ones(2, 2).bool())), **wanted, **more, **changed}
        asked = partial(target.call, path, **every | made)
        return by_name(asked, *changed) if setting in outside else asked()

    yield _boundary(path, call, [_SOUND, *inside, *outside], "the number lies outside its range", sound=inside)


def of_parts(target: Target) -> Iterator[Boundary]:
    """Boundaries for the denominators of losses and the places of responses."""
    aggregation = f"{SIGNAL}.reduce.Aggregation"
    why = "no count is 0 or below"
    yield _boundary(aggregation, lambda s: target.call(aggregation, "token-mean", _DENOMINATORS[s]), _DENOMINATORS, why)
    aligned = f"{SIGNAL}.align.response_aligned"
    sound = [name for name in _PLACES if name.startswith(_SOUND)]
    placed = partial(_placed, target, aligned)
    yield _boundary(aligned, placed, _PLACES, "the response lies outside its sequence", sound=sound)


def _placed(target: Target, path: str, setting: str) -> object:
    prompt, length, width, next_token = _PLACES[setting]
    lengths = {"prompt_length": torch.tensor([1, prompt]), "length": torch.tensor([1, length])}
    return target.call(path, torch.zeros(2, 4), **lengths, width=width, predicts_next=next_token)


def names(told: ValueError, *parameters: str) -> bool:
    """Whether a refusal has one of these as a word: it must say which argument it is about."""
    return any(re.search(rf"\b{name}\b", str(told)) for name in parameters)


def by_name(call: Callable[[], object], *parameters: str) -> object:
    """What a call gives; None where it is refused without a word of any of these, as if it had been taken.

    Raises:
        ValueError: the refusal, where it names one of them.
    """
    try:
        return call()
    except ValueError as told:
        if names(told, *parameters):
            raise
        return None


def of_words(
    path: str, call: Callable[[str], object], settings: Mapping[str, object], *, sound: Collection[str] = ()
) -> Iterator[Boundary]:
    """A boundary for a choice of words and numbers; ``settings`` begin with one that is sound, as are ``sound``."""
    yield _boundary(path, call, settings, "the choice is none, or excludes another", sound=sound)


def _boundary(
    path: str, call: Callable[[str], object], names: Iterable[str], why: str, *, sound: Collection[str] = ()
) -> Boundary:
    """``names`` in order, the first of them sound, and those in ``sound`` too; all others are nonsense."""
    well = {_SOUND, *sound}

    def accepted(_batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        name = str(settings["nonsense"])
        try:
            call(name)
        except ValueError:
            return {"accepted": torch.tensor(0.0)}
        except RAW:
            if name in well:
                raise
        return {"accepted": torch.tensor(1.0)}

    cite = f"{path}: docstring, Raises"
    return Boundary(
        path=path,
        stage="config",
        call=accepted,
        reads=frozenset(),
        outputs={"accepted": Output("", "", "accepted")},
        settings={name: {"nonsense": name} for name in names},
        claims=claims(
            cite,
            refused={name: why for name in names if name not in well},
            accepted={name: "it is within bounds" for name in names if name in well},
        ),
    )
