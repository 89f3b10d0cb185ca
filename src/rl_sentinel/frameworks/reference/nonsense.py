"""What functions refuse of columns that exclude each other: steps without an end, shapes that disagree, words."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.frameworks.reference.arguments import SIGNAL
from rl_sentinel.frameworks.reference.calls import (
    CALLS,
    KNOWN,
    LAID,
    OF_PROMPTS,
    ORDERS,
    STEPS,
    TURN,
)
from rl_sentinel.frameworks.reference.path_calls import ENDS, OF_READY, READY
from rl_sentinel.frameworks.reference.refusals import by_name, of_words
from rl_sentinel.frameworks.reference.stored_calls import Calls
from rl_sentinel.frameworks.target import Target

_EIGHT = ("prompt-mean", 2.0, torch.tensor([4, 4]))

#: Two ways of dividing beside each other -> what each is made of.
_BESIDE: Mapping[str, tuple[object, object]] = {
    "sound": (("token-mean", 4.0), ("token-mean", 4.0)),
    "sound, of prompts": (_EIGHT, ("prompt-mean", 2.0, torch.tensor([4, 4]))),
    "another mode": (("token-mean", 4.0), ("token-sum", 4.0)),
    "another denominator": (("token-mean", 4.0), ("token-mean", 5.0)),
    "other tokens of prompts": (_EIGHT, ("prompt-mean", 2.0, torch.tensor([4, 5]))),
    "tokens of more rows": (_EIGHT, ("prompt-mean", 2.0, torch.tensor([4, 4, 4]))),
    "rows of another mode": (_EIGHT, ("token-mean", 2.0)),
    "something else": (("token-mean", 4.0), "token-mean"),
}

#: Way of choosing -> functions, and the column or number that one of them lacks.
_WANTED: Calls = {
    "sound": {},
    "a number that nobody gives": {
        "estimator": "advantage.reinforce_plus_plus_baseline.advantages",
        "lacking": "epsilon",
    },
    "no greedy response": {"estimator": "advantage.remax.advantages", "lacking": "reward_baseline"},
    "no parts": {"estimator": "advantage.gdpo.advantages", "lacking": "reward_parts"},
    "no critic": {"estimator": "advantage.gae.advantages", "lacking": "value"},
    "no KL without a reference": {"kl": "kl.k1", "lacking": "old_logprob"},
    "no weight without a sampler": {"weight": "correction.weights.token_weights", "lacking": "old_logprob"},
    "no veto without a sampler": {"rejections": "correction.rejection.vetoed", "lacking": "old_logprob"},
}


def boundaries(target: Target) -> Iterator[Boundary]:
    """One for each function that holds its arguments to each other, and a setting for each call that it must judge."""
    for name, (plain, calls) in CALLS.items():
        path = f"{SIGNAL}.{name}"
        yield from _of(path, partial(_called, target, path, plain, calls), calls)
    path = f"{SIGNAL}.reduce.aggregate"
    yield from _of(path, partial(_aggregated, target, path), OF_PROMPTS)
    merge = f"{SIGNAL}.merging.merge"
    yield from _of(merge, lambda setting: target.call(merge, _told(target, setting)), ORDERS)
    laid = f"{SIGNAL}.rollout.laid_out"
    turn = [target.call(f"{SIGNAL}.merging.Step", **TURN)]
    yield from _of(laid, partial(_called, target, laid, {"steps": turn, **KNOWN}, LAID), LAID)
    ready = target.call(f"{SIGNAL}.ready.Ready", **READY)
    for name, (plain, calls) in OF_READY.items():
        path = f"{SIGNAL}.{name}"
        yield from _of(path, partial(_called, target, path, {"ready": ready, **plain}, calls), calls)
    path = f"{SIGNAL}.path.loss_ready of tokens"
    yield from _of(path, partial(_steps_of_tokens, target), ENDS)
    path = f"{SIGNAL}.reduce.Aggregation beside another"
    yield from _of(path, partial(_alike, target), _BESIDE)
    path = f"{SIGNAL}.path.loss_ready of what is known"
    yield from _of(path, partial(_wanted, target), _WANTED)
    over = f"{SIGNAL}.steps.over_trajectories"
    columns = {
        "reward": torch.tensor([0.0, 1.0, 0.0]),
        "group": torch.tensor([1, 1, 1]),
        "live": torch.ones(3).bool(),
        "trajectory": torch.tensor([4, 4, 2]),
        "last": torch.tensor([False, True, True]),
    }
    estimator = target.find(f"{SIGNAL}.advantage.rloo.advantages")
    yield from _of(over, partial(_called, target, over, {"estimator": estimator, **columns}, STEPS), STEPS)


def _aggregated(target: Target, path: str, setting: str) -> object:
    told = {"mode": "prompt-mean", "denominator": 1.0, "prompt_tokens": torch.tensor([4, 4]), **OF_PROMPTS[setting]}
    by = target.call(f"{SIGNAL}.reduce.Aggregation", **told)
    return target.call(path, torch.ones(2, 2), mask=torch.ones(2, 2).bool(), aggregation=by)


def _steps_of_tokens(target: Target, setting: str) -> object:
    """Trajectories of one row or more, whose tokens an estimator of tokens is given."""
    columns = {"reward": torch.ones(2), "group": torch.zeros(2).long(), "mask": torch.ones(2, 3).bool()}
    rollout = target.call(f"{SIGNAL}.rollout.Rollout", **columns, **ENDS[setting])
    estimator = target.find(f"{SIGNAL}.advantage.reinforce_plus_plus.advantages")
    by = target.call(f"{SIGNAL}.path.Choices", estimator=partial(estimator, discount=1.0, epsilon=0.0))
    return target.call(f"{SIGNAL}.path.loss_ready", rollout, by=by)


def _alike(target: Target, setting: str) -> None:
    """Two ways of dividing, which must be equal, or not.

    Raises:
        ValueError: if they are not, equal ones hash apart, or the answer is neither yes nor no.
    """
    first, other = (
        target.call(f"{SIGNAL}.reduce.Aggregation", *about) if isinstance(about, tuple) else about
        for about in _BESIDE[setting]
    )
    if (first == other) is not True or hash(first) != hash(other):
        raise ValueError(f"{first} is not {other}")


def _wanted(target: Target, setting: str) -> object:
    """Rows without log-probs, critic or parts, and an estimator or weight that wants what is not there."""
    columns = {"reward": torch.ones(2), "group": torch.zeros(2).long(), "mask": torch.ones(2, 3).bool()}
    names = {"estimator": "advantage.rloo.advantages"} | dict(_WANTED[setting])
    lacking = str(names.pop("lacking", ""))
    choices = {n: target.find(f"{SIGNAL}.{name}") for n, name in names.items()}
    choices |= {n: (f,) for n, f in choices.items() if n == "rejections"}
    by = target.call(f"{SIGNAL}.path.Choices", **choices)
    asked = partial(
        target.call, f"{SIGNAL}.path.loss_ready", target.call(f"{SIGNAL}.rollout.Rollout", **columns), by=by
    )
    return by_name(asked, lacking) if lacking else asked()


def _of(path: str, call: Callable[[str], object], calls: Mapping[str, object]) -> Iterator[Boundary]:
    return of_words(path, call, calls, sound=[name for name in calls if name.startswith("sound")])


def _called(target: Target, path: str, plain: Mapping[str, Any], calls: Calls, setting: str) -> object:
    asked = partial(target.call, path, **{**plain, **calls[setting]})
    return asked() if setting.startswith("sound") else by_name(asked, *calls[setting])


def _told(target: Target, setting: str) -> list[object]:
    step = f"{SIGNAL}.merging.Step"
    turns = [{**TURN, "trajectory": name, "last": last} for name, last in ORDERS[setting]]
    return [target.call(step, **turn) for turn in turns]
