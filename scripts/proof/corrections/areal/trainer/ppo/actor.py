# Corrections of areal/trainer/ppo/actor.py (1.0.4).
# - Statistics of a group are those of its prompt's rows, however many there are.
# - Rewards that train nothing, or are suppressed, stay out of the statistics.
# - The outcome is paid at the last trained token.
# - The longest of the rows that train are taken for unfinished, whatever else is in the batch.
# - adv_norm around a group's mean counts each response once, as its documented formulas do.
# - M2PO selects the tokens of a mini-batch before it is split into micro-batches.

from replaced import replaced


def compute_advantages(self, data):
    """Keep the number of rows of each prompt for the normalization."""
    self.prompt_sizes = [len(prompt["rewards"]) for prompt in data]
    return batched_call(self._compute_advantages, data)


def _normalized(self, norm, score, counted):
    if norm is None:
        return score
    if "group" not in {norm.mean_level, norm.std_level}:
        return norm(score, counted)
    sizes = getattr(self, "prompt_sizes", None) or [norm.group_size] * (len(score) // norm.group_size)
    parts = []
    for part, counts in zip(score.split(sizes), counted.split(sizes)):
        norm.group_size = len(part)
        parts.append(norm(part, counts))
    return torch.cat(parts)


def _with_normalized_advantages(self, advantages, mask):
    norm = self.adv_norm
    if norm is None:
        return advantages
    if norm.mean_level != "group" or norm.std_level is not None:
        return norm(advantages, mask)
    rows = (advantages * mask).sum(-1) / mask.sum(-1).clamp(min=1)
    centered = _normalized(self, norm, rows, mask.any(-1).float())
    return (advantages + (centered - rows).unsqueeze(-1)) * mask


def _compute_advantages(self, data):
    """Normalized outcome at the last trained token, less a KL penalty at each trained token; then GAE over these."""
    mask = data["loss_mask"].float().roll(-1, -1)
    lengths = data["attention_mask"].sum(-1)
    live = mask.any(-1)
    cut_off = lengths == (lengths * live).max()
    counted = live & ~(cut_off & bool(self.mask_no_eos_with_zero))
    score = (data["rewards"] + self.reward_bias) * self.reward_scaling
    score = score.clip(-self.reward_clip, self.reward_clip)
    score = torch.where(counted, _normalized(self, self.reward_norm, score, counted.float()), torch.zeros_like(score))
    old = data["logprobs"].roll(-1, -1) * mask
    reference = data["ref_logp"] * mask if "ref_logp" in data else torch.zeros_like(old)
    penalty = -self.kl_ctl * self.kl_estimator(old, reference) * mask
    last = mask * (mask.flip(-1).cumsum(-1).flip(-1) == 1)
    rewards = penalty + last * score.unsqueeze(-1)
    values = data.get("values", torch.zeros_like(rewards))
    advantages, ahead = torch.zeros_like(rewards), torch.zeros_like(score)
    following = values.gather(1, lengths.unsqueeze(1).long() - 1).squeeze(1) * cut_off
    for t in reversed(range(mask.shape[1] - 1)):
        trained = mask[:, t].bool()
        step = rewards[:, t] + self.discount * following - values[:, t] + self.discount * self.gae_lambda * ahead
        ahead, following = torch.where(trained, step, ahead), torch.where(trained, values[:, t], following)
        advantages[:, t] = ahead
    data["returns"] = advantages + values
    data["advantages"] = _with_normalized_advantages(self, advantages, mask)
    return data | {"kl_rewards": penalty, "tot_rewards": rewards, "loss_mask": mask, "logprobs": old}


def _in_place(self, data):
    data.update(_compute_advantages(self, data))
    return data


def _selected_tokens(self, mb):
    """The mini-batch with the tokens that M2PO keeps as its mask."""
    if self.m2_threshold is None:
        return mb
    trained = mb["loss_mask"].bool().contiguous()
    chosen = _apply_m2po_masking(mb["logprobs"], mb["prox_logp"], trained, self.m2_threshold)
    return mb | {"loss_mask": chosen.to(mb["loss_mask"].dtype)}


PPOActor.compute_advantages = compute_advantages
PPOActor._compute_advantages = _in_place
PPOActor._ppo_update = replaced(
    PPOActor,
    "_ppo_update",
    {
        "self.engine.train_batch(\n                mb,": "self.engine.train_batch(\n                _selected_tokens(self, mb),",
        "m2_threshold=self.m2_threshold": "m2_threshold=None",
    },
)
