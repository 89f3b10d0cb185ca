"""Whatever is given to a public function, of any kind: it is taken, or refused in one line, never torch's own error."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from sound_arguments import MASK, PUBLIC, ROW, WIDE, arguments
from torch import Tensor

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal import kl, segments
from rl_sentinel.signal.advantage import grpo
from rl_sentinel.signal.choices import Choices, is_outcome
from rl_sentinel.signal.controller import Adaptive, Fixed
from rl_sentinel.signal.correction import bounds, rejection, weights
from rl_sentinel.signal.merging import counts, merge
from rl_sentinel.signal.normalization import Normalization
from rl_sentinel.signal.path import loss_ready
from rl_sentinel.signal.ready import Ready, prompts_apart, trusted
from rl_sentinel.signal.reduce import Aggregation
from rl_sentinel.signal.rollout import Rollout, laid_out
from rl_sentinel.signal.segments import Segments
from rl_sentinel.signal.steps import over_trajectories
from rl_sentinel.signal.trajectory_step import Step

Refusing = tuple[Callable[..., Any], dict[str, Any]]

#: One of every kind that Python, NumPy and torch have; none is right everywhere, many are right nowhere.
STRANGE: dict[str, Any] = {
    "None": None,
    "a list": [1.0],
    "a nested list": [[True, True, False], [True, True, True]],
    "a word": "x",
    "bytes": b"x",
    "a half": 2.5,
    "a whole number": 2,
    "a negative number": -7,
    "a bool": True,
    "nan": torch.nan,
    "infinity": torch.inf,
    "a number too large for any type": 10**400,
    "a complex number": 1j,
    "a tensor without axes": torch.tensor(0.3),
    "a whole number in a tensor": torch.tensor(2),
    "a row": torch.tensor([0.1, 0.2, 0.3]),
    "labels": torch.tensor([1, 2]),
    "facts": torch.tensor([True, False]),
    "a column": torch.ones(2, 3),
    "nothing": torch.zeros(0),
    "no rows": torch.zeros(0, 3),
    "no tokens": torch.zeros(2, 0),
    "a complex column": torch.ones(2, 3, dtype=torch.cfloat),
    "an array": np.ones((2, 3)),
    "a number of NumPy": np.float32(0.5),
    "a dict": {},
    "a set": {1},
    "a tuple": (1, 2),
    "an object": object(),
    "a class": int,
    "a function": lambda *_, **__: None,
    "segments": Segments(torch.ones(5).bool(), torch.tensor([2, 3])),
}

PACKED = Segments(torch.ones(3).bool(), torch.tensor([1, 2]))
LENGTH = torch.tensor([1, 2])
STEP = Step("a", (1,), (2, 3), (True, True), (0.0, 0.5), (-1.0, -1.0), last=True)
OUTCOME = partial(grpo.advantages, standardize=False, epsilon=0.0)
ROLLOUT: dict[str, Any] = {
    "reward": ROW,
    "group": torch.tensor([7, 7]),
    "mask": MASK,
    "old_logprob": WIDE,
    "rollout_logprob": WIDE,
    "ref_logprob": WIDE,
}
READY = loss_ready(Rollout(**ROLLOUT), by=Choices(estimator=OUTCOME))
PROMPTS = Aggregation("prompt-mean", 2.0, torch.tensor([2, 3]))


def _ready(**choices: Any) -> Any:
    return loss_ready(Rollout(**ROLLOUT), by=Choices(**{"estimator": OUTCOME, **choices}))


def _given(choice: str) -> Callable[[Any], Any]:
    """A path in which a function of one's own, of that choice, hands back something."""

    def called(gives: Any) -> Any:
        def correction(_a: Tensor, _b: Tensor, *, mask: Tensor) -> Any:
            return gives

        def bound(_weight: Tensor, *, mask: Tensor) -> Any:
            return gives

        def outcome(reward: Tensor, group: Tensor, live: Tensor) -> Any:
            return gives

        def temporal(token_reward: Tensor, mask: Tensor) -> Any:
            return gives

        own: dict[str, dict[str, Any]] = {
            "rejection": {"rejections": (correction,)},
            "weight": {"weight": correction},
            "bound": {"weight": weights.token_weights, "bounds": (bound,)},
            "kl": {"kl": correction, "kl_coefficient": 0.1},
            "outcome estimator": {"estimator": outcome},
            "temporal estimator": {"estimator": temporal},
        }
        return _ready(**own[choice])

    return called


def _of_trajectories(gives: Any) -> Tensor:
    whole = {"group": LENGTH, "live": ROW > 0, "trajectory": LENGTH, "last": ROW > 0}
    return over_trajectories(lambda *_, **__: gives, ROW, **whole)


