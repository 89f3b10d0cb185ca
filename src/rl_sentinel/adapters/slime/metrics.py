"""What slime logs of a rollout: the numbers of each data-parallel rank, reduced by its own gather."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachCut, Namespace, Table
from rl_sentinel.adapters.kit.requirements import has_trained_token, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived
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
from rl_sentinel.adapters.slime.doubles import log_step
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec

#: Where releases have it, newest first.
PLACES = (
    "slime.observability.train_metric_utils.log_rollout_data",
    "slime.backends.megatron_utils.data.log_rollout_data",
)

#: Logged name -> the quantity that it is; train_metric_utils.py, per_rollout_mean_keys: means of the samples' means.
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


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The rollout of a run with a critic and a KL penalty, which logs all keys."""
    path = next((p for p in PLACES if target.has(p)), "")
    if not path or not target.has(ADVANTAGES) or not target.has(f"{path.rpartition('.')[0]}.gather_log_data"):
        yield Unbound(PLACES[0], "metric", "no function logs the data of a rollout and gathers it over ranks")
        return
    fixed = {
        **DEFAULTS,
        "advantage_estimator": "ppo",
        "kl_coef": 0.05,
        **dict.fromkeys(("ci_test", "log_multi_turn", "log_passrate", "log_correct_samples"), False),
        "wandb_always_use_train_step": False,
        "rollout_batch_size": 1,
        "qkv_format": "thd",
    }
    data: dict[str, Codec] = {
        "log_probs": samples("old_logprob"),
        "ref_log_probs": samples("ref_logprob"),
        "values": samples("value"),
        "rewards": REWARDS,
        "loss_masks": LOSS_MASKS,
        "total_lengths": TOTAL_LENGTHS,
        "response_lengths": RESPONSE_LENGTHS,
        "rollout_mask_sums": MASK_SUMS,
        "global_batch_sizes": Derived(lambda inputs: [inputs.mini_batch.rows]),
    }
    step = Step(
        call=log_step,
        name="logged",
        arguments={
            "advantages": Constant(Function(ADVANTAGES)),
            "log": Constant(Function(path)),
            "args": Namespace(**{name: Constant(value) for name, value in fixed.items()}),
            "ranks": EachCut(Table(data), "ranks"),
        },
        produced_by={
            "ranks": f"{MASKS}; slime/ray/rollout.py, _split_train_data_by_dp: global_batch_sizes of all ranks"
        },
    )
    boundary = Boundary(
        path=f"{ADVANTAGES} -> {path}",
        stage="metric",
        steps=(step,),
        unused=frozenset({"prompt_length"}),
        outputs={name: replace(output, at=Use("logged")[name]) for name, output in LOGGED.items()},
        settings={"ppo": {}},
        claims=_KL,
        reach="--advantage-estimator ppo, --kl-coef 0.05",
        requires=(has_trained_token, no_empty_response),
    )
    yield from bindable(target, boundary)
