"""Settings of AReaL's updates: the configurations, their claims and their logged metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rl_sentinel.adapters.areal.arguments import REJECTION
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.sequences import FullSequence
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob, constants
from rl_sentinel.core.boundary import Output
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Codec

#: Neutral name of a setting -> its field in AReaL's configuration.
NUMBERS: Mapping[str, str] = {
    "clip_low": "eps_clip",
    "clip_high": "eps_clip_higher",
    "ceiling": "c_clip",
    "temperature": "sapo_tau_pos",
    "negative_temperature": "sapo_tau_neg",
    "value_clip": "eps_clip",
}

_MEAN = claims(
    "areal/engine/fsdp_engine.py, train_batch: loss_weight_fn counts the trained tokens of each micro-batch; the "
    "losses are weighted by these counts over their sum over micro-batches and ranks",
    aggregation="token-mean",
    denominator="given",
    mean=True,
)
_RATIO = claims("functional.py, ppo_actor_loss_fn: ratio of the current to the proximal policy", ratio=True)
_PPO = _RATIO | _MEAN | claims("functional.py, ppo_actor_loss_fn, docstring: PPO actor loss", algorithm="ppo")

#: Logged name -> output of an actor's update; stats_tracker.py: sums over trained tokens divided by their number.
LOGGED: Mapping[str, Output] = {
    "update/actor_loss/avg": Output("", over="live"),
    "update/clip_ratio/avg": Output("", "", "clip_fraction", over="live"),
    "update/importance_weight/avg": Output("", "ratio", "ratio.mean", over="live"),
    "update/entropy/avg": Output("", "nats", "entropy.mean", over="live"),
    "update/approx_kl/avg": Output("", "nats", "kl.mean", over="live"),
    "update/new_logp/avg": Output("", "nats", "logprob.mean", over="live"),
    "update/old_logp/avg": Output("", "nats", "old_logprob.mean", over="live"),
    "advantages/avg": Output("", "reward", "advantage.mean", over="live"),
    "advantages/max": Output("", "reward", "advantage.max", over="live"),
    "advantages/min": Output("", "reward", "advantage.min", over="live"),
}

#: The same for metrics of the rows, which the update logs before it computes a loss; names without a slash are counts.
LOGGED_ROWS: Mapping[str, Output] = {
    "correct_n_seqs": Output("", "count", "rewarded_rows"),
    "incorrect_n_seqs": Output("", "count", "unrewarded_rows"),
    "n_valid_tokens": Output("", "tokens", "trained_tokens"),
    "task_reward/avg": Output("", "reward", "outcome.mean", over="all"),
    "prompt_len/avg": Output("", "tokens", "prompt_length.mean", over="all"),
    "seq_len/avg": Output("", "tokens", "sequence_length.mean", over="all"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """An update under one configuration, and its claims.

    A release without a field of ``words``, or whose loss does not read an entry of ``more``, lacks the family.

    Attributes:
        settings: settings by neutral names.
        words: other fields of AReaL's configuration.
        more: entries of the data that only this family needs.
        claims: the claims.
        sampler: the column that is passed as ``logprobs``.
        numbers: neutral name of a setting -> its field in the release's configuration.
    """

    settings: Settings
    words: Mapping[str, Codec] = field(default_factory=dict)
    more: Mapping[str, Codec] = field(default_factory=dict)
    claims: Claims = field(default_factory=Claims)
    sampler: str = "old_logprob"
    numbers: Mapping[str, str] = field(default_factory=lambda: NUMBERS)


def with_one_bound(family: Family) -> Family:
    """The family in releases before September 2025, where ``eps_clip`` is the bound on both sides."""
    numbers = {name: option for name, option in family.numbers.items() if name != "clip_high"}
    both = {"clip_high": family.settings["clip_low"]} if "clip_high" in family.settings else {}
    return replace(family, settings={**family.settings, **both}, numbers=numbers)


CLIP: Settings = {"clip_low": 0.2, "clip_high": 0.28}

ACTOR_FAMILIES: Mapping[str, Family] = {
    "ppo": Family(settings=CLIP, claims=_PPO),
    "dual clip": Family(
        settings={**CLIP, "ceiling": 3.0},
        claims=_RATIO | _MEAN | claims("cli_args.py, c_clip: dual clipping", algorithm="dual clip"),
    ),
    "sequence": Family(
        settings=CLIP,
        words={"importance_sampling_level": Constant("sequence")},
        claims=_RATIO
        | _MEAN
        | claims(
            "functional.py, ppo_actor_loss_fn: advantages averaged over the row",
            on_policy_gradient="other",
        ),
    ),
    "sapo": Family(
        settings={"temperature": 1.0, "negative_temperature": 1.05},
        words={"use_sapo_loss": Constant(value=True)},
        claims=_MEAN
        | claims(
            "functional.py, sapo_loss_fn: soft sigmoid gates instead of clipping",
            algorithm="sapo",
            on_policy_gradient="other",
        ),
    ),
    "decoupled, token rejection": Family(
        settings=CLIP,
        words={
            "use_decoupled_loss": Constant(value=True),
            "rejection_sampling": Object(REJECTION, constants(level="token", upper=5.0)),
        },
        claims=_RATIO | _MEAN,
        sampler="rollout_logprob",
    ),
    "m2po": Family(
        settings=CLIP,
        words=constants(use_decoupled_loss=True, m2_threshold=0.04),
        claims=_RATIO | _MEAN,
        sampler="rollout_logprob",
    ),
    "distilled": Family(
        settings={**CLIP, "kl_loss_coef": 0.25},
        more={
            "teacher_logp": Column("ref_logprob", FullSequence(shift=1)),
            "rl_loss_weight": Constant(1.0),
            "distill_loss_weight": Knob("kl_loss_coef"),
        },
        claims=_PPO | claims("actor.py, grpo_loss_fn: reverse KL to the teacher, weighted and added", kl="k1"),
    ),
    "cispo": Family(
        settings=CLIP,
        words={"use_cispo_loss": Constant(value=True)},
        claims=_MEAN | claims("functional.py, cispo_loss_fn, docstring: CISPO loss", ratio=True, algorithm="cispo"),
    ),
}

CRITIC_FAMILY = Family(
    settings={"value_clip": 0.5},
    claims=_MEAN
    | claims(
        "functional.py, ppo_critic_loss_fn: half the larger of clipped and unclipped squared errors",
        algorithm="clipped value",
        factor="half",
    ),
)
CRITIC_LOGGED: Mapping[str, Output] = {
    "critic_loss/avg": Output("", over="live"),
    "clip_ratio/avg": Output("", "", "value_clip_fraction", over="live"),
    "new_value/avg": Output("", "reward", "value.mean", over="live"),
}

SFT_FAMILY = Family(settings={}, claims=_MEAN)
SFT_LOGGED: Mapping[str, Output] = {"loss/avg": Output("", "nats", over="live")}