#: Records, and functions of records and of masks, with sound arguments.
MORE: dict[str, Refusing] = {
    "packed": (segments.packed, {"values": WIDE, "length": LENGTH}),
    "padded": (segments.padded, {"values": torch.ones(3), "length": LENGTH, "width": 3, "fill": 0.0}),
    "narrowed": (segments.narrowed, {"mask": MASK, "kept": ROW > 0, "of_rows": True}),
    "narrowed, packed": (segments.narrowed, {"mask": PACKED, "kept": ROW > 0, "of_rows": True}),
    "rows_taken": (segments.rows_taken, {"mask": MASK, "rows": torch.tensor([0])}),
    "turns": (segments.turns, {"mask": MASK}),
    "lengths": (segments.lengths, {"length": LENGTH}),
    "Segments": (Segments, {"mask": torch.ones(3).bool(), "length": LENGTH}),
    "is_outcome": (is_outcome, {"estimator": OUTCOME}),
    "loss_ready": (loss_ready, {"rollout": Rollout(**ROLLOUT), "by": Choices(estimator=OUTCOME)}),
    "prompts_apart": (prompts_apart, {"ready": READY, "prompts": 1, "generator": None}),
    "trusted": (
        trusted,
        {"ready": READY, "logprob": WIDE, "old_logprob": WIDE, "threshold": 0.1, "denominator": 2.0},
    ),
    "laid_out": (
        laid_out,
        {
            "steps": [STEP],
            "reward": {"a": 1.0},
            "group": {"a": 1},
            "scored": {"a": True},
            "merged": True,
            "padding": 0,
        },
    ),
    "merge": (merge, {"steps": [STEP]}),
    "counts": (counts, {"before": [STEP], "after": [STEP]}),
    "Ready": (Ready, {n: getattr(READY, n) for n in Ready.__slots__}),
    "Step": (Step, {n: getattr(STEP, n) for n in Step.__slots__}),
    "Rollout": (
        Rollout,
        {
            **ROLLOUT,
            **dict.fromkeys(("token_reward", "value", "pi_squared"), WIDE),
            **dict.fromkeys(("version", "turn"), torch.zeros(2, 3).long()),
            "scored": ROW > 0,
            "trajectory": LENGTH,
            "last": ROW > 0,
            "reward_baseline": ROW,
            "reward_parts": torch.ones(2, 2),
        },
    ),
    "Aggregation": (Aggregation, {n: getattr(PROMPTS, n) for n in Aggregation.__slots__}),
    "of_rows": (PROMPTS.of_rows, {"rows": torch.tensor([0])}),
    "shares": (PROMPTS.shares, {"mask": MASK}),
    "Normalization": (
        Normalization,
        {"mean": "batch", "deviation": "none", "leave_one_out": False, "biased": False, "epsilon": 0.1},
    ),
    "Fixed": (Fixed, {"coefficient": 0.1}),
    "Fixed.after": (Fixed(0.1).after, {"observed": 0.1, "samples": 4}),
    "Adaptive": (Adaptive, {"coefficient": 0.1, "target": 1.0, "horizon": 100.0}),
    "Adaptive.after": (Adaptive(0.1, 1.0, 100.0).after, {"observed": 0.1, "samples": 4}),
    "Choices": (
        _ready,
        {
            "estimator": OUTCOME,
            "rejections": (partial(rejection.tokens_kept, estimator="k1", low=-1.0, high=1.0),),
            "weight": weights.token_weights,
            "bounds": (partial(bounds.truncated, high=2.0),),
            "bias": 0.0,
            "scale": 1.0,
            "least": -9.0,
            "most": 9.0,
            "normalization": None,
            "kl": kl.k1,
            "kl_coefficient": 0.1,
        },
    ),
    "what a rejection gives": (_given("rejection"), {"gives": MASK}),
    **{
        f"what a {n} gives": (_given(n), {"gives": WIDE.exp()}) for n in ("weight", "bound", "kl", "temporal estimator")
    },
    "what an outcome estimator gives": (_given("outcome estimator"), {"gives": ROW}),
    "what an estimator of trajectories gives": (_of_trajectories, {"gives": ROW}),
}


def _refusal(call: Callable[..., Any], given: dict[str, Any], what: str) -> str:
    try:
        call(**given)
    except InputError as told:
        return str(told)
    except Exception as raw:  # noqa: BLE001 - whatever it is, it is not ours
        pytest.fail(f"{what}: {type(raw).__name__}: {raw}")
    return ""


def _judge(call: Callable[..., Any], sound: dict[str, Any]) -> dict[str, int]:
    """Each strange thing in the place of each argument; how many were refused in the place of each."""
    call(**sound)
    refused = dict.fromkeys(sound, 0)
    for name in sound:
        for what, strange in STRANGE.items():
            told = _refusal(call, {**sound, name: strange}, f"{name} is {what}")
            refused[name] += bool(told)
            assert "\n" not in told, (name, what)
            assert not told or ", expected " in told, (name, what, told)
    return refused


@pytest.mark.parametrize("name", PUBLIC)
def test_any_kind_is_taken_or_refused(name: str) -> None:
    refused = _judge(PUBLIC[name], arguments(name))
    unread = {"length", "group"} if name == "minibatches.aggregation" else set()
    assert {n for n, count in refused.items() if count < len(STRANGE) // 2} <= unread, refused


@pytest.mark.parametrize("name", MORE)
def test_any_kind_is_taken_or_refused_by_records(name: str) -> None:
    _judge(*MORE[name])


def test_what_a_function_of_ones_own_gives() -> None:
    with pytest.raises(
        InputError, match=r"^test_wrong_kinds\..*correction returned None, expected a tensor: return one$"
    ):
        _given("rejection")(None)
