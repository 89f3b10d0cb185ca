"""Calls of each policy loss of ``signal``, and the formula of the same loss per token."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from draws import Draw
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Settings
from rl_sentinel.formulas.divergence_losses import DIVERGENCES, clip_without_chosen, kl_at_chosen
from rl_sentinel.formulas.policy_losses import LOSSES as PLAIN
from rl_sentinel.signal import reduce

CLIP: Settings = {"clip_low": 0.2, "clip_high": 0.3}

#: Loss -> the numbers that it takes.
NUMBERS: Mapping[str, Settings] = {
    **dict.fromkeys(("ppo", "cispo", "gspo", "gmpo", "clip_cov"), CLIP),
    **{key: {**CLIP, "ceiling": 2.0} for key in ("dual_clip", "dppo_tv", "dppo_kl")},
    **{key: {"penalty": 0.7} for key in ("dro", "kl_cov")},
    "importance_sampling": {},
    "reinforce": {},
    "sapo": {"temperature": 1.0, "negative_temperature": 1.5},
}

#: Losses that treat chosen tokens apart -> the formula with the choice.
CHOOSING: Mapping[str, Callable[[Batch, Settings, Tensor], Tensor]] = {
    "kl_cov": kl_at_chosen,
    "clip_cov": clip_without_chosen,
}

#: Names of formulas that differ from the name of the module.
_NAMES = {"dro": "quadratic penalty"}

#: Losses of probabilities, whose log-probs are at most 0.
_PROBABILITIES = ("dppo_tv", "dppo_kl")

LOSSES = tuple(NUMBERS)


def loss_of(name: str, x: Draw, logprob: Tensor, aggregation: reduce.Aggregation) -> Tensor:
    """The loss of ``signal`` at other log-probs of the policy than those of the draw."""
    function: Callable[..., Tensor] = importlib.import_module(f"rl_sentinel.signal.loss.{name}").loss
    columns = [logprob, x.advantage] if name == "reinforce" else [logprob, x.old, x.advantage]
    chosen = {"chosen": _chosen(x)} if name in CHOOSING else {}
    return function(*columns, mask=x.mask, aggregation=aggregation, **NUMBERS[name], **chosen)


def _chosen(x: Draw) -> Any:
    """About half of the tokens, by a column that no loss reads."""
    return x.value > 0


def fitting(name: str, x: Draw) -> Draw:
    """The draw with log-probs that the loss allows."""
    return replace(x, logprob=-x.logprob.abs(), old=-x.old.abs()) if name in _PROBABILITIES else x


def formula_of(name: str, x: Draw, logprob: Tensor) -> Tensor:
    """``[B, T]`` loss per token by the formula, with a gradient to ``logprob``."""
    batch = x.batch(logprob=logprob)
    if name in CHOOSING:
        return CHOOSING[name](batch, NUMBERS[name], _chosen(x))
    named = _NAMES.get(name, name.replace("_", " "))
    found = {**PLAIN, **DIVERGENCES}[named](batch, NUMBERS[name])
    assert found is not None
    return found
