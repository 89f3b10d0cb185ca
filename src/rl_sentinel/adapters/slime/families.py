"""slime's losses by command line: settings, claims and logged metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rl_sentinel.adapters.kit.value_codecs import Computed
from rl_sentinel.adapters.slime.arguments import GROUP_SUMS, LOSS, MASK_SUMS
from rl_sentinel.core.boundary import Output
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims

#: Neutral name of a setting -> its argument on slime's command line.
NUMBERS: Mapping[str, str] = {
    "clip_low": "eps_clip",
    "clip_high": "eps_clip_high",
    "ceiling": "eps_clip_c",
    "entropy_coeff": "entropy_coef",
    "kl_loss_coef": "kl_loss_coef",
    "value_clip": "value_clip",
    "most": "tis_clip",
    "least": "tis_clip_low",
}

#: Arguments of every run, at the defaults of slime/utils/arguments.py.
DEFAULTS: Settings = {
    "advantage_estimator": "grpo",
    "loss_type": "policy_loss",
    "eps_clip": 0.2,
    "eps_clip_high": 0.2,
    "eps_clip_c": None,
    "value_clip": 0.2,
    "entropy_coef": 0.0,
    "use_kl_loss": False,
    "kl_loss_coef": 0.0,
    "kl_loss_type": "k1",
    "use_unbiased_kl": False,
    "use_rollout_logprobs": False,
    "use_opsm": False,
    "opsm_delta": 1e-4,
    "use_tis": False,
    "tis_clip": 2.0,
    "tis_clip_low": 0,
    "get_mismatch_metrics": False,
    "custom_tis_function_path": None,
    "custom_pg_loss_reducer_function_path": None,
    "calculate_per_token_loss": False,
    "use_dynamic_batch_size": False,
    "recompute_loss_function": False,
    "allgather_cp": False,
    "rollout_temperature": 1.0,
    "rollout_top_p": 1.0,
    "log_probs_chunk_size": -1,
    "qkv_format": "thd",
}

_GIVEN = claims(
    "loss.py, loss_function: num_microbatches, step_global_batch_size and rollout_mask_sums are those of the step",
    denominator="given",
)
_BY_SAMPLE = _GIVEN | claims(
    "cp_utils.py, get_sum_of_sample_mean: mean over each sample's tokens; loss.py, loss_function: sum of these "
    "means divided by step_global_batch_size",
    aggregation="sequence-mean-token-mean",
    rows="all",
)
_BY_ROLLOUT = _GIVEN | claims(
    "cp_utils.py, get_sum_of_sample_mean: every sample in the same rollout group carries the sum of that rollout's "
    "mask totals; step_global_batch_size counts rollouts",
    aggregation="prompt-mean",
    rows="all",
    grouping="id",
)
_BY_TOKEN = _GIVEN | claims("arguments.py: --calculate-per-token-loss", aggregation="token-mean")
_RATIO = claims("ppo_utils.py, compute_policy_loss: ratio of the current to the old policy", ratio=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A loss under one command line, and its claims.

    Attributes:
        settings: settings by neutral name.
        words: other options.
        claims: the claims.
        columns: further columns of the data.
        rollouts: the number of trained tokens in each sample's rollout.
        reports: metrics besides :data:`REPORTS`.
        rejects: whether a user's function removes tokens from the mask; :data:`REPORTS`, which count the remaining
            tokens, are then not checked.
        live: whether every sample has a trained token, so that a fault of other samples does not hide a further one;
            :data:`REPORTS` are then not checked again.
    """

    settings: Settings
    words: Settings = field(default_factory=dict)
    claims: Claims = field(default_factory=Claims)
    columns: tuple[str, ...] = ()
    rollouts: Computed = MASK_SUMS
    reports: Mapping[str, Output] = field(default_factory=dict)
    rejects: bool = False
    live: bool = False


CLIP: Settings = {"clip_low": 0.2, "clip_high": 0.28}

_PPO = _RATIO | claims("loss.py, policy_loss_function: PPO-style clipped loss", algorithm="ppo")

#: The metrics of every policy loss. reduce_train_step_metrics, docstring: "per-rollout-mean: divisor = constant
#: step_global_batch_size from the rollout side", which model.py, train_one_step passes ("Rollout count for this
#: training step"), so a sample without a trained token is declared to count; "per-token-loss: the genuine per-token
#: average".
REPORTS: Mapping[str, Output] = {
    "pg_loss": Output(""),
    "entropy_loss": Output("", "nats", "entropy.mean"),
    "pg_clipfrac": Output("", "", "clip_fraction"),
    "ppo_kl": Output("", "nats", "kl.k1"),
}

