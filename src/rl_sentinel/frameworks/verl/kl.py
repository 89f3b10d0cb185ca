"""verl's KL penalties, and the step that puts a KL into the reward."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.errors import Unbindable
from rl_sentinel.frameworks.target import Target
from rl_sentinel.frameworks.verl.dispatch import data_of, given_to

PENALTY = "verl.trainer.ppo.core_algos.kl_penalty"
STEP = "verl.trainer.ppo.ray_trainer.apply_kl_penalty"

FIXED = "verl.trainer.ppo.core_algos.FixedKLController"
ADAPTIVE = "verl.trainer.ppo.core_algos.AdaptiveKLController"

#: What makes a controller of the configuration, in releases that have a class for it.
CONTROLLER = "verl.trainer.ppo.core_algos.get_kl_controller"
SECTION = "verl.trainer.config.algorithm.KLControlConfig"

#: verl's name of a kind of KL, and the name that the field gives it.
KINDS = {"kl": "k1", "abs": "abs", "mse": "k2", "low_var_kl": "k3"}

_ESTIMATORS = (
    "core_algos.kl_penalty, docstring: KL given logprob and ref_logprob, as in joschu.net/blog/kl-approx.html; "
    "verl.readthedocs.io/en/latest/algo/grpo.html names the kinds: kl(k1), abs, mse(k2), low_var_kl(k3)"
)

_STEP = (
    "ray_trainer.apply_kl_penalty, docstring: the KL between the reference policy and current policy "
    "is computed, and a penalty on the token-level rewards based on it applied"
)

_MEASURE = (
    "ray_trainer.apply_kl_penalty, comment: the current KL is averaged over the sequence, and then over the batch"
)

_CONTROL = (
    "core_algos.py, docstrings: AdaptiveKLController is that of arXiv 1909.08593, FixedKLController updates nothing"
)

#: A setting of the configuration -> the name that the adaptive controller has for it.
_INITIAL = {"kl_coef": "init_kl_coef"}

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
            claims=claims(_ESTIMATORS, algorithm=name, gradient="k2" if kind in STRAIGHT else name),
            reach=f"algorithm.kl_penalty={kind}, or actor.kl_loss_type={kind}",
        )


def _steps(target: Target) -> Iterator[Boundary]:
    fixed: Mapping[str, Settings] = {"default": {"kl_coef": 0.125}, "coefficient 0": {"kl_coef": 0.0}}
    yield _step(target, "fixed", fixed, "kl")
    yield _step(target, "fixed", {"low_var_kl": {"kl_coef": 0.125}}, "low_var_kl")
    if target.has(ADAPTIVE):
        far: Settings = {"kl_coef": 0.25, "target_kl": 0.125, "horizon": 10}
        yield _step(target, "adaptive", {"adaptive": far, "near the target": {**far, "target_kl": 0.25}}, "kl")


def _controller(target: Target, kind: str, settings: Settings) -> Any:  # noqa: ANN401 - a controller of the target
    if target.has(SECTION):
        return target.call(CONTROLLER, target.call(SECTION, type=kind, **settings))
    if kind == "fixed":
        return target.call(FIXED, **settings)
    return target.call(ADAPTIVE, **{_INITIAL.get(name, name): value for name, value in settings.items()})


def _step(target: Target, control: str, settings: Mapping[str, Settings], kind: str) -> Boundary:
    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        controller = _controller(target, control, settings)
        data = data_of(target, batch, STEP)
        data, metrics = target.call(STEP, data, controller, kind, **given_to(target, STEP, multi_turn=True))
        logged = next(v for k, v in metrics.items() if k.endswith(("/kl", "_kl_penalty")))
        numbers = {"kl": torch.tensor(float(logged)), "coefficient": torch.tensor(float(controller.value))}
        return {"token_reward": data.batch["token_level_rewards"], **numbers}

    name = KINDS[kind]
    said = (
        claims(_ESTIMATORS, kl=name)
        | claims(_MEASURE, measure="mean of row means, all rows")
        | claims(
            _STEP,
            output_algorithms={"token_reward": f"less {name}"},
            output_pairs={"kl": "old_logprob against ref_logprob"},
        )
        | claims(_CONTROL, output_algorithms={"coefficient": control})
    )
    return Boundary(
        path=STEP,
        stage="kl",
        call=call,
        reads=frozenset({"reward", "token_reward", "length", "mask", "old_logprob", "ref_logprob"}),
        outputs={
            "token_reward": Output("B T", "reward", "token_reward"),
            "kl": Output("", "nats", "kl.row_mean"),
            "coefficient": Output("", "", "kl_coefficient"),
        },
        settings=settings,
        claims=said,
        reach="algorithm.use_kl_in_reward=True"
        + (" algorithm.kl_ctrl.type=adaptive" if control == "adaptive" else "")
        + (f" algorithm.kl_penalty={kind}" if kind != "kl" else ""),
    )
