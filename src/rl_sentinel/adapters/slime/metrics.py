"""slime's rollout metrics: computed from samples, and logged by data-parallel ranks after slime's reduction."""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachCut, EachRow, Namespace, Object, Table
from rl_sentinel.adapters.kit.requirements import has_trained_token, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Earlier, constants
from rl_sentinel.adapters.slime.advantages import DEFAULTS
from rl_sentinel.adapters.slime.advantages import PATH as ADVANTAGES
from rl_sentinel.adapters.slime.arguments import (
    LOSS_MASKS,
    MASK_SUMS,
    MASKS,
    RESPONSE_LENGTHS,
    REWARDS,
    TOTAL_LENGTHS,
    samples,
)
from rl_sentinel.adapters.slime.generation import room_of
from rl_sentinel.adapters.slime.kl import default_kind
from rl_sentinel.adapters.slime.rank_fakes import log_received, log_step
from rl_sentinel.adapters.slime.rollout import even_ranks, received
from rl_sentinel.adapters.slime.samples import sample
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Codec

#: Modules that log the data of a rollout on the ranks, newest first.
LOG_MODULES = ("slime.observability.train_metric_utils", "slime.backends.megatron_utils.data")

#: Paths of the function that computes metrics from samples, newest first.
FROM_SAMPLES = (
    "slime.observability.rollout_metrics.compute_metrics_from_samples",
    "slime.ray.rollout.compute_metrics_from_samples",
    "slime.ray.rollout._compute_metrics_from_samples",
)

#: Logged name -> output; train_metric_utils.py, per_rollout_mean_keys: means of the samples' means.
LOGGED: Mapping[str, Output] = {
    "rollout/rewards": Output("", "reward", "outcome.mean", over="all"),
    "rollout/response_lengths": Output("", "tokens", "response_length.mean", over="all"),
    "rollout/log_probs": Output("", "nats", over="rows"),
    "rollout/ref_log_probs": Output("", "nats", over="rows"),
    "rollout/values": Output("", "reward", "value.mean", over="rows"),
    "rollout/advantages": Output("", "reward", over="rows"),
    "rollout/returns": Output("", "reward", over="rows"),
    "rollout/kl": Output("", "nats", "kl.k1", over="all"),
}

_KL = claims(
    "loss.py, compute_advantages_and_returns: compute_approx_kl(log_probs, ref_log_probs)",
    kl="k1",
    output_pairs={"rollout/kl": "old_logprob against ref_logprob"},
)


#: Logged name -> output, for the lengths of train_metric_utils.py, log_multi_turn_data.
LENGTHS: Mapping[str, Output] = {
    "multi_turn/raw_response_length/response_length_mean": Output("", "tokens", "response_length.mean", over="all"),
    "multi_turn/raw_response_length/response_length_max": Output("", "tokens", "response_length.max", over="all"),
    "multi_turn/raw_response_length/response_length_min": Output("", "tokens", "response_length.min", over="all"),
    "multi_turn/raw_response_length/response_length_clip_ratio": Output("", "", "full_length.mean", over="all"),
    "multi_turn/wo_obs_response_length/response_length_mean": Output("", "tokens", "response_length.mean", over="all"),
    "multi_turn/wo_obs_response_length/response_length_max": Output("", "tokens", "response_length.max", over="all"),
    "multi_turn/wo_obs_response_length/response_length_min": Output("", "tokens", "response_length.min", over="all"),
}

_LENGTHS = claims(
    "train_metric_utils.py, log_multi_turn_data: raw lengths of responses, and without observations (wo_obs)",
    output_definitions={n: "trained tokens" if "wo_obs" in n else "response tokens" for n in LENGTHS if "clip" not in n}
    | {n: "no room left" for n in LENGTHS if "clip" in n},
)

