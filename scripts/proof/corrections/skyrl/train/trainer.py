# Corrections of skyrl/train/trainer.py (0.3.0).
# - Estimators are given the loss mask: what is not trained is not in the response mask.
# - The mean and deviation of advantages are those of trained tokens.


_estimated = RayPPOTrainer.compute_advantages_and_returns
_reduced = RayPPOTrainer._normalize_advantages


def compute_advantages_and_returns(self, data):
    response_mask = data["response_mask"]
    data["response_mask"] = data["loss_mask"].to(response_mask.dtype)
    data = _estimated(self, data)
    data["response_mask"] = response_mask
    return data


def _normalize_advantages(self, data, mini_batch_boundaries, prompt_boundaries=None):
    algorithm = self.cfg.trainer.algorithm
    normalized, algorithm.advantage_batch_normalize = algorithm.advantage_batch_normalize, False
    if normalized:
        mask = data["loss_mask"]
        count = mask.sum().clamp(min=1)
        centered = (data["advantages"] - (data["advantages"] * mask).sum() / count) * mask
        data["advantages"] = centered * (centered.square().sum() / count).clamp(min=1e-8).rsqrt()
    data = _reduced(self, data, mini_batch_boundaries, prompt_boundaries)
    algorithm.advantage_batch_normalize = normalized
    return data


RayPPOTrainer.compute_advantages_and_returns = compute_advantages_and_returns
RayPPOTrainer._normalize_advantages = _normalize_advantages
