"""Calls that are refused by value: numbers outside their range, and columns or choices that exclude each other."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
import torch
from jaxtyping import Bool
from sound_arguments import PUBLIC, arguments
from torch import Tensor

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.advantage import gae, reinforce_plus_plus, reinforce_plus_plus_baseline, remax, rloo
from rl_sentinel.signal.align import response_aligned
from rl_sentinel.signal.choices import Choices
from rl_sentinel.signal.controller import Adaptive, Fixed
from rl_sentinel.signal.correction import rejection, weights
from rl_sentinel.signal.kl import k1
from rl_sentinel.signal.merging import merge
from rl_sentinel.signal.minibatches import aggregation
from rl_sentinel.signal.normalization import Normalization
from rl_sentinel.signal.path import loss_ready
from rl_sentinel.signal.ready import Ready
from rl_sentinel.signal.reduce import Aggregation, aggregate
from rl_sentinel.signal.rollout import Rollout, laid_out
from rl_sentinel.signal.segments import Segments, padded
from rl_sentinel.signal.steps import last_steps
from rl_sentinel.signal.trajectory_step import Step

NAN, INF = torch.nan, torch.inf

#: Parameter -> values outside its range, and values at its edge.
RANGES: Mapping[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "epsilon": ((-1e-6, NAN), (0.0,)),
    "ceiling": ((0.5, 1.0), (1.01,)),
    "temperature": ((-1.0, 0.0), (0.01,)),
    "negative_temperature": ((-1.0, 0.0), (0.01,)),
    "discount": ((-0.5, 1.5), (0.0, 1.0)),
    "decay": ((-0.5, 1.5), (0.0, 1.0)),
    "scale": ((-1.0, 0.0), (0.01,)),
    "least": ((NAN,), (1.0,)),
    "most": ((-1.5, NAN), (INF,)),
    "buffer": ((-1, 0, 6), (1, 5)),
    "factor": ((-1.0,), (0.0,)),
    "coefficient": ((-1.0, NAN), (0.0,)),
    "low": ((NAN,), (0.0,)),
    "high": ((-9.5, NAN), (0.2,)),
    "floor": ((0.0, 1.5), (0.01, 1.0)),
    "threshold": ((-0.5,), (0.0,)),
    "value_clip": ((-0.5, 0.0), (0.01,)),
    "clip_low": ((-0.5, NAN, INF), (0.0, 1e4)),
    "clip_high": ((-0.5, NAN, INF), (0.0, 1e4)),
    "penalty": ((-0.5, NAN), (0.0,)),
    "limit": ((0,), (3,)),
    "share": ((0.0, 1.5), (0.01, 1.0)),
    "prompts": ((0, 1.5), (9,)),
    "width": ((-1, 2.5), (3,)),
    "current": ((-1, 2.5), (9,)),
    "denominator": ((0.0, -1.0), (0.5,)),
}

#: Function and parameter with another range.
OTHERWISE: Mapping[tuple[str, str], tuple[tuple[float, ...], tuple[float, ...]]] = {
    ("staleness.fresh_rows", "most"): ((-1.0, NAN), (0.0, INF)),
    ("covariance.drawn_between", "low"): ((NAN, 9.0), (-INF,)),
    ("covariance.drawn_between", "high"): ((NAN,), (INF,)),
}


def _ranged() -> list[Any]:
    return [
        pytest.param(name, n, OTHERWISE.get((name, n), RANGES[n]), id=f"{name} {n}")
        for name in PUBLIC
        for n in arguments(name)
        if n in RANGES
    ]


@pytest.mark.parametrize(("name", "parameter", "values"), _ranged())
def test_numbers(name: str, parameter: str, values: tuple[tuple[float, ...], tuple[float, ...]]) -> None:
    outside, inside = values
    for number in inside:
        PUBLIC[name](**arguments(name) | {parameter: number})
    for number in outside:
        with pytest.raises(InputError, match=rf"\b{parameter}\b.*, expected "):
            PUBLIC[name](**arguments(name) | {parameter: number})


ONES, FACTS, IDS = torch.ones(2), torch.ones(2).bool(), torch.arange(2)
WIDE, MASK = torch.ones(2, 3), torch.ones(2, 3).bool()

STEP: Mapping[str, Any] = {
    "trajectory": "one",
    "prompt": (1,),
    "response": (2, 3),
    "trained": (True, True),
    "token_reward": (0.0, 1.0),
    "logprob": (-1.0, -2.0),
    "last": True,
}
READY: Mapping[str, Any] = {
    "live": FACTS,
    "kept": FACTS,
    "mask": MASK,
    "group": IDS,
    "reward": ONES,
    "advantage": ONES,
    "outcome": True,
}
ROLLOUT: Mapping[str, Any] = {
    **dict.fromkeys(("reward", "reward_baseline"), ONES),
    **dict.fromkeys(("group", "trajectory"), IDS),
    **dict.fromkeys(("scored", "last"), FACTS),
    **dict.fromkeys(("token_reward", "old_logprob", "rollout_logprob", "ref_logprob", "pi_squared", "value"), WIDE),
    "mask": MASK,
    "version": WIDE.long(),
    "reward_parts": torch.ones(2, 2),
}
LAID: Mapping[str, Any] = {
    "steps": [Step(**STEP)],
    "reward": {"one": 1.0},
    "group": {"one": 3},
    "scored": {"one": True},
    "merged": True,
    "padding": 0,
}
CONTROL = {"coefficient": 0.1, "target": 0.137, "horizon": 50.0}
TRAJECTORIES = {
    "estimator": rloo.advantages,
    "reward": torch.tensor([0.0, 1.0, 0.0]),
    "group": torch.tensor([1, 1, 1]),
    "live": torch.ones(3).bool(),
    "trajectory": torch.tensor([4, 4, 2]),
    "last": torch.tensor([False, True, True]),
}


def _outcome(reward: Tensor, group: Tensor, live: Tensor) -> Tensor:
    return torch.where(live, reward, group)


def _compared(logprob: Tensor, _other: Tensor, *, mask: Tensor) -> Tensor:
    return torch.where(mask, logprob, 0.0)


def _bounded(weight: Tensor, *, mask: Tensor) -> Tensor:
    return torch.where(mask, weight, 0.0)


def _merged(*turns: tuple[str, bool]) -> Callable[[], object]:
    return lambda: merge([Step(**{**STEP, "trajectory": name, "last": last}) for name, last in turns])


def _path(lacking: str, **choices: Any) -> Callable[[], object]:
    known = {"reward": ONES, "group": IDS, "mask": MASK} | dict.fromkeys(("old_logprob", "rollout_logprob"), WIDE)
    known = {n: c for n, c in known.items() if n != lacking}
    by = {"estimator": rloo.advantages, **choices}
    return lambda: loss_ready(Rollout(**known), by=Choices(**by))


def _of_tokens(**steps: Any) -> Callable[[], object]:
    """Trajectories of several rows before an estimator of tokens."""
    estimator = partial(reinforce_plus_plus.advantages, discount=1.0, epsilon=0.0)
    return lambda: loss_ready(Rollout(reward=ONES, group=IDS * 0, mask=MASK, **steps), by=Choices(estimator=estimator))


def _decided(decision: Callable[..., Any]) -> Callable[[], object]:
    """A rejection beside two rows of one packed token each, so that no shape tells rows from tokens."""
    mask = Segments(FACTS, torch.tensor([1, 1]))
    known: dict[str, Any] = {"reward": ONES, "group": IDS * 0, "mask": mask}
    known |= dict.fromkeys(("old_logprob", "rollout_logprob"), torch.zeros(2))
    return lambda: loss_ready(Rollout(**known), by=Choices(estimator=rloo.advantages, rejections=(decision,)))


def _per_token(_old: Tensor, _rollout: Tensor, *, mask: Segments) -> Bool[Tensor, "*S"]:
    return mask.mask


def _per_row(_old: Tensor, _rollout: Tensor, *, mask: Segments) -> Bool[Tensor, " B"]:
    return mask.length > 0


def _per_group(_old: Tensor, _rollout: Tensor, *, mask: Segments) -> Bool[Tensor, " G"]:
    return mask.mask


def _aggregated(mode: Any, tokens: Tensor | None) -> Callable[[], object]:
    return lambda: aggregate(torch.ones(2, 2), mask=torch.ones(2, 2).bool(), aggregation=Aggregation(mode, 1.0, tokens))


def _placed(prompt: int, length: int, width: int, *, next_token: bool) -> Callable[[], object]:
    lengths = {"prompt_length": torch.tensor([1, prompt]), "length": torch.tensor([1, length])}
    return lambda: response_aligned(torch.zeros(2, 4), **lengths, width=width, predicts_next=next_token)


def _with(function: Callable[..., Any], plain: Mapping[str, Any], **changed: Any) -> Callable[[], object]:
    return lambda: function(**{**plain, **changed})


def _named(name: str, **changed: Any) -> Callable[[], object]:
    return lambda: PUBLIC[name](**{**arguments(name), **changed})


TWO = torch.tensor([True, False])
PATH: dict[str, Any] = {"estimator": _outcome}
NORMALIZED = {"mean": "group", "deviation": "batch", "leave_one_out": False, "biased": False, "epsilon": 0.0}

#: Calls that look odd and are valid.
TAKEN: Mapping[str, Callable[[], object]] = {
    "one step of one trajectory": _merged(("one", True)),
    "steps of two trajectories": _merged(("one", False), ("one", True), ("two", True)),
    "advantages of tokens": _with(Ready, READY, advantage=WIDE, outcome=False),
    "everything the path may return": _with(Ready, READY, kl=WIDE, weight=WIDE, returns=WIDE),
    "a rollout of what is required": _with(Rollout, {n: ROLLOUT[n] for n in ("reward", "group", "mask")}),
    "steps laid out apart, with a padding below 0": _with(laid_out, LAID, merged=False, padding=-100),
    "a kl and its price": _with(Choices, PATH, kl=_compared, kl_coefficient=0.1),
    "a kl for the log": _with(Choices, PATH, kl=_compared),
    "a weight and its bound": _with(Choices, PATH, weight=_compared, bounds=(_bounded,)),
    "a rejection": _with(Choices, PATH, rejections=(_compared,)),
    "rewards clipped on one side": _with(Choices, PATH, least=0.0),
    "trajectories of one row each": _of_tokens(trajectory=IDS, last=FACTS),
    "a packed decision per token": _decided(_per_token),
    "a packed decision per row": _decided(_per_row),
    "more tokens of prompts in other parts": _aggregated("prompt-mean", torch.tensor([9, 4])),
    "a length of one token": _named("minibatches.aggregation", mode="token-sum", length=1),
    "a turn that falls where nothing trains": _named(
        "advantage.turn_level_gae.turn_values", turn=torch.tensor([[4, 4, 3], [1, 1, 2]])
    ),
    "a token outside of the vocabulary that is not wanted": _named(
        "logprob.logprobs", token=torch.tensor([[0, 1, 9], [0, 0, 0]])
    ),
    "a later version where nothing trains": _named("staleness.staleness", version=torch.tensor([[0, 1, 9], [0, 0, 0]])),
    "no reward where nothing is scored": _named("reward.suppressed", reward=torch.tensor([1.0, NAN]), scored=TWO),
    "a response at the end": _placed(3, 1, 2, next_token=False),
    "a response of no token at the end": _placed(4, 0, 2, next_token=False),
    "a response from the start, predicted": _placed(1, 2, 2, next_token=True),
    "padding of nothing": lambda: padded(torch.ones(0), length=torch.ones(0).long(), width=0, fill=0.0),
    "a negative kl": lambda: Adaptive(**CONTROL).after(-0.5, samples=8),
    "nothing observed": lambda: Adaptive(**CONTROL).after(0.1, samples=0),
    "all but too many samples": lambda: Adaptive(**CONTROL).after(0.1, samples=249),
}

#: What is wrong -> the parameter that the refusal names, and the call.
REFUSED: Mapping[str, tuple[str, Callable[[], object]]] = {
    "a mask short of its response": ("trained", _with(Step, STEP, trained=(True,))),
    "a reward short of its response": ("token_reward", _with(Step, STEP, token_reward=(1.0,))),
    "a trajectory in two pieces": ("trajectory", _merged(("one", True), ("two", True), ("one", True))),
    "two last steps, none elsewhere": (
        "last",
        lambda: last_steps(trajectory=torch.tensor([4, 4, 2]), last=torch.tensor([True, True, False])),
    ),
    "no steps": ("steps", _with(laid_out, LAID, steps=())),
    **{
        f"{n} of another trajectory": (n, _with(laid_out, LAID, **{n: {"two": LAID[n]["one"]}}))
        for n in ("reward", "group", "scored")
    },
    "a group between two": ("group", _with(laid_out, LAID, group={"one": 0.5})),
    "a score that is a number": ("scored", _with(laid_out, LAID, scored={"one": 1})),
    "advantages of tokens where rows are declared": ("advantage", _with(Ready, READY, advantage=WIDE)),
    "advantages of rows where tokens are declared": ("advantage", _with(Ready, READY, outcome=False)),
    "a mask of another number of rows": ("mask", _with(Ready, READY, mask=torch.ones(3, 3).bool())),
    "a kl of rows": ("kl", _with(Ready, READY, kl=ONES)),
    "weights of too few tokens": ("weight", _with(Ready, READY, weight=torch.ones(2, 2))),
    "returns that are bools": ("returns", _with(Ready, READY, returns=MASK)),
    "steps without an end": ("last", _with(Rollout, ROLLOUT, last=None)),
    "ends without trajectories": ("trajectory", _with(Rollout, ROLLOUT, trajectory=None)),
    **{
        f"{n} with one row more": (n, _with(Rollout, ROLLOUT, **{n: torch.cat([c, c[:1]])}))
        for n, c in ROLLOUT.items()
        if n != "reward"
    },
    **{f"{n} with one axis more": (n, _with(Rollout, ROLLOUT, **{n: c.unsqueeze(1)})) for n, c in ROLLOUT.items()},
    **{
        f"{n} of another dtype": (
            n,
            _with(Rollout, ROLLOUT, **{n: c.long() if c.is_floating_point() else c.float()}),
        )
        for n, c in ROLLOUT.items()
    },
    "a rejection alone": ("rejections", _with(Choices, PATH, rejections=_compared)),
    "a bound alone": ("bounds", _with(Choices, PATH, weight=_compared, bounds=_bounded)),
    "a weight of one column": ("weight", _with(Choices, PATH, weight=_bounded)),
    "an estimator without names": ("estimator", _with(Choices, PATH, estimator=abs)),
    "a step before the last, of tokens": (
        "last",
        _of_tokens(trajectory=IDS * 0, last=torch.tensor([False, True])),
    ),
    "a number without a value": ("epsilon", _path("", estimator=reinforce_plus_plus_baseline.advantages)),
    "no greedy response": ("reward_baseline", _path("", estimator=remax.advantages)),
    "no critic": ("value", _path("", estimator=partial(gae.advantages, discount=0.9, decay=0.5))),
    "a kl without a reference": ("ref_logprob", _path("", kl=k1)),
    "a weight without a sampler": ("rollout_logprob", _path("rollout_logprob", weight=weights.token_weights)),
    "a veto without the policy before": (
        "old_logprob",
        _path("old_logprob", rejections=(partial(rejection.vetoed, floor=0.3),)),
    ),
    "a packed decision of an unknown axis": ("annotation", _decided(_per_group)),
    "tokens of prompts in two axes": ("prompt_tokens", _aggregated("prompt-mean", torch.tensor([[4, 4]]))),
    "a turn that falls": (
        "turn",
        _named("advantage.turn_level_gae.turn_values", turn=torch.tensor([[4, 4, 4], [2, 1, 1]])),
    ),
    "a token below 0": ("token", _named("logprob.logprobs", token=torch.full((2, 3), -1))),
    "a version after the current one": ("version", _named("staleness.staleness", current=0)),
    "no reward where it counts": ("reward", _named("reward.suppressed", reward=torch.tensor([NAN, 1.0]), scored=TWO)),
    "a length below 0": ("length", _named("reward.overlong_penalty", length=torch.tensor([9, -1]))),
    "a part without a weight": ("weight", _named("advantage.gdpo.advantages", weight=torch.ones(1))),
    "past its sequence by one token": ("response", _placed(4, 1, 2, next_token=False)),
    "wider than the result": ("response", _placed(1, 2, 1, next_token=False)),
    "an unknown mean": ("mean", _with(Normalization, NORMALIZED, mean="row")),
    "an unknown deviation": ("deviation", _with(Normalization, NORMALIZED, deviation="row")),
    "one left out of no mean": ("leave_one_out", _with(Normalization, NORMALIZED, mean="none", leave_one_out=True)),
    "an epsilon below 0": ("epsilon", _with(Normalization, NORMALIZED, epsilon=-1e-6)),
    "a flag that is a number": ("biased", _with(Normalization, NORMALIZED, biased=1)),
    "a fixed coefficient below 0": ("coefficient", lambda: Fixed(-0.1)),
    "a fixed coefficient that observes nan": ("observed", lambda: Fixed(0.1).after(NAN, samples=8)),
    **{f"{n} nan": (n, _with(Adaptive, CONTROL, **{n: NAN})) for n in CONTROL},
    **{f"{n} too small": (n, _with(Adaptive, CONTROL, **{n: -0.1})) for n in CONTROL},
    "an infinite kl": ("observed", lambda: Adaptive(**CONTROL).after(INF, samples=8)),
    "fewer than no samples": ("samples", lambda: Adaptive(**CONTROL).after(0.1, samples=-1)),
    "samples beyond the horizon": ("samples", lambda: Adaptive(**CONTROL).after(0.1, samples=250)),
    "an unknown mode": ("mode", lambda: aggregation("row-mean", mask=MASK)),  # type: ignore[arg-type]  # refused here
}


@pytest.mark.parametrize("what", TAKEN)
def test_what_looks_odd_and_is_valid(what: str) -> None:
    TAKEN[what]()


@pytest.mark.parametrize("what", REFUSED)
def test_contradictions(what: str) -> None:
    parameter, call = REFUSED[what]
    with pytest.raises(InputError, match=rf"\b{parameter}\b") as refused:
        call()
    assert ", expected " in str(refused.value)
    assert "\n" not in str(refused.value)
