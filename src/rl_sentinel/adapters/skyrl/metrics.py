"""SkyRL's logged metrics: response lengths, rewards, and the log-prob gap between trainer and sampler."""

import inspect
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Labels
from rl_sentinel.adapters.kit.containers import EachRow
from rl_sentinel.adapters.kit.requirements import (
    equal_micro_batches,
    groups_are_equal,
    has_trained_token,
    no_empty_response,
    prompts_are_contiguous,
)
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Earlier
from rl_sentinel.adapters.skyrl.arguments import PRODUCED_BY, Arguments, arguments
from rl_sentinel.adapters.skyrl.rollout import GENERATED, PROCESS, process_step
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.errors import Unbindable

ROLLOUT = "skyrl.train.generators.utils.get_rollout_metrics"
_WORKERS = "skyrl.backends.skyrl_train.workers.worker_utils"
GAP, REDUCE = f"{_WORKERS}.compute_minibatch_rollout_logprob_diff_metrics", f"{_WORKERS}.reduce_metrics"

#: Logged name -> the output that the name promises, for a rollout.
LOGGED: Mapping[str, Output] = {
    "generate/avg_tokens_zero_rewards": Output("", "tokens"),
    "generate/avg_num_tokens": Output("", "tokens", "response_length.mean"),
    "generate/min_num_tokens": Output("", "tokens", "response_length.min"),
    "generate/max_num_tokens": Output("", "tokens", "response_length.max"),
    "generate/std_num_tokens": Output("", "tokens", "response_length.std"),
    "generate/avg_tokens_non_zero_rewards": Output("", "tokens"),
    "generate/avg_assistant_tokens": Output("", "tokens", "length.mean"),
    "generate/min_assistant_tokens": Output("", "tokens", "length.min"),
    "generate/max_assistant_tokens": Output("", "tokens", "length.max"),
    "generate/std_assistant_tokens": Output("", "tokens", "length.std"),
}

_TURNS = "skyrl.train.generators.utils.compute_turn_token_counts"

#: The same, for the tokens of each turn of the model; SkyRL logs them if a token trains.
LOGGED_BY_TURN: Mapping[str, Output] = {
    f"generate/tokens_per_turn_{name}": Output("", "tokens", f"run_length.{name}") for name in ("mean", "std", "max")
}

_PREFIX = "minibatch_rollout_logprobs_abs_diff"

#: Logged name -> the output that the name promises, for the gap between trainer and sampler.
GAPS: Mapping[str, Output] = {
    f"{_PREFIX}_mean": Output("", "nats", "kl.abs", over="live"),
    f"{_PREFIX}_sq_mean": Output("", "", over="live"),
    f"{_PREFIX}_max": Output("", "nats", over="live"),
    f"{_PREFIX}_min": Output("", "nats", over="live"),
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the logged metrics: rollout statistics, rewards, and the log-prob gap of trainer and sampler."""
    try:
        forms = arguments(target)
    except Unbindable as why:
        yield Unbound.because(PROCESS, "metric", why)
        return
    if target.has(ROLLOUT):
        yield from bindable(target, _rollout(target))
    if target.has(ROLLOUT) and target.has(_TURNS):
        yield _by_turn(_rollout(target, LOGGED_BY_TURN))
    if target.has(PROCESS):
        yield from bindable(target, _rewards(target))
    if target.has(GAP) and target.has(REDUCE):
        yield from bindable(target, _gap(forms))


def rewards_logged(trainer: Any) -> dict[str, float]:  # noqa: ANN401 - a fake of the trainer
    """The reward metrics; pass@n gets a fixed name, because the logged name contains the number of samples."""
    logged = trainer.all_metrics
    pass_at_n = next(value for name, value in logged.items() if name.startswith("reward/avg_pass_at_"))
    return {"raw": logged["reward/avg_raw_reward"], "pass_at_n": pass_at_n}


def reduce_parts(reduce: Callable[..., Any], parts: list[dict[str, float]]) -> Any:  # noqa: ANN401 - a dict
    """Collect the metrics of micro-batches in a list per name and reduce them, as the worker does."""
    lists: dict[str, list[float]] = defaultdict(list)
    for part in parts:
        for name, value in part.items():
            lists[name].append(value)
    return reduce(lists)


def _rollout(target: Target, logged: Mapping[str, Output] = LOGGED) -> Boundary:
    source = inspect.getsource(target.find(ROLLOUT))
    logs = {name: output for name, output in logged.items() if re.search(rf"""["']{name}["']""", source)}
    return one_call(
        path=ROLLOUT,
        stage="metric",
        call=ROLLOUT,
        name="metrics",
        arguments={
            "responses": EachRow(RowTokens("token", "int")),
            "rewards": Labels("reward"),
            "loss_masks": EachRow(RowTokens("mask", "int")),
        },
        optional=frozenset({"loss_masks"}),
        produced_by={"responses": GENERATED},
        unused=frozenset({"token"}),
        outputs={name: replace(output, at=Use("metrics")[name]) for name, output in logs.items()},
        reach="every run",
        requires=(no_empty_response,),
    )


def _by_turn(rollout: Boundary) -> Boundary:
    """The boundary of the metrics by turn, which do not depend on rewards."""
    (step,) = rollout.steps
    rewards = Derived(lambda inputs: [0.0] * inputs.batch.rows)
    steps = (replace(step, arguments={**step.arguments, "rewards": rewards}),)
    path, reads = f"{ROLLOUT} -> {_TURNS}", rollout.reads - {"reward"}
    return replace(rollout, path=path, steps=steps, reads=reads, requires=(has_trained_token,))


def _rewards(target: Target) -> Boundary:
    read = Step(call=rewards_logged, name="logged", arguments={"trainer": Earlier(Use("self"))})
    return Boundary(
        path=PROCESS,
        stage="metric",
        steps=(process_step(target), read),
        reads=frozenset({"reward", "group"}),
        outputs={
            "reward/avg_raw_reward": Output("", "reward", "outcome.mean", at=Use("logged")["raw"]),
            "reward/avg_pass_at_n": Output("", "", at=Use("logged")["pass_at_n"]),
        },
        reach="every run",
        requires=(prompts_are_contiguous, groups_are_equal, no_empty_response),
    )


def _gap(forms: Arguments) -> Boundary:
    compute = Step(
        call=GAP,
        name="parts",
        arguments={
            "action_log_probs": forms.column("logprob"),
            "rollout_logprobs": forms.column("rollout_logprob"),
            "loss_mask": forms.loss_mask,
        },
        each=("micro_batch",),
        produced_by={"loss_mask": PRODUCED_BY},
    )
    reduce = Step(
        call=reduce_parts,
        name="metrics",
        arguments={"reduce": Constant(Function(REDUCE)), "parts": Earlier(Use("parts"))},
    )
    return Boundary(
        path=f"{GAP} -> {REDUCE}",
        stage="metric",
        steps=(compute, reduce),
        unused=frozenset({"length"}),
        outputs={name: replace(output, at=Use("metrics")[name]) for name, output in GAPS.items()},
        claims=claims(
            "worker_utils.py, compute_minibatch_rollout_logprob_diff_metrics: masked-out tokens are excluded; the "
            "moments reduce correctly across micro-batches",
            output_pairs={f"{_PREFIX}_mean": "logprob against rollout_logprob"},
        ),
        reach="every run with log-probs of the sampler",
        requires=(equal_micro_batches, has_trained_token),
    )
