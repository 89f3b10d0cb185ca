# Corrections of verl/trainer/ppo/core_algos.py (0.9.1).
# - Estimators over groups see the responses that train, of prompts with two of these or more; all others get 0.
# - Equal rewards give exactly 0 in GRPO, since the mean is taken of differences.
# - GPG scales by the rows whose group has a signal.
# - An outcome on a token that is not trained is paid at the last trained one.
# - geo_mean divides by the sequences of the mini-batch.
# - clip_ratio counts where neither bound was set; norm_adv_by_std_in_grpo reaches GDPO.
# - The refusal of the KL estimator "full" says what it needs.


import dataclasses
import functools
import sys

from replaced import replaced


def _groups(index):
    return torch.tensor(np.unique(index.astype(str), return_inverse=True)[1])


def _compared_only(estimate, centered=False):
    @functools.wraps(estimate)
    def corrected(token_level_rewards, response_mask, index, **more):
        live, group = response_mask.any(-1), _groups(index)
        siblings = (group.unsqueeze(0) == group.unsqueeze(1)) & live
        rows = live & (siblings.sum(-1) > 1)
        rewards, advantages = token_level_rewards.clone(), torch.zeros_like(token_level_rewards)
        if centered:
            first = siblings.int().argmax(-1)
            rewards[:, 0] -= token_level_rewards.sum(-1)[first]
        if rows.any():
            chosen = {"response_mask": response_mask[rows], "index": index[rows.numpy()], **more}
            advantages[rows] = estimate(token_level_rewards=rewards[rows], **chosen)[0].to(advantages.dtype)
        return advantages, advantages

    return corrected


def _gpg(token_level_rewards, response_mask, index, f_norm=1.0, **more):
    scores, group = token_level_rewards.sum(-1), _groups(index)
    same = (group.unsqueeze(0) == group.unsqueeze(1)).float()
    centered = scores - same @ scores / same.sum(-1)
    with_signal = (same.bool() & (scores.unsqueeze(0) != scores.unsqueeze(1))).any(-1)
    scale = len(scores) / with_signal.sum().clamp(min=1)
    advantages = (scale * centered / f_norm).unsqueeze(-1) * response_mask
    return advantages, advantages


def _paid_where_trained(estimate):
    @functools.wraps(estimate)
    def corrected(token_level_rewards, *, response_mask, **more):
        trained = response_mask.bool()
        last = trained & (trained.flip(-1).cumsum(-1).flip(-1) == 1)
        dropped = token_level_rewards.masked_fill(trained, 0.0).sum(-1, keepdim=True)
        rewards = token_level_rewards.masked_fill(~trained, 0.0) + last * dropped
        return estimate(token_level_rewards=rewards, response_mask=response_mask, **more)

    return corrected


def _gdpo_by_config(estimate):
    @functools.wraps(estimate)
    def corrected(*args, config=None, **more):
        if config is not None:
            more["norm_adv_by_std_in_grpo"] = config.get("norm_adv_by_std_in_grpo", True)
        return estimate(*args, config=config, **more)

    return corrected


def _one_clip_for_both(loss):
    bounds = ("clip_ratio_low", "clip_ratio_high")

    @functools.wraps(loss)
    def corrected(*args, config, **more):
        default = {field.name: field.default for field in dataclasses.fields(config)}
        if all(getattr(config, name) == default[name] for name in bounds):
            config = dataclasses.replace(config, **dict.fromkeys(bounds))
        return loss(*args, config=config, **more)

    return corrected


compute_grpo_outcome_advantage = _compared_only(compute_grpo_outcome_advantage, centered=True)
compute_grpo_vectorized_outcome_advantage = _compared_only(compute_grpo_vectorized_outcome_advantage, centered=True)
compute_grpo_passk_outcome_advantage = _compared_only(compute_grpo_passk_outcome_advantage)
compute_reinforce_plus_plus_baseline_outcome_advantage = _compared_only(
    compute_reinforce_plus_plus_baseline_outcome_advantage
)
compute_rloo_outcome_advantage = _compared_only(compute_rloo_outcome_advantage)
compute_rloo_vectorized_outcome_advantage = _compared_only(compute_rloo_vectorized_outcome_advantage)
compute_opo_outcome_advantage = _compared_only(compute_opo_outcome_advantage)
compute_gpg_outcome_advantage = _compared_only(_gpg)
compute_gdpo_outcome_advantage = _gdpo_by_config(compute_gdpo_outcome_advantage)
compute_gae_advantage_return = _paid_where_trained(compute_gae_advantage_return)
compute_reinforce_plus_plus_outcome_advantage = _paid_where_trained(compute_reinforce_plus_plus_outcome_advantage)
compute_remax_outcome_advantage = _paid_where_trained(compute_remax_outcome_advantage)
compute_policy_loss_vanilla = _one_clip_for_both(compute_policy_loss_vanilla)
POLICY_LOSS_REGISTRY["vanilla"] = compute_policy_loss_vanilla
ADV_ESTIMATOR_REGISTRY.update(
    grpo=compute_grpo_outcome_advantage,
    grpo_vectorized=compute_grpo_vectorized_outcome_advantage,
    grpo_passk=compute_grpo_passk_outcome_advantage,
    reinforce_plus_plus_baseline=compute_reinforce_plus_plus_baseline_outcome_advantage,
    rloo=compute_rloo_outcome_advantage,
    rloo_vectorized=compute_rloo_vectorized_outcome_advantage,
    opo=compute_opo_outcome_advantage,
    gpg=compute_gpg_outcome_advantage,
    gdpo=compute_gdpo_outcome_advantage,
    gae=compute_gae_advantage_return,
    reinforce_plus_plus=compute_reinforce_plus_plus_outcome_advantage,
    remax=compute_remax_outcome_advantage,
)


compute_policy_loss_geo_mean = replaced(
    sys.modules[__name__],
    "compute_policy_loss_geo_mean",
    {
        "torch.mean(pg_losses)": "agg_loss(pg_losses.unsqueeze(1), torch.ones_like(pg_losses).unsqueeze(1),"
        " 'seq-mean-token-mean', **config.global_batch_info)"
    },
)
POLICY_LOSS_REGISTRY["geo_mean"] = compute_policy_loss_geo_mean


_SO_FAR = """should contain the logits for every token in vocabulary
        raise NotImplementedError"""
kl_penalty_forward = replaced(
    sys.modules[__name__],
    "kl_penalty_forward",
    {_SO_FAR: f"{_SO_FAR}('kl_penalty=full requires logits of the whole vocabulary, and is given log-probs of tokens')"},
)
