"""verl's KL penalties, and the step that puts a KL into the reward."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.errors import Unbindable
from rl_sentinel.frameworks.target import Target
from rl_sentinel.frameworks.verl.dispatch import data_of, given_to

PENALTY = "verl.trainer.ppo.core_algos.kl_penalty"
STEP = "verl.trainer.ppo.ray_trainer.apply_kl_penalty"

FIXED = "verl.trainer.ppo.core_algos.FixedKLController"
ADAPTIVE = "verl.trainer.ppo.core_algos.AdaptiveKLController"

#: verl's name of a kind of KL, and the name that the field gives it.
KINDS = {"kl": "k1", "abs": "abs", "mse": "k2", "low_var_kl": "k3"}

#: Kinds whose gradient is that of another kind, by a name that newer releases know.
STRAIGHT = {"k3+": "k3"}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """One boundary per kind of KL, then the step."""
    for path, make in ((PENALTY, _penalties), (STEP, _steps)):
        try:
            target.find(path)
            yield from make(target)
        except Unbindable as why:
            yield Unbound(path, "kl", str(why))


def _penalties(target: Target) -> Iterator[Boundary]:
    kinds = KINDS | (STRAIGHT if "kl_penalty[:-1]" in inspect.getsource(target.find(PENALTY)) else {})
    for kind, name in kinds.items():

        def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
            return {"kl": target.call(PENALTY, batch.logprob, batch.ref_logprob, settings["kind"])}

        yield Boundary(
            path=PENALTY,
            stage="kl",
            call=call,
            reads=frozenset({"logprob", "ref_logprob"}),
            outputs={"kl": Output("B T", "nats", f"kl.{name}")},
            settings={kind: {"kind": kind}},
            reach=f"algorithm.kl_penalty={kind}, or actor.kl_loss_type={kind}",
        )


def _steps(target: Target) -> Iterator[Boundary]:
    fixed: Mapping[str, Settings] = {"default": {"kl_coef": 0.001}, "coefficient 0": {"kl_coef": 0.0}}
    yield _step(target, FIXED, fixed, {})
    if target.has(ADAPTIVE):
        adaptive: Mapping[str, Settings] = {"adaptive": {"init_kl_coef": 0.2, "target_kl": 0.1, "horizon": 100}}
        moved = {"coefficient": Output("", "", "kl_coefficient")}
        yield _step(target, ADAPTIVE, adaptive, moved)


def _step(target: Target, kind: str, settings: Mapping[str, Settings], more: Mapping[str, Output]) -> Boundary:
    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        controller: Any = target.call(kind, **settings)
        data = data_of(target, batch, STEP)
        data, metrics = target.call(STEP, data, controller, "kl", **given_to(target, STEP, multi_turn=True))
        logged = next(v for k, v in metrics.items() if k.endswith(("/kl", "_kl_penalty")))
        found = {"token_reward": data.batch["token_level_rewards"], "kl": torch.tensor(float(logged))}
        return found | {name: torch.tensor(float(controller.value)) for name in more}

    return Boundary(
        path=STEP,
        stage="kl",
        call=call,
        reads=frozenset({"reward", "token_reward", "length", "mask", "old_logprob", "ref_logprob"}),
        outputs={
            "token_reward": Output("B T", "reward", "token_reward"),
            "kl": Output("", "nats", "kl.row_mean"),
            **more,
        },
        settings=settings,
        reach="algorithm.use_kl_in_reward=True" + (" algorithm.kl_ctrl.type=adaptive" if more else ""),
    )
