"""Boundaries of verl's KL estimators, and of the trainer's step that adds a KL penalty to the reward."""

import inspect
from collections.abc import Iterator, Mapping

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.forms import Padded
from rl_sentinel.adapters.kit.result_forms import FirstOf
from rl_sentinel.adapters.kit.value_codecs import Knob, constants, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.arguments import MASK_PRODUCER, every_token_is_trained, knows_response_mask, trainer_data
from rl_sentinel.adapters.verl.listed_options import kl_kinds
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Codec

PENALTY = "verl.trainer.ppo.core_algos.kl_penalty"
STEP = "verl.trainer.ppo.ray_trainer.apply_kl_penalty"

FIXED = "verl.trainer.ppo.core_algos.FixedKLController"
ADAPTIVE = "verl.trainer.ppo.core_algos.AdaptiveKLController"

#: Factory of the controller, in releases with a configuration class.
CONTROLLER = "verl.trainer.ppo.core_algos.get_kl_controller"
SECTION = "verl.trainer.config.algorithm.KLControlConfig"

#: verl's name of a KL estimator -> the usual name.
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

#: Setting or constructor argument -> attribute of the controller.
_READ = {"kl_coef": "value", "init_kl_coef": "value", "target_kl": "target"}

#: Setting -> constructor argument of the adaptive controller.
_INITIAL = {"kl_coef": "init_kl_coef"}

#: Estimators of newer releases whose gradient is that of k2.
STRAIGHT = {"k3+": "k3"}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """One boundary per KL estimator, then boundaries of the trainer's step."""
    yield from try_bind(target, PENALTY, "kl", lambda: _penalties(target), required=True)
    yield from try_bind(target, STEP, "kl", lambda: _steps(target), required=True)


def _penalties(target: Target) -> Iterator[Boundary]:
    listed = kl_kinds(target)
    kinds = KINDS | (STRAIGHT if "kl_penalty[:-1]" in inspect.getsource(target.find(PENALTY)) else {})
    arguments: dict[str, Codec] = {
        "logprob": Column("logprob"),
        "ref_logprob": Column("ref_logprob"),
        "kl_penalty": Knob("kind"),
    }
    for kind, name in kinds.items():
        yield one_call(
            path=PENALTY,
            stage="kl",
            call=PENALTY,
            name="kl",
            arguments=arguments,
            outputs={"kl": Output("B T", "nats", f"kl.{name}", form=Padded())},
            settings={kind: {"kind": kind}},
            claims=claims(_ESTIMATORS, algorithm=name, gradient="k2" if kind in STRAIGHT else name)
            | (listed if kind == "kl" else Claims()),
            reach=f"algorithm.kl_penalty={kind}, or actor.kl_loss_type={kind}",
        )


def _steps(target: Target) -> Iterator[Boundary]:
    fixed: Mapping[str, Settings] = {"default": {"kl_coef": 0.125}, "coefficient 0": {"kl_coef": 0.0}}
    yield _step(target, "fixed", fixed, "kl")
    yield _step(target, "fixed", {"low_var_kl": {"kl_coef": 0.125}}, "low_var_kl")
    if target.has(ADAPTIVE):
        far: Settings = {"kl_coef": 0.25, "target_kl": 0.125, "horizon": 10}
        yield _step(target, "adaptive", {"adaptive": far, "near the target": {**far, "target_kl": 0.25}}, "kl")


def _controller(target: Target, kind: str, names: tuple[str, ...]) -> Codec:
    """The KL controller, as the trainer creates it from the configuration."""
    if target.has(SECTION):
        section = Object(SECTION, {**constants(type=kind), **knobs(*names)}, _READ)
        return Object(CONTROLLER, {"kl_ctrl": section}, {"kl_ctrl": ""})
    if kind == "fixed":
        return Object(FIXED, knobs(*names), _READ)
    return Object(ADAPTIVE, {_INITIAL.get(name, name): Knob(name) for name in names}, _READ)


def _step(target: Target, control: str, settings: Mapping[str, Settings], kind: str) -> Boundary:
    names = tuple(next(iter(settings.values())))
    logprobs = {"old_log_probs": Column("old_logprob"), "ref_log_prob": Column("ref_logprob")}
    passed = {
        "data": trainer_data(target, STEP, **logprobs),
        "kl_ctrl": _controller(target, control, names),
        **constants(kl_penalty=kind, multi_turn=True),
    }
    name = KINDS[kind]
    claimed = (
        claims(_ESTIMATORS, kl=name)
        | claims(_MEASURE, measure="mean of row means, all rows")
        | claims(
            _STEP,
            output_algorithms={"token_reward": f"less {name}"},
            output_pairs={"kl": "old_logprob against ref_logprob"},
        )
        | claims(_CONTROL, output_algorithms={"coefficient": control})
    )
    return one_call(
        path=STEP,
        stage="kl",
        call=STEP,
        name="penalized",
        arguments=passed,
        optional=frozenset({"multi_turn"}),
        produced_by={"data": MASK_PRODUCER},
        unused=frozenset({"token", "group"}),
        outputs={
            "token_reward": Output(
                "B T",
                "reward",
                "token_reward",
                at=Use("penalized")[0].attribute("batch")["token_level_rewards"],
                form=Padded(),
            ),
            "kl": Output("", "nats", "kl.row_mean", at=Use("penalized")[1], form=FirstOf("/kl", "_kl_penalty")),
            "coefficient": Output("", "", "kl_coefficient", at=Use("kl_ctrl").attribute("value")),
        },
        settings=settings,
        claims=claimed,
        reach="algorithm.use_kl_in_reward=True"
        + (" algorithm.kl_ctrl.type=adaptive" if control == "adaptive" else "")
        + (f" algorithm.kl_penalty={kind}" if kind != "kl" else ""),
        requires=() if knows_response_mask(target, STEP) else (every_token_is_trained,),
    )
