# Corrections of slime/ray/rollout.py (624b824a8).
# - Rewards are normalized over the samples of their own group, however many there are.
# - Removed samples stay out of the statistics; equal rewards give exactly 0.


_Manager = RolloutManager.__ray_metadata__.modified_class
_unchanged = _Manager._post_process_rewards


def _post_process_rewards(self, samples):
    args = self.args
    relative = args.advantage_estimator in {"grpo", "gspo", "cispo", "reinforce_plus_plus_baseline"}
    if self.custom_reward_post_process_func is not None or not (relative and args.rewards_normalization):
        return _unchanged(self, samples)
    raw = [sample.get_reward_value(args) for sample in samples]
    rewards, normalized = torch.tensor(raw, dtype=torch.float), torch.zeros(len(raw))
    for name in {sample.group_index for sample in samples}:
        rows = [n for n, s in enumerate(samples) if s.group_index == name and not s.remove_sample]
        if len(rows) > 1:
            group = rewards[rows] - rewards[rows[0]]
            group = group - group.mean()
            divided = args.advantage_estimator != "reinforce_plus_plus_baseline" and args.grpo_std_normalization
            normalized[rows] = group / (group.std() + 1e-6) if divided else group
    return raw, normalized.tolist()


_Manager._post_process_rewards = _post_process_rewards
