"""The losses of GRPO under TRL's configuration: settings, and claims from the documentation."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims

_DOC = "grpo_config.py, GRPOConfig, docstring of {}"
_ROWS = "grpo_trainer.py, _compute_loss: a mean over all rows, trained or not"
_ACCUMULATED = "grpo_trainer.py, _compute_loss: scaled by current_gradient_accumulation_steps, as one large batch"
_COUNTED = "grpo_config.py, loss_type 'dapo': the number of active tokens in the global accumulated batch"
RATIO = claims("grpo_trainer.py, _compute_loss: exp(per_token_logps - old_per_token_logps)", ratio=True)
ROW = claims("grpo_trainer.py, _compute_loss: one advantage per row", scope="sequence")
_KL = claims(
    "grpo_trainer.py, _compute_loss: exp(ref - logp) - (ref - logp) - 1",
    kl="k3",
    output_pairs={"kl": "logprob against ref_logprob"},
)

#: Settings with rows that do not train, and with old log-probs of an earlier policy.
MASKED: Settings = {"num_iterations": 2, "mask_truncated_completions": True}
PLAIN: Settings = {"clip_low": 0.2, "clip_high": 0.28, **MASKED}


def _loss_type(name: str, **more: object) -> Claims:
    return claims(_DOC.format(f"loss_type {name!r}"), **more)


_BY_ROW = _loss_type("grpo", aggregation="sequence-mean-token-mean") | claims(_ROWS, rows="all")
_GLOBAL = claims(_COUNTED, denominator="given")
_SCALED = claims(_ACCUMULATED, denominator="given")
_PPO = _loss_type("grpo", algorithm="ppo")


@dataclass(frozen=True)
class Family:
    """A loss under some settings, and its claims; only formulas read the settings in ``described``.

    With ``tools``, completions may have untrained tokens. ``logs`` is False if another family covers the same metrics.
    """

    settings: Settings
    claims: Claims
    described: frozenset[str] = field(default_factory=frozenset)
    tools: bool = True
    logs: bool = True


CHOSEN = claims(
    "grpo_config.py, top_entropy_quantile: only tokens of high entropy contribute to the loss",
    on_policy_gradient="other",
)
_TOKENS = _loss_type("dapo", aggregation="token-mean")
_SEQUENCE: Settings = {**PLAIN, "importance_sampling_level": "sequence"}
_GSPO = claims(_DOC.format("importance_sampling_level"), algorithm="gspo")
_CISPO_FORMULA = frozenset({"clip_low", "clip_high"})

#: Families bound only in a whole optimizer step, because the step computes the columns of the sampler.
ONLY_IN_STEPS = ("off-policy mask, vLLM",)

#: The family of releases whose loss does not read old log-probs.
ON_POLICY = "on policy"

FAMILIES: Mapping[str, Family] = {
    ON_POLICY: Family({"kl_loss_coef": 0.25}, _KL, tools=False),
    "default": Family(  # without epsilon_high, epsilon bounds both sides of the range
        {"clip_low": 0.2, "clip_high": 0.2, "num_iterations": 2, "loss_type": "dapo"},
        _PPO | _TOKENS | _GLOBAL,
        frozenset({"clip_high"}),
        tools=False,
    ),
    "no loss type": Family(PLAIN, _PPO, tools=False),
    "dapo": Family({**PLAIN, "loss_type": "dapo"}, _PPO | _TOKENS | _GLOBAL),
    "grpo": Family({**PLAIN, "loss_type": "grpo"}, _PPO | _BY_ROW | _SCALED),
    "bnpo": Family({**PLAIN, "loss_type": "bnpo"}, _PPO | _loss_type("bnpo", aggregation="token-mean"), logs=False),
    "dr_grpo": Family(
        {**PLAIN, "loss_type": "dr_grpo", "length": 8},
        _PPO | _loss_type("dr_grpo", aggregation="token-sum") | _SCALED,
        logs=False,
    ),
    "cispo": Family(
        {"loss_type": "cispo", **MASKED, "ratio_high": 5.0, "clip_low": 1.0, "clip_high": 4.0},
        _loss_type("cispo", algorithm="cispo", aggregation="token-mean") | _GLOBAL,
        _CISPO_FORMULA,
    ),
    "sapo": Family(
        {"loss_type": "sapo", **MASKED, "temperature": 1.0, "negative_temperature": 1.05},
        _loss_type("sapo", algorithm="sapo", on_policy_gradient="other") | _BY_ROW | _SCALED,
    ),
    "luspo": Family(
        {**_SEQUENCE, "loss_type": "luspo"},
        _GSPO | _loss_type("luspo", aggregation="sequence-mean-token-sum") | claims(_ROWS, rows="all") | _SCALED,
        logs=False,
    ),
    "vespo": Family({"loss_type": "vespo", **MASKED}, _GLOBAL),
    "grpo, sequence": Family({**_SEQUENCE, "loss_type": "grpo"}, _GSPO | _BY_ROW | _SCALED),
    "grpo, sequence and token": Family(
        {**PLAIN, "importance_sampling_level": "sequence_token", "loss_type": "grpo"}, _BY_ROW | _SCALED
    ),
    "two-sided clip": Family(
        {**PLAIN, "loss_type": "grpo", "ceiling": 3.0},
        claims(_DOC.format("delta"), algorithm="dual clip") | _BY_ROW | _SCALED,
    ),
    "KL": Family(
        {**PLAIN, "loss_type": "grpo", "kl_loss_coef": 0.25, "use_bias_correction_kl": False},
        _PPO | _KL | _BY_ROW | _SCALED,
    ),
    "KL, no loss type": Family({**PLAIN, "kl_loss_coef": 0.25}, _PPO | _KL),
    "KL, corrected": Family(
        {**PLAIN, "loss_type": "grpo", "kl_loss_coef": 0.25, "use_bias_correction_kl": True}, _SCALED
    ),
    "off-policy mask": Family({**PLAIN, "loss_type": "grpo", "threshold": 0.1}, _SCALED, logs=False),
    "off-policy mask, vLLM": Family(
        {
            **PLAIN,
            "loss_type": "grpo",
            "threshold": 0.1,
            "use_vllm": True,
            "vllm_importance_sampling_mode": "token_truncate",
        },
        _SCALED,
        tools=False,
    ),
    "top entropy": Family(
        {**PLAIN, "loss_type": "grpo", "top_entropy_quantile": 0.25},
        CHOSEN | _BY_ROW | claims(_DOC.format("top_entropy_quantile"), algorithm="ppo of uncertain tokens"),
        logs=False,
    ),
    "entropy percentile": Family(
        {**PLAIN, "loss_type": "grpo", "token_entropy_percentile_threshold": 0.5}, CHOSEN, logs=False
    ),
    "entropy bonus": Family({**PLAIN, "loss_type": "grpo", "entropy_coef": 0.5}, Claims()),
    "vLLM, token_truncate": Family(
        {**PLAIN, "loss_type": "grpo", "use_vllm": True, "vllm_importance_sampling_mode": "token_truncate"},
        _PPO
        | _BY_ROW
        | _SCALED
        | claims(_DOC.format("vllm_importance_sampling_mode"), corrected_at_most=3.0, corrected_by="token"),
        tools=False,
    ),
    "vLLM, capped": Family(
        {**PLAIN, "loss_type": "grpo", "use_vllm": True, "vllm_importance_sampling_cap": 2.0},
        _PPO
        | _BY_ROW
        | _SCALED
        | claims(_DOC.format("vllm_importance_sampling_cap"), corrected_at_most=2.0, corrected_by="token"),
        tools=False,
        logs=False,
    ),
    "vLLM, token_mask": Family(
        {**PLAIN, "loss_type": "grpo", "use_vllm": True, "vllm_importance_sampling_mode": "token_mask"},
        _SCALED,
        tools=False,
        logs=False,
    ),
    "vLLM, sequence_mask": Family(
        {**PLAIN, "loss_type": "grpo", "use_vllm": True, "vllm_importance_sampling_mode": "sequence_mask"},
        _SCALED,
        tools=False,
        logs=False,
    ),
    "vLLM, sequence_truncate": Family(
        {**PLAIN, "loss_type": "grpo", "use_vllm": True, "vllm_importance_sampling_mode": "sequence_truncate"},
        _SCALED,
        tools=False,
        logs=False,
    ),
}

#: Families of subclasses that define a loss.
OF_SUBCLASSES = (
    *("no loss type", "dapo", "grpo", "bnpo", "dr_grpo", "grpo, sequence", "grpo, sequence and token"),
    *("two-sided clip", "KL", "top entropy"),
)

#: Family of older releases -> the field that replaced it: releases with the field do not have the family.
REPLACED = {
    "no loss type": "loss_type",
    "KL, no loss type": "loss_type",
    "vLLM, capped": "vllm_importance_sampling_mode",
}

#: Settings that older releases lack, and the value that they imply.
IMPLIED: Settings = {"importance_sampling_level": "token", "use_bias_correction_kl": False}
