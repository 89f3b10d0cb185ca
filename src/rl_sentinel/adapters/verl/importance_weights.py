"""Boundaries of verl's importance weights and rejections of October 2025, before rollout correction replaced them."""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Table
from rl_sentinel.adapters.kit.forms import Padded
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.result_forms import Detached, KeptMask
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob, constants, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.arguments import MASK, MASK_PRODUCER, data_proto, section
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, Scope, claims
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import Absent, Unbindable

MODULE = "verl.trainer.ppo.mismatch_helper"
WEIGHED = f"{MODULE}.compute_rollout_importance_weights"
TRAINER = "verl.trainer.ppo.ray_trainer.RayPPOTrainer"
ADDED = f"{TRAINER}.compute_rollout_importance_weights_and_add_to_batch"

_PREFIX = "rollout_is_"

#: No single token rejects its sequence.
_PLAIN: Settings = {f"{_PREFIX}veto_threshold": None}

#: Bounds of the ratio; they are not symmetric around 1, so that a wrong sign shows.
LOW, HIGH, VETO = 0.25, 2.0, 0.5

#: The upper bound of weights whose setting has no other upper bound.
_SAFE = math.exp(20)

LEVELS = ("token", "sequence", "geometric")

_WEIGHT = claims(
    "mismatch_helper.compute_rollout_importance_weights, docstring: ratios of the training to the rollout policy, per "
    "token, as the product over a sequence or their geometric mean; truncate clamps them at the upper threshold",
    algorithm="weight of the sampler",
)

_KEEP = claims(
    "mismatch_helper.compute_rollout_importance_weights, docstring: a token or sequence outside of the bounds is "
    "rejected; a token below the veto threshold rejects its sequence",
    algorithm="kept against the sampler",
)

#: Level -> how the log-ratios of a sequence are reduced, as formulas name it; the token level does not reduce them.
_OVER = {"sequence": "sum", "geometric": "mean"}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of weights and rejections of each level, alone and through the trainer's step."""
    try:
        source = inspect.getsource(inspect.unwrap(target.find(WEIGHED)))
    except Unbindable as why:
        if not isinstance(why, Absent):
            yield Unbound.because(WEIGHED, "correct", why)
        return
    masking = "mask" if '"mask"' in source else "clip"
    apart = separates(target)
    for call in (_weigh, _weigh_batch):
        for level in LEVELS:
            yield from bindable(target, _weights(call(), level, masking=masking, apart=apart))
            for name in (masking, "truncate"):
                yield from bindable(target, _rejection(call(), level, name, apart=apart))


def token_weights() -> Step:
    """The step that computes token weights, truncated at :data:`HIGH`."""
    step = weighing()
    return Step(
        call=step.call,
        name=step.name,
        arguments={**step.arguments, **constants(**_truncated("token"))},
        produced_by=step.produced_by,
        remembered=True,
    )


#: Options with which the loss uses these weights.
REACH = f"algorithm.rollout_is=True algorithm.rollout_is_threshold={HIGH}"


def weighing() -> Step:
    """The step that computes weights, and the mask in releases that separate the two."""
    columns = {"old_log_prob": "old_logprob", "rollout_log_prob": "rollout_logprob"}
    return Step(
        call=WEIGHED,
        name="weighed",
        arguments={**{name: Column(column) for name, column in columns.items()}, "response_mask": MASK},
        produced_by={"response_mask": MASK_PRODUCER},
    )


def log_metrics(target: Target, level: str, quantities: Mapping[str, str]) -> tuple[Step, dict[str, Output], Settings]:
    """The step that truncates weights of a level, outputs for these logged metrics, and the settings of both."""
    settings = _truncated(level)
    metrics = Use("weighed")[2 if separates(target) else 1]
    outputs = {
        name: Output("", "", quantity, over="live", at=metrics[f"mismatch/{name}"], form=Detached())
        for name, quantity in quantities.items()
    }
    return _with_settings(weighing(), settings), outputs, settings


def separates(target: Target) -> bool:
    """Whether the release removes rejected tokens from the mask; earlier releases set their weights to 0."""
    return "modified_response_mask" in inspect.getsource(inspect.unwrap(target.find(WEIGHED)))


def of_sampler(step: str = "weighed") -> Use:
    """A reference to the token weights in the result of a step."""
    return Use(step)[0].attribute("batch")["rollout_is_weights"]


