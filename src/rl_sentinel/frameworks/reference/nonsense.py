"""What functions refuse of columns that exclude each other: steps without an end, shapes that disagree, words."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.frameworks.reference.arguments import SIGNAL
from rl_sentinel.frameworks.reference.refusals import by_name, of_words
from rl_sentinel.frameworks.target import Target

#: Way of calling -> what of a sound call is given instead.
Calls = Mapping[str, Mapping[str, Any]]

_SOUND: Mapping[str, Any] = {}

#: A sound turn, of two tokens.
_TURN: Mapping[str, Any] = {
    "trajectory": "one",
    "prompt": (1,),
    "response": (2, 3),
    "trained": (True, True),
    "token_reward": (0.0, 1.0),
    "logprob": (-1.0, -2.0),
    "last": True,
}

_TURNS: Calls = {
    "sound": _SOUND,
    "a mask short of its response": {"trained": (True,)},
    "a reward short of its response": {"token_reward": (1.0,)},
    "log-probs short of their response": {"logprob": (-1.0,)},
}

#: Way of calling -> trajectory and end mark of each turn.
_ORDERS: Mapping[str, list[tuple[str, bool]]] = {
    "sound": [("one", False), ("one", True), ("two", True)],
    "sound, of one turn": [("one", True)],
    "no end": [("one", False), ("one", False)],
    "no end before another": [("one", False), ("two", True)],
    "an end before the last": [("one", True), ("one", True)],
    "two pieces": [("one", True), ("two", True), ("one", True)],
}

_STEPS: Calls = {
    "sound": _SOUND,
    "no last step": {"last": torch.tensor([False, False, True])},
    "two last steps": {"last": torch.tensor([True, True, True])},
    "two last steps, and none elsewhere": {"last": torch.tensor([True, True, False])},
    "two prompts": {"group": torch.tensor([0, 1, 1])},
}

_LENGTHS: Calls = {
    "sound": _SOUND,
    "sound, of one token": {"mode": "token-sum", "length": 1},
    "no length": {"mode": "token-sum", "length": None},
    "a length of none": {"length": 4},
    "a length below 1": {"mode": "token-sum", "length": 0},
    "sound, of prompts": {"mode": "prompt-mean", "group": torch.tensor([4])},
    "no prompts": {"mode": "prompt-mean", "group": None},
    "a prompt too many": {"mode": "prompt-mean", "group": torch.tensor([4, 4])},
}

#: Trained tokens of prompts, beside two rows of two.
_OF_PROMPTS: Calls = {
    "sound": _SOUND,
    "sound, more in other parts": {"prompt_tokens": torch.tensor([9, 4])},
    "sound, of rows alone": {"mode": "token-mean", "prompt_tokens": None},
    "no tokens of prompts": {"prompt_tokens": None},
    "tokens of prompts with another mode": {"mode": "token-mean"},
    "tokens of other rows": {"prompt_tokens": torch.tensor([4])},
    "fewer tokens than a row has": {"prompt_tokens": torch.tensor([1, 2])},
    "tokens of prompts in two axes": {"prompt_tokens": torch.tensor([[4, 4]])},
    "tokens of prompts that are no counts": {"prompt_tokens": torch.tensor([4.0, 4.0])},
}

#: Values of two rows of two tokens.
_VALUED: Mapping[str, Any] = {
    "value": torch.ones(2, 2),
    "mask": torch.ones(2, 2).bool(),
    "turn": torch.tensor([[4, 4], [1, 2]]),
}

_IN_TURN: Calls = {
    "sound": _SOUND,
    "sound, fallen where nothing is trained": {
        "turn": torch.tensor([[4, 3], [1, 2]]),
        "mask": torch.tensor([[True, False], [True, True]]),
    },
    "a turn that falls": {"turn": torch.tensor([[4, 4], [2, 1]])},
}

_LOGITS: Calls = {
    "sound": _SOUND,
    "sound, nothing wanted": {"token": torch.tensor([[0, 3]]), "mask": torch.tensor([[True, False]])},
    "a token beyond the vocabulary": {"token": torch.tensor([[0, 3]])},
    "a token before it": {"token": torch.tensor([[0, -1]])},
    "a token too few": {"token": torch.tensor([[0]])},
    "a mask too short": {"mask": torch.tensor([[True]])},
    "no vocabulary": {"logits": torch.zeros(1, 2, 0)},
    "a row of logits too few": {"logits": torch.zeros(1, 1, 3)},
}

_SHARES: Calls = {
    "sound": _SOUND,
    "sound, of all": {"share": 1.0},
    "share 0": {"share": 0.0},
    "share above 1": {"share": 1.5},
}

_BOUNDS: Calls = {**_SHARES, "bounds equal": {"low": 3.0}, "bounds exchanged": {"low": 4.0}}

_PROMPTS: Calls = {"sound": _SOUND, "no prompts": {"prompts": 0}}

_SIZES: Mapping[str, Any] = {"mask": torch.ones(1, 2).bool()}

_PADDED: Calls = {
    "sound": _SOUND,
    "sound, wider than the longest row": {"width": 5},
    "sound, nothing": {"values": torch.ones(0), "length": torch.ones(0).long(), "width": 0},
    "a row longer than the width": {"width": 1},
    "a token too many": {"length": torch.tensor([1, 1])},
}

_SEGMENTS: Calls = {
    "sound": _SOUND,
    "sound, a row of nothing": {"length": torch.tensor([3, 0])},
    "a mask of numbers": {"mask": torch.ones(3)},
    "a mask of padded rows": {"mask": torch.ones(1, 3).bool(), "length": torch.tensor([1])},
    "lengths of numbers": {"length": torch.tensor([2.0, 1.0])},
    "lengths of facts": {"length": torch.ones(3).bool()},
    "lengths in two axes": {"length": torch.tensor([[2], [1]])},
    "a length below 0": {"length": torch.tensor([4, -1])},
    "a token too many": {"length": torch.tensor([1, 1])},
}

_APART, _ONE = torch.tensor([1, 2]), torch.tensor([1, 1])

_ENDS: Calls = {
    "sound": {"trajectory": _APART, "last": torch.tensor([True, True])},
    "sound, of rows": _SOUND,
    "a step before the last": {"trajectory": _ONE, "last": torch.tensor([False, True])},
    "ends of nothing": {"last": torch.tensor([True, True])},
    "steps without an end": {"trajectory": _ONE},
}

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
    "sound": _SOUND,
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

#: Columns of two rows of three tokens.
_ROWS, _TOKENS = torch.ones(2), torch.ones(2, 3)

_ROLLOUT: Mapping[str, torch.Tensor] = {
    **dict.fromkeys(("reward", "reward_baseline"), _ROWS),
    **dict.fromkeys(("group", "trajectory"), torch.arange(2)),
    **dict.fromkeys(("scored", "last"), _ROWS.bool()),
    **dict.fromkeys(("token_reward", "old_logprob", "rollout_logprob", "ref_logprob", "pi_squared", "value"), _TOKENS),
    "mask": _TOKENS.bool(),
    "version": _TOKENS.long(),
    "reward_parts": torch.ones(2, 2),
}

_ROLLOUTS: Calls = {
    "sound": _SOUND,
    "sound, what must be": {n: None for n in _ROLLOUT if n not in {"reward", "group", "mask"}},
    "steps without an end": {"last": None},
    "ends of nothing": {"trajectory": None},
    **{f"{n} of another kind": {n: c.float() if c.dtype != torch.float32 else c.long()} for n, c in _ROLLOUT.items()},
    **{f"{n} of a row more": {n: torch.cat([c, c[:1]])} for n, c in _ROLLOUT.items()},
    **{f"{n} of an axis more": {n: c.unsqueeze(1)} for n, c in _ROLLOUT.items()},
}

_CHOSEN: Calls = {
    "sound": _SOUND,
    "sound, a KL and its price": {"kl": abs, "kl_coefficient": 0.1},
    "sound, a KL for the log": {"kl": abs},
    "sound, a weight and its bound": {"weight": abs, "bounds": (abs,)},
    "a rejection alone": {"rejections": abs},
    "a bound alone": {"weight": abs, "bounds": abs},
    "a list of rejections": {"rejections": [abs]},
    "the price of no KL": {"kl_coefficient": 0.1},
    "a price below 0": {"kl": abs, "kl_coefficient": -0.1},
    "bounds of no weight": {"bounds": (abs,)},
}

#: Versions of one row, and how they may be compared.
_VERSIONS: Mapping[str, Any] = {"version": torch.tensor([[0, 0]]), "mask": torch.ones(1, 2).bool(), "current": 0}

_BEHIND: Calls = {
    "sound": _SOUND,
    "sound, of another version where nothing trains": {
        "version": torch.tensor([[0, 9]]),
        "mask": torch.tensor([[True, False]]),
    },
    "a version after the current one": {"version": torch.tensor([[0, 1]])},
    "a current version before the first": {"current": -1},
}

#: Function -> what it is called with, and how it may be called otherwise.
_CALLS: Mapping[str, tuple[Mapping[str, Any], Calls]] = {
    "merging.Step": (_TURN, _TURNS),
    "rollout.Rollout": (_ROLLOUT, _ROLLOUTS),
    "path.Choices": ({"estimator": abs}, _CHOSEN),
    "steps.last_steps": (
        {"trajectory": torch.tensor([4, 4, 2]), "last": torch.tensor([False, True, True])},
        {n: c for n, c in _STEPS.items() if "group" not in c},
    ),
    "minibatches.aggregation": ({"mode": "token-mean", "length": None, **_SIZES}, _LENGTHS),
    "advantage.turn_level_gae.turn_values": (_VALUED, _IN_TURN),
    "advantage.turn_level_gae.advantages": (
        {**_VALUED, "token_reward": torch.ones(2, 2), "discount": 0.9, "decay": 0.5},
        _IN_TURN,
    ),
    "minibatches.prompt_mean": (
        {"tokens": torch.tensor([2, 0]), "group": torch.tensor([7, 3])},
        {"sound": _SOUND, "fewer than no tokens": {"tokens": torch.tensor([2, -1])}},
    ),
    "minibatches.prompt_minibatches": ({"group": torch.tensor([7, 3]), "prompts": 1, "generator": None}, _PROMPTS),
    "covariance.largest": ({"covariance": torch.ones(1, 2), "share": 0.4, **_SIZES}, _SHARES),
    "covariance.drawn_between": (
        {"covariance": torch.ones(1, 2), "low": 0.0, "high": 3.0, "share": 0.4, "generator": None, **_SIZES},
        _BOUNDS,
    ),
    **{
        f"logprob.{name}": (
            {"logits": torch.zeros(1, 2, 3), "token": torch.tensor([[0, 2]]), "temperature": 1.0, **_SIZES},
            _LOGITS,
        )
        for name in ("logprobs", "logprobs_and_entropy")
    },
    "segments.padded": (
        {"values": torch.ones(3), "length": torch.tensor([2, 1]), "width": 2, "fill": 0.0},
        _PADDED,
    ),
    "segments.Segments": ({"mask": torch.ones(3).bool(), "length": torch.tensor([2, 1])}, _SEGMENTS),
    "staleness.staleness": (_VERSIONS, _BEHIND),
    "staleness.fresh_rows": ({**_VERSIONS, "most": 0.0}, {**_BEHIND, "fewer than no updates behind": {"most": -1.0}}),
    "reward.suppressed": (
        {"reward": torch.ones(2), "live": torch.ones(2).bool(), "scored": torch.tensor([True, False])},
        {
            "sound": _SOUND,
            "sound, no number where nothing is scored": {"reward": torch.tensor([1.0, torch.nan])},
            "sound, no number where nothing trains": {
                "reward": torch.tensor([torch.nan, 1.0]),
                "live": torch.tensor([False, True]),
            },
            "no number where it counts": {"reward": torch.tensor([torch.nan, 1.0])},
        },
    ),
    "reward.overlong_penalty": (
        {"length": torch.tensor([0, 9]), "limit": 5, "buffer": 3, "factor": 0.5},
        {"sound": _SOUND, "a length below 0": {"length": torch.tensor([9, -1])}},
    ),
    "advantage.maxrl.advantages": (
        {"reward": torch.tensor([0.0, 1.0]), "group": torch.zeros(2).long(), "live": torch.ones(2).bool()},
        {
            "sound": _SOUND,
            "sound, below 0 where nothing trains": {
                "reward": torch.tensor([-1.0, 1.0]),
                "live": torch.tensor([False, True]),
            },
            "a reward below 0": {"reward": torch.tensor([-0.5, 1.0])},
        },
    ),
    "advantage.gdpo.advantages": (
        {
            "reward_parts": torch.tensor([[0.0, 1.0], [1.0, 2.0]]),
            "group": torch.zeros(2).long(),
            "live": torch.ones(2).bool(),
            "weight": torch.ones(2),
            "epsilon": 0.0,
        },
        {
            "sound": _SOUND,
            "a weight too few": {"weight": torch.ones(1)},
            "a weight too many": {"weight": torch.ones(3)},
        },
    ),
}


def boundaries(target: Target) -> Iterator[Boundary]:
    """One for each function that holds its arguments to each other, and a setting for each call that it must judge."""
    for name, (plain, calls) in _CALLS.items():
        path = f"{SIGNAL}.{name}"
        yield from _of(path, partial(_called, target, path, plain, calls), calls)
    path = f"{SIGNAL}.reduce.aggregate"
    yield from _of(path, partial(_aggregated, target, path), _OF_PROMPTS)
    merge = f"{SIGNAL}.merging.merge"
    yield from _of(merge, lambda setting: target.call(merge, _told(target, setting)), _ORDERS)
    path = f"{SIGNAL}.path.loss_ready of tokens"
    yield from _of(path, partial(_steps_of_tokens, target), _ENDS)
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
    yield from _of(over, partial(_called, target, over, {"estimator": estimator, **columns}, _STEPS), _STEPS)


def _aggregated(target: Target, path: str, setting: str) -> object:
    told = {"mode": "prompt-mean", "denominator": 1.0, "prompt_tokens": torch.tensor([4, 4]), **_OF_PROMPTS[setting]}
    by = target.call(f"{SIGNAL}.reduce.Aggregation", **told)
    return target.call(path, torch.ones(2, 2), mask=torch.ones(2, 2).bool(), aggregation=by)


def _steps_of_tokens(target: Target, setting: str) -> object:
    """Trajectories of one row or more, whose tokens an estimator of tokens is given."""
    columns = {"reward": torch.ones(2), "group": torch.zeros(2).long(), "mask": torch.ones(2, 3).bool()}
    rollout = target.call(f"{SIGNAL}.rollout.Rollout", **columns, **_ENDS[setting])
    estimator = target.find(f"{SIGNAL}.advantage.reinforce_plus_plus.advantages")
    by = target.call(f"{SIGNAL}.path.Choices", estimator=partial(estimator, discount=1.0, epsilon=0.0))
    return target.call(f"{SIGNAL}.path.loss_ready", rollout, by=by)


def _alike(target: Target, setting: str) -> None:
    """Two ways of dividing, which must be equal, or not.

    Raises:
        ValueError: if they are not, or equal ones hash apart.
    """
    first, other = (
        target.call(f"{SIGNAL}.reduce.Aggregation", *about) if isinstance(about, tuple) else about
        for about in _BESIDE[setting]
    )
    if first != other or hash(first) != hash(other):
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
    turns = [{**_TURN, "trajectory": name, "last": last} for name, last in _ORDERS[setting]]
    return [target.call(step, **turn) for turn in turns]
