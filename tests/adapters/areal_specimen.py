"""A specimen of AReaL's call shapes in words of our own, as files of a source tree."""

CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class NormConfig:
        mean_level: str | None = "batch"
        mean_leave1out: bool = False
        std_level: str | None = "batch"
        group_size: int = 1

    @dataclass
    class RejectionSamplingConfig:
        level: str = "token"
        action: str = "mask"
        metric: str = "ratio"
        agg: str = "mean"
        upper: float = 5.0
        lower: float | None = None

    @dataclass
    class PPOActorConfig:
        reward_clip: float = 20.0
        kl_ctl: float = 0.1
        mask_no_eos_with_zero: bool = False
        discount: float = 1.0
        gae_lambda: float = 1.0
        reward_norm: NormConfig | None = None
        adv_norm: NormConfig | None = None
"""

DATA = """
    class KLEstimator:
        def __init__(self, kl_estimator):
            self.kl_estimator = kl_estimator
        def __call__(self, log_probs, log_probs_base):
            d = log_probs - log_probs_base
            return {"k1": d, "k2": d * d / 2, "k3": (-d).exp() - 1 + d}[self.kl_estimator]

    class Normalization:
        def __init__(self, config):
            vars(self).update(vars(config))
        def __call__(self, x, loss_mask=None):
            weight = loss_mask if loss_mask is not None else x * 0 + 1
            return (x - (x * weight).sum() / weight.sum().clamp(min=1)) * weight
"""

ACTOR = """
    import absent_engine
    from areal.utils.data import Normalization

    class PPOActor:
        def __init__(self, config, engine):
            self.config, self.engine = config, engine
            self.norm = Normalization(config.reward_norm) if config.reward_norm else None

        def _compute_advantages(self, data):
            ended = data["attention_mask"].sum(1) < data["attention_mask"].shape[1]
            mask = data["loss_mask"].roll(-1, 1)
            score = data["rewards"]
            if EARLY and self.config.mask_no_eos_with_zero:
                score = score * ended
            score = self.norm(score) if self.norm else score
            if self.config.mask_no_eos_with_zero:
                score = score * ended
            old = data["logprobs"].roll(-1, 1)
            per_token = -self.config.kl_ctl * (old - data.get("ref_logp", old)) * mask
            data["advantages"] = (score[:, None] + per_token) * mask
            data["returns"] = data["advantages"] + data.get("values", 0)
            data["kl_rewards"] = per_token
            return data
"""

FUNCTIONAL = """
    from dataclasses import dataclass
    import torch

    def _mean(x, mask):
        return torch.where(mask, x, 0.0).sum() / mask.sum().clamp(min=1)

    def ppo_actor_loss_fn(logprobs, proximal_logprobs, old_logprobs, advantages, eps_clip, loss_mask,
                          eps_clip_higher=None, c_clip=None, rejection_sampling=None,
                          importance_sampling_level="token", cu_seqlens=None):
        return _mean(-advantages * (logprobs - proximal_logprobs).exp(), loss_mask), {}

    def sapo_loss_fn(logprobs, old_logprobs, advantages, tau_pos, tau_neg, loss_mask,
                     importance_sampling_level="token", cu_seqlens=None):
        return _mean(-advantages * (logprobs - old_logprobs).sigmoid(), loss_mask), {}

    def ppo_critic_loss_fn(value, old_value, target_value, value_eps_clip, loss_mask=None, loss_fn_type="mse"):
        return _mean((value - target_value) ** 2, loss_mask), {}

    def reward_overlong_penalty(data, overlong_tokens, overlong_penalty_factor, max_response_length):
        data["rewards"] = data["rewards"] - (data["loss_mask"].sum(1) > 1).float()
        return data

    @dataclass
    class Kept:
        loss_mask: torch.Tensor
        behave_imp_weight: torch.Tensor

    def apply_rejection_sampling(proximal_logprobs, old_logprobs, loss_mask, cu_seqlens, config):
        weight = (proximal_logprobs - old_logprobs).exp()
        return Kept(loss_mask & (weight <= config.upper), weight)
"""


def files(*, early: bool) -> dict[str, str]:
    """The tree; ``early`` has it void a reward before the mean is taken, not after."""
    return {
        "areal/__init__.py": "import absent_everything",
        "areal/api/cli_args.py": CONFIG,
        "areal/utils/data.py": DATA,
        "areal/utils/functional.py": FUNCTIONAL,
        "areal/trainer/ppo/actor.py": ACTOR.replace("EARLY", str(early)),
        "areal/trainer/ppo/critic.py": "class PPOCritic: ...",
    }


#: The class of a reply of the inference server.
RESPONSE = """
    from dataclasses import dataclass

    @dataclass
    class ModelResponse:
        input_tokens: list
        output_tokens: list
        output_logprobs: list
        output_versions: list = ()
        stop_reason: str = "stop"
        tokenizer: object = None
"""