#: Arguments that every function for logging reads.
_LOGGING = {
    **dict.fromkeys(("ci_test", "log_multi_turn", "log_passrate", "log_correct_samples"), False),
    "use_wandb": True,
    "use_tensorboard": False,
    "wandb_always_use_train_step": False,
    "rollout_batch_size": 1,
    "qkv_format": "thd",
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of metrics of a rollout with critic and KL penalty, of lengths, and of correct samples."""
    module = next((p for p in LOG_MODULES if target.has(f"{p}.log_rollout_data")), "")
    log = f"{module}.log_rollout_data"
    if not module or not target.has(ADVANTAGES):
        path = log if module else f"{LOG_MODULES[0]}.log_rollout_data"
        yield Unbound(
            path, "metric", f"{ADVANTAGES} is absent" if module else "log_rollout_data is absent", absent=True
        )
    else:
        yield from bindable(target, _rollout(target, log))
        if target.has(f"{module}.log_multi_turn_data"):
            yield from bindable(target, _lengths(target, f"{module}.log_multi_turn_data"))
        if "log_correct_samples" in inspect.getsource(target.find(log)):
            yield from bindable(target, _correct(target, log))
    from_samples = next((p for p in FROM_SAMPLES if target.has(p)), "")
    if from_samples:
        yield from bindable(target, _from_samples(target, from_samples))


def _options(target: Target, **more: object) -> Object:
    fixed = {
        **DEFAULTS,
        "advantage_estimator": "ppo",
        "kl_coef": 0.05,
        "kl_loss_type": default_kind(target),
        **_LOGGING,
        **more,
    }
    parts: dict[str, Codec] = constants(**fixed)
    return Namespace(**parts, rollout_max_response_len=Derived(room_of))


def _rollout(target: Target, log: str) -> Boundary:
    """The boundary of a run with a critic, or without one in releases before October 2025."""
    estimator = "ppo" if '"ppo"' in inspect.getsource(target.find(ADVANTAGES)) else "grpo"
    data: dict[str, Codec] = {
        "log_probs": samples("old_logprob"),
        "ref_log_probs": samples("ref_logprob"),
        **({"values": samples("value")} if estimator == "ppo" else {}),
        "rewards": REWARDS,
        "loss_masks": LOSS_MASKS,
        "total_lengths": TOTAL_LENGTHS,
        "response_lengths": RESPONSE_LENGTHS,
        "rollout_mask_sums": MASK_SUMS,
        "global_batch_sizes": Derived(lambda inputs: [inputs.mini_batch.rows]),
    }
    weighted = "global_batch_sizes" in inspect.getsource(target.find(log))  # earlier, ranks have equal numbers of rows
    writes_kl = '"kl"' in inspect.getsource(target.find(ADVANTAGES))
    absent = {*(() if writes_kl else ("rollout/kl",)), *(() if "values" in data else ("rollout/values",))}
    logged = {name: output for name, output in LOGGED.items() if name not in absent}
    return one_call(
        path=f"{ADVANTAGES} -> {log}",
        stage="metric",
        call=log_step,
        name="logged",
        arguments={
            "log": Constant(Function(log)),
            "args": _options(target, advantage_estimator=estimator),
            "ranks": EachCut(Table(data), "ranks"),
            "advantages": Constant(Function(ADVANTAGES)),
        },
        produced_by={
            "ranks": f"{MASKS}; slime/ray/rollout.py, _split_train_data_by_dp: global_batch_sizes of all ranks"
        },
        unused=frozenset({"prompt_length"}),
        outputs={name: replace(output, at=Use("logged")[name]) for name, output in logged.items()},
        settings={estimator: {}},
        claims=_KL if writes_kl else Claims(),
        reach=f"--advantage-estimator {estimator}, --kl-coef 0.05",
        requires=(has_trained_token, no_empty_response, *(() if weighted else (even_ranks,))),
    )


def _lengths(target: Target, log: str) -> Boundary:
    data: dict[str, Codec] = {
        "loss_masks": LOSS_MASKS,
        "total_lengths": TOTAL_LENGTHS,
        "response_lengths": RESPONSE_LENGTHS,
    }
    return one_call(
        path=log,
        stage="metric",
        call=log_step,
        name="logged",
        arguments={"log": Constant(Function(log)), "args": _options(target), "ranks": EachCut(Table(data), "ranks")},
        produced_by={"ranks": MASKS},
        unused=frozenset({"prompt_length"}),
        outputs={name: replace(output, at=Use("logged")[name]) for name, output in LENGTHS.items()},
        claims=_LENGTHS,
        reach="--log-multi-turn",
        requires=(no_empty_response, even_ranks),
    )


def _correct(target: Target, log: str) -> Boundary:
    """The boundary of the metrics of a rollout that slime sends to the ranks, with the lengths of correct samples."""
    path, steps = received(target)
    step = Step(
        call=log_received,
        name="logged",
        arguments={
            "log": Constant(Function(log)),
            "args": _options(target, log_correct_samples=True),
            "ranks": Earlier(Use("ranks")),
            "log_probs": samples("old_logprob"),
        },
        produced_by={"log_probs": "slime/backends/megatron_utils/actor.py, train_actor: compute_log_prob on each rank"},
    )
    outputs = {
        "rollout/raw_reward": Output("", "reward", "outcome.mean", over="all"),
        "rollout/response_lengths": Output("", "tokens", "response_length.mean", over="all"),
        "rollout/log_probs": Output("", "nats", over="rows"),
        "correct_lengths": Output("", "tokens", over="all"),
    }
    return Boundary(
        path=f"{path} -> {log}",
        stage="metric",
        steps=(*steps, step),
        unused=frozenset({"group", "prompt_length", "rollout_logprob", "token"}),
        outputs={name: replace(output, at=Use("logged")[name]) for name, output in outputs.items()},
        reach="--log-correct-samples",
        requires=(has_trained_token, no_empty_response, even_ranks),
    )


def _from_samples(target: Target, path: str) -> Boundary:
    args = Namespace(
        advantage_estimator=Constant("grpo"),
        reward_key=Constant(None),
        log_reward_category=Constant(None),
        sglang_speculative_algorithm=Constant(None),
        rollout_max_response_len=Derived(room_of),
    )
    statistics = target.find(path).__globals__.get("compute_statistics")
    source = inspect.getsource(statistics) if statistics else ""
    names = [name for name in ("mean", "max", "min") if not source or f'"{name}"' in source]
    return one_call(
        path=path,
        stage="metric",
        call=path,
        name="computed",
        arguments={"args": args, "samples": EachRow(sample(target))},
        produced_by={"samples": "slime/ray/rollout.py, generate: the samples of a rollout before conversion"},
        reads=frozenset({"mask", "length"}),
        outputs={
            f"response_len/{name}": Output(
                "", "tokens", f"response_length.{name}", over="all", at=Use("computed")[f"response_len/{name}"]
            )
            for name in names
        },
        claims=claims(
            "types.py, Sample.effective_response_length: the sum of the loss mask, if there is one",
            output_definitions=dict.fromkeys((f"response_len/{name}" for name in names), "trained tokens"),
        ),
        reach="every run",
        requires=(no_empty_response,),
    )
