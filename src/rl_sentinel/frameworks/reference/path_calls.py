"""How the path, and records of it, are called: soundly, and with columns and choices that exclude each other."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.frameworks.reference.stored_calls import SOUND, Calls

#: What the path hands on, of two rows of three tokens.
READY: Mapping[str, Any] = {
    **{n: torch.ones(2).bool() for n in ("live", "kept")},
    "mask": torch.ones(2, 3).bool(),
    "group": torch.arange(2),
    "reward": torch.ones(2),
    "advantage": torch.ones(2),
    "outcome": True,
}

_HANDED_ON: Calls = {
    "sound": SOUND,
    "sound, of tokens": {"advantage": torch.ones(2, 3), "outcome": False},
    "sound, with all that is asked for": dict.fromkeys(("kl", "weight", "returns"), torch.ones(2, 3)),
    "advantages of tokens where rows are meant": {"advantage": torch.ones(2, 3)},
    "advantages of rows where tokens are meant": {"advantage": torch.ones(2), "outcome": False},
    "outcome a number": {"outcome": 1},
    "a mask of numbers": {"mask": torch.ones(2, 3)},
    "a mask of a row more": {"mask": torch.ones(3, 3).bool()},
    "rows that are kept of numbers": {"kept": torch.ones(2)},
    "a row too few": {"group": torch.arange(1)},
    "a KL of rows": {"kl": torch.ones(2)},
    "weights of tokens too few": {"weight": torch.ones(2, 2)},
    "returns of facts": {"returns": torch.ones(2, 3).bool()},
}

_OF_READY: Calls = {"sound": SOUND, "ready of nothing": {"ready": None}, "ready of rows": {"ready": torch.ones(2)}}

#: Function of what the path hands on -> what else it is called with.
OF_READY: Mapping[str, tuple[Mapping[str, Any], Calls]] = {
    "ready.prompts_apart": (
        {"prompts": 1, "generator": None},
        {
            **_OF_READY,
            "no prompts": {"prompts": 0},
            "prompts between two": {"prompts": 1.5},
            "generator 3": {"generator": 3},
        },
    ),
    "ready.trusted": (
        {"logprob": torch.zeros(2, 3), "old_logprob": torch.zeros(2, 3), "threshold": 0.1, "denominator": 2.0},
        {**_OF_READY, "threshold below 0": {"threshold": -0.1}, "denominator 0": {"denominator": 0.0}},
    ),
}

_APART, _ONE = torch.tensor([1, 2]), torch.tensor([1, 1])

ENDS: Calls = {
    "sound": {"trajectory": _APART, "last": torch.tensor([True, True])},
    "sound, of rows": SOUND,
    "a step before the last": {"trajectory": _ONE, "last": torch.tensor([False, True])},
    "ends of nothing": {"last": torch.tensor([True, True])},
    "steps without an end": {"trajectory": _ONE},
}

#: Columns of two rows of three tokens.
_ROWS, _TOKENS = torch.ones(2), torch.ones(2, 3)

_ROLLOUT: Mapping[str, Tensor] = {
    **dict.fromkeys(("reward", "reward_baseline"), _ROWS),
    **dict.fromkeys(("group", "trajectory"), torch.arange(2)),
    **dict.fromkeys(("scored", "last"), _ROWS.bool()),
    **dict.fromkeys(("token_reward", "old_logprob", "rollout_logprob", "ref_logprob", "pi_squared", "value"), _TOKENS),
    "mask": _TOKENS.bool(),
    "version": _TOKENS.long(),
    "reward_parts": torch.ones(2, 2),
}

_ROLLOUTS: Calls = {
    "sound": SOUND,
    "sound, what must be": {n: None for n in _ROLLOUT if n not in {"reward", "group", "mask"}},
    "steps without an end": {"last": None},
    "ends of nothing": {"trajectory": None},
    **{f"{n} of another kind": {n: c.float() if c.dtype != torch.float32 else c.long()} for n, c in _ROLLOUT.items()},
    **{f"{n} of a row more": {n: torch.cat([c, c[:1]])} for n, c in _ROLLOUT.items()},
    **{f"{n} of an axis more": {n: c.unsqueeze(1)} for n, c in _ROLLOUT.items()},
}


def _outcome(reward: Tensor, group: Tensor, live: Tensor) -> Tensor:
    """An estimator of one's own."""
    return torch.where(live, reward, group)


def _compared(logprob: Tensor, _other: Tensor, *, mask: Tensor) -> Tensor:
    """A KL, a weight or a rejection of one's own."""
    return torch.where(mask, logprob, 0.0)


def _held(weight: Tensor, *, mask: Tensor) -> Tensor:
    """A bound of one's own."""
    return torch.where(mask, weight, 0.0)


_CHOSEN: Calls = {
    "sound": SOUND,
    "sound, a KL and its price": {"kl": _compared, "kl_coefficient": 0.1},
    "sound, a KL for the log": {"kl": _compared},
    "sound, a weight and its bound": {"weight": _compared, "bounds": (_held,)},
    "sound, a rejection": {"rejections": (_compared,)},
    "sound, clipped on one side": {"least": 0.0},
    "a rejection alone": {"rejections": _compared},
    "a bound alone": {"weight": _compared, "bounds": _held},
    "a list of rejections": {"rejections": [_compared]},
    "the price of no KL": {"kl_coefficient": 0.1},
    "a price below 0": {"kl": _compared, "kl_coefficient": -0.1},
    "bounds of no weight": {"bounds": (_held,)},
    "a KL without a mask": {"kl": pow},
    "a weight of one column": {"weight": _held},
    "a rejection of one column": {"rejections": (_held,)},
    "a bound of two columns": {"weight": _compared, "bounds": (_compared,)},
    "an estimator of places": {"estimator": abs},
    "no scale": {"scale": 0.0},
    "a bias without an end": {"bias": torch.inf},
    "clips exchanged": {"least": 1.0, "most": 0.0},
}

#: Record -> what it is made of, and how it may be made otherwise.
OF_PATH: Mapping[str, tuple[Mapping[str, Any], Calls]] = {
    "rollout.Rollout": (_ROLLOUT, _ROLLOUTS),
    "ready.Ready": (READY, _HANDED_ON),
    "path.Choices": ({"estimator": _outcome}, _CHOSEN),
}
