# Corrections of verl/trainer/ppo/v1/utils.py (0.9.1).
# - The outcome of a session counts where its last output is not trained and another one is.


_of_trained_outputs = compute_advantage_for_multi_trajectories


def compute_advantage_for_multi_trajectories(data, batch_keys, adv_estimator, **more):
    if adv_estimator != core_algos.AdvantageEstimator.GRPO:
        return _of_trained_outputs(data, batch_keys, adv_estimator, **more)
    mask = data.batch["response_mask"]
    sessions = [key.rpartition("_")[0] for key in batch_keys]
    trained = {session for session, row in zip(sessions, mask) if row.any()}
    counted = mask.clone()
    counted[:, 0] |= torch.tensor([session in trained for session in sessions]) & ~mask.any(-1)
    data.batch["response_mask"] = counted
    data = _of_trained_outputs(data, batch_keys, adv_estimator, **more)
    data.batch["response_mask"] = mask
    data.batch["advantages"] = data.batch["returns"] = data.batch["advantages"] * mask
    return data
