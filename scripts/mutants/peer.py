"""polgrad 0.2.1 beside the laws: its own check of losses, and its functions on its own batches."""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from mutants.planted import SIGNAL
from rl_sentinel.adapters.framework import Framework
from rl_sentinel.audit.source.overlay import overlays

NAME, VERSION = "polgrad", "0.2.1"

#: How many of polgrad's batches its functions are compared on, of which shapes, and how near they must come.
BATCHES, SHAPES, NEAR = 64, ((4, 8), (2, 12)), 1e-9

#: Numbers that both are given.
_LOW, _HIGH, _CEILING, _EPSILON, _DISCOUNT, _DECAY = 0.2, 0.28, 3.0, 1e-6, 0.9, 0.5

#: Loss of ours -> surrogate and ratio of polgrad's, whether it clips, and what it is called with besides.
_LOSSES: Mapping[str, tuple[str, str, Mapping[str, float]]] = {
    "ppo": ("PG_CLIP", "TOKEN", {"clip_low": _LOW, "clip_high": _HIGH}),
    "dual_clip": ("PG_CLIP", "TOKEN", {"clip_low": _LOW, "clip_high": _HIGH, "ceiling": _CEILING}),
    "gspo": ("PG_CLIP", "SEQUENCE", {"clip_low": _LOW, "clip_high": _HIGH}),
    "cispo": ("CISPO", "TOKEN", {"clip_low": _LOW, "clip_high": _HIGH}),
    "importance_sampling": ("PG", "TOKEN", {}),
    "reinforce": ("REINFORCE", "TOKEN", {}),
}

#: Estimator of a KL, and mode of aggregation, of ours -> polgrad's name.
_KINDS = {"k1": "K1", "k2": "K2", "k3": "K3", "absolute": "ABS"}
_MODES = {
    "token-mean": "TOKEN_MEAN",
    "sequence-mean-token-mean": "SEQ_MEAN_TOKEN_MEAN",
    "sequence-mean-token-sum": "SEQ_MEAN_TOKEN_SUM",
}

Batch = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A function of ours that polgrad has too; ``run`` raises an AssertionError where they differ."""

    name: str
    run: Callable[[], None]


def fetch() -> None:
    """Make polgrad importable, from the cache or the package index; it is no dependency of ours."""
    wanted = f"{NAME}=={VERSION}"
    peer = Framework(name=NAME, package=NAME, boundaries=lambda _target: iter(()), light=lambda _version: wanted)
    sys.path += overlays(peer, VERSION)


def comparisons() -> Iterator[Comparison]:
    """Losses by polgrad's own check, of their values and gradients; of the rest it has functions and no check."""
    testing = _peer("testing")
    for name in _LOSSES:
        yield Comparison(f"loss.{name}", partial(_conforms, testing, name))
    pairs: Mapping[str, Callable[[Batch], tuple[Tensor, Tensor]]] = {
        "advantage.grpo": partial(_grpo, standardize=True),
        "advantage.grpo, centered": partial(_grpo, standardize=False),
        "advantage.rloo": _rloo,
        "advantage.reinforce_plus_plus_baseline": _plus_plus,
        "advantage.gae": _gae,
        "penalty.in_reward": _in_reward,
        "value.value_loss": _value,
        **{f"kl.{ours}": partial(_kl, ours=ours, theirs=theirs) for ours, theirs in _KINDS.items()},
        **{f"reduce.aggregate, {mode}": partial(_aggregate, mode=mode) for mode in _MODES},
    }
    for name, both in pairs.items():
        yield Comparison(name, partial(_compared, testing, both))


def _ours(path: str) -> Any:  # noqa: ANN401 - a function of the library, which a mutant may have changed
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(f"{SIGNAL}.{module}"), name)


def _by(batch: Batch, mode: str = "token-mean") -> Any:  # noqa: ANN401 - as above
    mask = batch["response_mask"]
    return _ours("reduce.Aggregation")(mode, float(mask.sum() if mode == "token-mean" else len(mask)))


def _conforms(testing: ModuleType, name: str) -> None:
    losses, aggregation = _peer("losses"), _peer("aggregate")
    surrogate, ratio, numbers = _LOSSES[name]
    clip = losses.ClipConfig(_LOW, _HIGH, numbers.get("ceiling")) if numbers else None
    kinds = (losses.RatioKind[ratio], losses.SurrogateKind[surrogate])
    loss = _ours(f"loss.{name}.loss")

    def called(*, logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, response_mask: Tensor) -> Tensor:
        wide = advantages.unsqueeze(1).expand(logprobs.shape)
        columns = (logprobs, wide) if name == "reinforce" else (logprobs, old_logprobs, wide)
        by = _by({"response_mask": response_mask})
        found: Tensor = loss(*columns, mask=response_mask, **numbers, aggregation=by)
        return found

    testing.assert_conforms(called, losses.PolicyLossConfig(*kinds, clip, aggregation.Aggregation.TOKEN_MEAN))