def weigh(
    method: Callable[..., Any],
    owner: type,
    config: Any,  # noqa: ANN401 - an OmegaConf configuration
    batch: Any,  # noqa: ANN401 - a DataProto
) -> Any:  # noqa: ANN401 - a DataProto and metrics
    """Run the trainer's step on a trainer that has only a configuration."""
    return method(bare_instance(owner, config=config), batch)


def _weigh() -> tuple[Step, Use]:
    return weighing(), Use("weighed")[1]


def _weigh_batch() -> tuple[Step, Use]:
    tensors = {
        "old_log_probs": Column("old_logprob"),
        "rollout_log_probs": Column("rollout_logprob"),
        "response_mask": MASK,
    }
    step = Step(
        call=weigh,
        name="weighed",
        arguments={**functions(method=ADDED, owner=TRAINER), "batch": data_proto(tensors)},
        produced_by={"batch": MASK_PRODUCER},
    )
    return step, Use("weighed")[0].attribute("batch")["response_mask"]


def _with_settings(step: Step, settings: Settings) -> Step:
    """The step with verl's numbers: as arguments of the function, or in the trainer's section ``algorithm``."""
    numbers: dict[str, Codec] = {
        name: Constant(None) if value is None else Knob(name)
        for name, value in settings.items()
        if name.startswith(_PREFIX)
    }
    if step.call == WEIGHED:
        more: dict[str, Codec] = numbers
    else:
        algorithm = Table({**constants(rollout_is=True), f"{_PREFIX}threshold_lower": Constant(None), **numbers})
        more = {"config": section({"algorithm": algorithm})}
    return Step(call=step.call, name=step.name, arguments={**step.arguments, **more}, produced_by=step.produced_by)


def _truncated(level: str) -> Settings:
    return {f"{_PREFIX}level": level, f"{_PREFIX}mode": "truncate", f"{_PREFIX}threshold": HIGH, **_PLAIN}


def _weights(made: tuple[Step, Use], level: str, *, masking: str, apart: bool) -> Boundary:
    """The boundary of truncated weights, and of weights with two bounds.

    Outside the two bounds, weights become 0 or stay unchanged.
    """
    truncated = _truncated(level)
    masked = {**truncated, f"{_PREFIX}mode": masking, f"{_PREFIX}threshold_lower": LOW}
    settings = {
        f"{level} truncated": {**truncated, "level": level, "high": HIGH},
        f"{level} {masking}": {**masked, "level": level, **({"high": _SAFE} if apart else {"low": LOW, "high": HIGH})},
    }
    scope: Scope = "token" if level == "token" else "sequence"
    outputs = {"weight": Output("B T", "ratio", "weight", scope, at=of_sampler(), form=Padded())}
    return _boundary(_with_settings(made[0], masked), outputs, settings, _WEIGHT)


def _rejection(made: tuple[Step, Use], level: str, mode: str, *, apart: bool) -> Boundary:
    """The boundary of the mask of kept tokens.

    A token is kept if its ratio is not below the veto threshold and, if the mode rejects, within both bounds.
    """
    settings: Settings = {
        f"{_PREFIX}level": level,
        f"{_PREFIX}mode": mode,
        f"{_PREFIX}threshold": HIGH,
        f"{_PREFIX}threshold_lower": LOW,
        f"{_PREFIX}veto_threshold": VETO,
    }
    veto: Settings = {"estimator": "k1", "over": "max", "high": -math.log(VETO)}
    neutral = veto
    if mode != "truncate":
        over: Settings = {"over": _OVER[level]} if level in _OVER else {}
        neutral = {"estimator": "k1", "low": -math.log(HIGH), "high": -math.log(LOW), **over}
        neutral |= {f"second_{name}": value for name, value in veto.items()}
    place = made[1] if apart else of_sampler()  # before masks were separate, weights were 0 where rejected
    scope: Scope = "token" if mode != "truncate" and level == "token" else "sequence"
    outputs = {"keep": Output("B T", "", "keep", scope, at=place, form=KeptMask(Padded()))}
    return _boundary(
        _with_settings(made[0], settings), outputs, {f"{level} {mode}, veto": {**settings, **neutral}}, _KEEP
    )


def _boundary(step: Step, outputs: Mapping[str, Output], settings: Mapping[str, Settings], claimed: Claims) -> Boundary:
    numbers = list(settings.values())[-1]
    return Boundary(
        path=WEIGHED if step.call == WEIGHED else ADDED,
        stage="correct",
        steps=(step,),
        outputs=outputs,
        settings=settings,
        claims=claimed,
        reach="algorithm.rollout_is=True, "
        + ", ".join(f"algorithm.{n}={v}" for n, v in numbers.items() if n.startswith(_PREFIX)),
    )
