"""Boundaries of verl's diagnostics: rollout against training probabilities, proxies for the gradient variance."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.requirements import has_trained_token
from rl_sentinel.adapters.kit.result_forms import Detached
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.arguments import MASK_PRODUCER, trainer_data
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.codec import Codec

MISMATCH = "verl.utils.debug.metrics.calculate_debug_metrics"
VARIANCE = "verl.trainer.ppo.metric_utils.compute_variance_proxy_metrics"

_DIFFERENCES = {
    "training/rollout_probs_diff_max": Output("", "", "probability_difference.max"),
    "training/rollout_probs_diff_mean": Output("", "", "probability_difference.mean", over="live"),
    "training/rollout_probs_diff_std": Output("", "", "probability_difference.std"),
    "training/rollout_actor_probs_pearson_corr": Output("", "", "probability_correlation"),
}

#: Means over trajectories (metric_utils.py, compute_variance_proxy_metrics: E of squares per trajectory).
_PROXIES = {
    "variance_proxy/proxy2_total_power": Output("", "", "gradient_power", over="rows"),
    "variance_proxy/proxy3_pure_noise": Output("", "", "gradient_noise"),
    "variance_proxy/expected_a_squared": Output("", "", "advantage_squared.mean", over="rows"),
    "variance_proxy/expected_w": Output("", "", "score_norm.mean", over="rows"),
}

#: Gradient norm of the actor's update.
_NORM = 0.5


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of both diagnostics: after the log-probs are computed, and after the actor's update."""
    yield from try_bind(target, MISMATCH, "metric", lambda: [_mismatch(target)])
    yield from try_bind(target, VARIANCE, "metric", lambda: [_variance(target)])


def _mismatch(target: Target) -> Boundary:
    columns: dict[str, Codec] = {
        "rollout_log_probs": Column("rollout_logprob"),
        "old_log_probs": Column("old_logprob"),
    }
    return _logged(
        target, MISMATCH, "data", columns, {}, _DIFFERENCES, "actor_rollout_ref.rollout.calculate_log_probs=True"
    )


def _variance(target: Target) -> Boundary:
    columns: dict[str, Codec] = {
        "old_log_probs": Column("old_logprob"),
        "advantages": Column("advantage"),
        "sum_pi_squared": Column("pi_squared"),
    }
    norm: dict[str, Codec] = {"gradient_norm": Constant(_NORM)}
    return _logged(
        target, VARIANCE, "batch", columns, norm, _PROXIES, "actor_rollout_ref.actor.calculate_sum_pi_squared=True"
    )


def _logged(  # noqa: PLR0913 - the parts of one description
    target: Target,
    path: str,
    parameter: str,
    columns: Mapping[str, Codec],
    more: Mapping[str, Codec],
    outputs: Mapping[str, Output],
    reach: str,
) -> Boundary:
    return one_call(
        path=path,
        stage="metric",
        call=path,
        name="metrics",
        arguments={parameter: trainer_data(target, path, **columns), **more},
        produced_by={parameter: MASK_PRODUCER},
        unused=frozenset({"token", "group", "reward", "token_reward"}),
        outputs={name: replace(o, at=Use("metrics")[name], form=Detached()) for name, o in outputs.items()},
        reach=reach,
        requires=(has_trained_token,),
    )