def _compared(testing: ModuleType, both: Callable[[Batch], tuple[Tensor, Tensor]]) -> None:
    for batch in testing.random_batches(BATCHES, SHAPES, seed=0):
        one, other = both(batch)
        torch.testing.assert_close(one, other, rtol=NEAR, atol=NEAR)


def _peer(module: str) -> Any:  # noqa: ANN401 - a module of another package
    return importlib.import_module(f"{NAME}.{module}")


def _rows(batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    """Rewards, and pairs of rows as groups."""
    reward = batch["advantages"]
    return reward, {"group": torch.arange(len(reward)) // 2, "live": torch.ones_like(reward, dtype=torch.bool)}


def _grpo(batch: Batch, *, standardize: bool) -> tuple[Tensor, Tensor]:
    reward, rows = _rows(batch)
    config = _peer("advantages").GroupNormConfig(scale="std" if standardize else "none", eps=_EPSILON)
    one = _ours("advantage.grpo.advantages")(reward, **rows, standardize=standardize, epsilon=_EPSILON)
    return one, _peer("advantages").grpo_advantages(reward, rows["group"], config)


def _rloo(batch: Batch) -> tuple[Tensor, Tensor]:
    reward, rows = _rows(batch)
    return _ours("advantage.rloo.advantages")(reward, **rows), _peer("advantages").rloo_advantages(
        reward, rows["group"]
    )


def _plus_plus(batch: Batch) -> tuple[Tensor, Tensor]:
    reward, rows = _rows(batch)
    config = _peer("advantages").ReinforcePPConfig(batch_norm=True, eps=_EPSILON)
    one = _ours("advantage.reinforce_plus_plus_baseline.advantages")(reward, **rows, epsilon=_EPSILON)
    return one, _peer("advantages").reinforce_pp_advantages(reward, rows["group"], config=config)


def _gae(batch: Batch) -> tuple[Tensor, Tensor]:
    reward, value, mask = batch["logprobs"], batch["ref_logprobs"], batch["response_mask"]
    config = _peer("advantages").GAEConfig(_DISCOUNT, _DECAY)
    one = _ours("advantage.gae.advantages")(reward, value, mask=mask, discount=_DISCOUNT, decay=_DECAY)
    return one, _peer("advantages").gae(reward, value, config=config, response_mask=mask)[0]


def _kl(batch: Batch, *, ours: str, theirs: str) -> tuple[Tensor, Tensor]:
    new, other, mask = batch["logprobs"], batch["ref_logprobs"], batch["response_mask"]
    kind = _peer("kl").KLEstimator[theirs]
    return _ours(f"kl.{ours}")(new, other, mask=mask), _peer("kl").kl_estimate(new, other, kind, response_mask=mask)


def _in_reward(batch: Batch) -> tuple[Tensor, Tensor]:
    reward, mask = batch["rollout_logprobs"], batch["response_mask"]
    old, other = batch["old_logprobs"], batch["ref_logprobs"]
    kl = _ours("kl.k1")(old, other, mask=mask)
    shaped = _ours("penalty.in_reward")(reward, kl, mask=mask, coefficient=_LOW)
    kind = _peer("kl").KLEstimator.K1
    return shaped.token_reward, _peer("kl").kl_in_reward(reward, old, other, kind, _LOW, response_mask=mask)


def _value(batch: Batch) -> tuple[Tensor, Tensor]:
    columns, mask = [batch[n] for n in ("logprobs", "old_logprobs", "ref_logprobs")], batch["response_mask"]
    one = _ours("value.value_loss")(*columns, mask=mask, value_clip=_LOW, aggregation=_by(batch))
    kind = _peer("aggregate").Aggregation.TOKEN_MEAN
    return one, _peer("losses").value_loss(*columns, mask, clip_eps=_LOW, aggregation=kind).loss


def _aggregate(batch: Batch, *, mode: str) -> tuple[Tensor, Tensor]:
    values, mask = batch["logprobs"], batch["response_mask"]
    one = _ours("reduce.aggregate")(values, mask=mask, aggregation=_by(batch, mode))
    return one, _peer("aggregate").aggregate(values, mask, _peer("aggregate").Aggregation[_MODES[mode]])
