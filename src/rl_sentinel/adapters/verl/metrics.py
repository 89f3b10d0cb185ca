"""Boundaries of verl's ``compute_data_metrics``: the metrics of rewards, advantages, values and lengths."""

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.requirements import has_trained_token
from rl_sentinel.adapters.kit.result_forms import Detached, OrZero
from rl_sentinel.adapters.kit.reward_codecs import PerRowOutcome
from rl_sentinel.adapters.kit.value_codecs import constants
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.arguments import (
    MASK_PRODUCER,
    critic_values,
    every_token_is_trained,
    knows_response_mask,
    trainer_data,
)
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.errors import Unbindable

#: Paths of the function, newest release first.
PLACES = (
    "verl.trainer.ppo.metric_utils.compute_data_metrics",
    "verl.trainer.ppo.ray_trainer.compute_data_metrics",
)

#: Statistics that are logged for most quantities.
_STATISTICS = ("mean", "max", "min")

#: Logged name -> the quantity that it promises.
LOGGED: Mapping[str, Output] = {
    **{f"critic/score/{s}": Output("", "reward", f"outcome.{s}") for s in _STATISTICS},
    **{f"critic/rewards/{s}": Output("", "reward", f"shaped_reward.{s}") for s in _STATISTICS},
    **{f"critic/advantages/{s}": Output("", "reward", f"advantage.{s}", over="live") for s in _STATISTICS},
    **{f"critic/returns/{s}": Output("", "reward", f"returns.{s}", over="live") for s in _STATISTICS},
    **{f"critic/values/{s}": Output("", "reward", f"value.{s}", over="live") for s in _STATISTICS},
    "critic/vf_explained_var": Output("", "", "explained_variance"),
    **{f"response_length/{s}": Output("", "tokens", f"response_length.{s}") for s in _STATISTICS},
    "response_length_non_aborted/mean": Output("", "tokens", "response_length.mean"),
    "response_length/clip_ratio": Output("", "", "full_length.mean"),
    "response_length_non_aborted/clip_ratio": Output("", "", "full_length.mean"),
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the metrics that the trainer logs at each step."""
    path = next((p for p in PLACES if target.has(p)), PLACES[0])
    try:
        target.find(path)
    except Unbindable as why:
        yield Unbound.because(path, "metric", why)
        return

    declared = knows_response_mask(target, path)
    source = inspect.getsource(target.find(path))
    present = {n: o for n, o in LOGGED.items() if re.search(rf"""["']{re.escape(n)}["']""", source)}
    logs = {n: o if declared else replace(o, over="") for n, o in present.items()}
    if not logs:
        reason = f"its source names none of the {len(LOGGED)} known metrics, such as {next(iter(LOGGED))}"
        yield Unbound(path, "metric", reason)
        return

    tensors = {
        "token_level_scores": PerRowOutcome(),
        "values": critic_values(target),
        "advantages": Column("advantage"),
        "returns": Column("returns"),
    }
    takes = inspect.signature(target.find(path)).parameters
    values = constants(use_critic=True) if "use_critic" in takes else {}  # before, values are always logged
    boundary = one_call(
        path=path,
        stage="metric",
        call=path,
        name="metrics",
        arguments={"batch": trainer_data(target, path, **tensors), **values},
        produced_by={"batch": MASK_PRODUCER},
        unused=frozenset({"token", "group"}),
        outputs={name: replace(o, at=Use("metrics")[name], form=Detached()) for name, o in logs.items()},
        reach="every run",
        requires=(has_trained_token, *(() if declared else (every_token_is_trained,))),
    )
    yield from bindable(target, boundary)
    unmasked = ("critic/score/mean", "response_length/mean")
    if set(unmasked) <= set(logs) and declared:
        # A step whose responses were all aborted or rejected is logged, too, with means over no values.
        yield from bindable(
            target,
            replace(
                boundary,
                outputs={name: replace(boundary.outputs[name], form=OrZero()) for name in unmasked},
                settings={"trained or not": {}},
                requires=(),
                reach="every run; a step in which no token is trained",
            ),
        )