_TIS_REPORTS: Mapping[str, Output] = {
    "ois": Output("", "ratio", "ratio.mean"),
    "tis": Output("", "ratio", "ratio.mean"),
    "tis_clipfrac": Output("", "", "ratio_outside"),
    "tis_abs": Output("", "ratio", "ratio_distance.mean"),
    "train_rollout_logprob_abs_diff": Output("", "nats", "kl.abs"),
}

_KL_LOSS = claims(
    "arguments.py: --use-kl-loss, --kl-loss-type low_var_kl, --entropy-coef",
    kl="k3",
    output_pairs={"kl_loss": "logprob against ref_logprob"},
)

_TIS: Settings = {"most": 2.0, "least": 0.0}

POLICY: Mapping[str, Family] = {
    "grpo": Family(settings=CLIP, claims=_PPO | _BY_SAMPLE),
    "grpo, several samples": Family(
        settings=CLIP,
        claims=_PPO | _BY_ROLLOUT,
        rollouts=GROUP_SUMS,
    ),
    "grpo, per token": Family(settings=CLIP, words={"calculate_per_token_loss": True}, claims=_PPO | _BY_TOKEN),
    "grpo, per token, every sample trains": Family(
        settings=CLIP, words={"calculate_per_token_loss": True}, claims=_PPO | _BY_TOKEN, live=True
    ),
    "grpo, dual clip": Family(
        settings={**CLIP, "ceiling": 3.0},
        claims=_RATIO
        | claims("arguments.py: --eps-clip-c, lower bound of dual-clip PPO", algorithm="dual clip")
        | _BY_SAMPLE,
    ),
    "grpo, regularized": Family(
        settings={**CLIP, "entropy_coeff": 0.5, "kl_loss_coef": 0.25},
        words={"use_kl_loss": True, "kl_loss_type": "low_var_kl"},
        claims=_PPO | _BY_SAMPLE | _KL_LOSS,
        columns=("ref_logprob",),
        reports={"kl_loss": Output("", "nats", "kl.mean")},
    ),
    "gspo": Family(
        settings=CLIP,
        words={"advantage_estimator": "gspo"},
        claims=claims("ppo_utils.py, compute_gspo_kl: one value per sequence", ratio=True, scope="sequence")
        | _BY_SAMPLE,
        reports={
            "pg_clipfrac": Output("", "", "clip_fraction.own")
        },  # by the ratio of the sequence and the advantage of each token
    ),
    "cispo": Family(
        settings={"clip_low": 1.0, "clip_high": 4.0},
        words={"advantage_estimator": "cispo"},
        claims=claims("ppo_utils.py, compute_cispo_loss, docstring: CISPO loss", algorithm="cispo") | _BY_SAMPLE,
    ),
    "grpo, tis": Family(
        settings={**CLIP, **_TIS},
        words={"use_tis": True},
        claims=_PPO
        | _BY_SAMPLE
        | claims(
            "arguments.py: --use-tis, --tis-clip: truncated importance sampling",
            corrected_at_most=2.0,
            corrected_by="token",
        ),
        columns=("rollout_logprob",),
        reports=_TIS_REPORTS,
    ),
    "grpo, icepop": Family(
        settings={**CLIP, "most": 2.0, "least": 0.5},
        words={"use_tis": True, "custom_tis_function_path": f"{LOSS}.icepop_function"},
        claims=_RATIO | _BY_SAMPLE,
        columns=("rollout_logprob",),
        reports=_TIS_REPORTS,
    ),
    "grpo, rejection": Family(
        settings={**CLIP, "most": 2.0, "least": 0.5},
        words={"use_tis": True, "custom_tis_function_path": "user.reject_outside"},
        claims=_RATIO,
        columns=("rollout_logprob",),
        # loss.py, policy_loss_function: metrics of the correction are defined over the tokens before rejection.
        reports={name: output for name, output in _TIS_REPORTS.items() if name != "train_rollout_logprob_abs_diff"},
        rejects=True,
    ),
    "grpo, opsm": Family(
        settings={**CLIP, "opsm_delta": 0.1},
        words={"use_opsm": True},
        claims=_RATIO | _BY_SAMPLE,
        reports={"opsm_clipfrac": Output("", "", "fraction")},
    ),
}

VALUE = Family(
    settings={"value_clip": 0.2},
    words={"loss_type": "value_loss"},
    claims=claims(
        "loss.py, value_loss_function: the larger of clipped and unclipped squared errors",
        algorithm="clipped value",
        factor="the square",
    )
    | _BY_SAMPLE,
    reports={"value_clipfrac": Output("", "", "value_clip_fraction")},
)

SFT = Family(
    settings={},
    words={"loss_type": "sft_loss"},
    claims=claims(
        "loss.py, sft_loss_function: minus the log-probs of the target tokens", algorithm="negative log-likelihood"
    )
    | _BY_SAMPLE,
)
