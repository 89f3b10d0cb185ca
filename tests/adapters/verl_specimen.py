"""A specimen of verl's call shapes in words of our own, as files of a source tree."""

PROTOCOL = """
    import numpy as np

    class Tensors(dict):
        batch_size = (0,)

    class DataProto:
        def __init__(self, batch, non_tensor_batch, meta_info):
            self.batch, self.non_tensor_batch, self.meta_info = Tensors(batch), non_tensor_batch, meta_info
            self.batch.batch_size = (len(self),)

        @classmethod
        def from_dict(cls, tensors, non_tensors=None, meta_info=None):
            return cls(tensors, non_tensors or {}, meta_info or {})

        def __len__(self):
            return len(next(iter(self.batch.values())))

        def __getitem__(self, rows):
            return self.select_idxs(list(range(len(self)))[rows])

        def select_idxs(self, rows):
            tensors = {k: v[rows] for k, v in self.batch.items()}
            return DataProto(tensors, {k: v[np.array(rows)] for k, v in self.non_tensor_batch.items()}, {})
"""

ALGORITHM = """
    from dataclasses import dataclass, field

    @dataclass
    class AlgoConfig:
        gamma: float = 1.0
        lam: float = 1.0
        norm_adv_by_std_in_grpo: bool = True
        gdpo_reward_keys: list | None = None

        def get(self, key, default=None):
            return getattr(self, key, default)
"""

ACTOR = """
    from dataclasses import dataclass, field

    @dataclass
    class PolicyLossConfig:
        loss_mode: str = "vanilla"

    @dataclass
    class FSDPActorConfig:
        loss_agg_mode: str = "token-mean"
        kl_loss_type: str = "k3"
        use_kl_loss: bool = False
        entropy_coeff: float = 0.0
        kl_loss_coef: float = 0.001
        rollout_n: int = 1
        ppo_micro_batch_size_per_gpu: int = 1
        clip_ratio: float = 0.2
        clip_ratio_low: float = 0.2
        clip_ratio_high: float = 0.2
        clip_ratio_c: float = 3.0
        policy_loss: PolicyLossConfig = field(default_factory=PolicyLossConfig)
        global_batch_info: dict = field(default_factory=dict)

        def __post_init__(self):
            if CHECKED and self.kl_loss_type not in ("k1", "k2", "k3"):
                raise ValueError(f"no such kind: {self.kl_loss_type}")
            if CHECKED and self.loss_agg_mode not in ("token-mean", "seq-mean-token-mean"):
                raise ValueError(f"no such mode: {self.loss_agg_mode}")
            if CHECKED and self.clip_ratio_high < 0:
                raise ValueError("a range that ends before it begins")
            if CHECKED and self.clip_ratio_c <= 1:
                raise ValueError("a bound below the ratio of 1")
"""

CORE = """
    from enum import Enum
    import torch

    ADV_ESTIMATOR_REGISTRY, POLICY_LOSS_REGISTRY = {}, {}

    class AdvantageEstimator(str, Enum):
        GAE, GRPO, GDPO = "gae", "grpo", "gdpo"

    def register_adv_est(name):
        return lambda f: ADV_ESTIMATOR_REGISTRY.setdefault(getattr(name, "value", name), f)

    def register_policy_loss(name):
        return lambda f: POLICY_LOSS_REGISTRY.setdefault(name, f)

    def centered(score, index):
        same = torch.tensor([[a == b for a in index] for b in index]).to(score.dtype)
        return score - same @ score / same.sum(1)

    @register_adv_est(AdvantageEstimator.GRPO)
    def compute_grpo_outcome_advantage(token_level_rewards, response_mask, index, norm_adv_by_std_in_grpo=True):
        advantage = centered(token_level_rewards.sum(1), index)[:, None] * response_mask
        return advantage, advantage

    @register_adv_est("rloo")
    def compute_rloo_outcome_advantage(token_level_rewards, response_mask, index, config=None):
        return compute_grpo_outcome_advantage(token_level_rewards, response_mask, index)

    @register_adv_est(AdvantageEstimator.GDPO)
    def compute_gdpo_outcome_advantage(
        token_level_rewards, response_mask, index, config=None, non_tensor_batch=None, batch=None
    ):
        scores = [token_level_rewards.sum(1)]
        if non_tensor_batch is not None:
            scores = [torch.tensor(non_tensor_batch[key]) for key in config.gdpo_reward_keys]
        advantage = sum(centered(score, index) for score in scores)[:, None] * response_mask
        return advantage, advantage

    @register_adv_est(AdvantageEstimator.GAE)
    def compute_gae_advantage_return(token_level_rewards, values, response_mask, gamma, lam):
        later = token_level_rewards.flip(1).cumsum(1).flip(1)
        return (later - values) * response_mask, later

    @register_policy_loss("vanilla")
    def compute_policy_loss_vanilla(
        old_log_prob, log_prob, advantages, response_mask, loss_agg_mode="token-mean", config=None,
        rollout_is_weights=None,
    ):
        ratio = (log_prob - old_log_prob).exp()
        low, high = 1 - config.clip_ratio_low, 1 + config.clip_ratio_high
        plain, clipped = -advantages * ratio, -advantages * ratio.clamp(low, high)
        bound = ((clipped > plain) * response_mask).sum() / response_mask.sum().clamp(min=1)
        kl = ((old_log_prob - log_prob) * response_mask).sum() / response_mask.sum().clamp(min=1)
        loss = agg_loss(torch.maximum(plain, clipped), response_mask, loss_agg_mode)
        return loss, {"actor/pg_clipfrac": bound.item(), "actor/ppo_kl": kl.item()}

    def agg_loss(loss_mat, loss_mask, loss_agg_mode):
        if loss_agg_mode == "token-mean":
            return (loss_mat * loss_mask).sum() / loss_mask.sum().clamp(min=1)
        if loss_agg_mode == "seq-mean-token-mean":
            rows = (loss_mat * loss_mask).sum(1) / loss_mask.sum(1).clamp(min=1)
            return rows.sum() / loss_mask.any(1).sum().clamp(min=1)
        raise ValueError(f"no such mode: {loss_agg_mode}")

    def compute_value_loss(vpreds, returns, values, response_mask, cliprange_value, loss_agg_mode="token-mean"):
        near = values + (vpreds - values).clamp(-cliprange_value, cliprange_value)
        worse = torch.maximum((vpreds - returns) ** 2, (near - returns) ** 2)
        return 0.5 * agg_loss(worse, response_mask, loss_agg_mode), torch.tensor(0.0)

    def kl_penalty(logprob, ref_logprob, kl_penalty):
        d = logprob - ref_logprob
        return {"kl": d, "abs": d.abs(), "mse": d * d / 2, "low_var_kl": (-d).exp() - 1 + d}[kl_penalty]

    class FixedKLController:
        def __init__(self, kl_coef):
            self.value = kl_coef

        def update(self, current_kl, n_steps):
            pass

    class AdaptiveKLController:
        def __init__(self, init_kl_coef, target_kl, horizon):
            self.value, self.target, self.horizon = init_kl_coef, target_kl, horizon

        def update(self, current_kl, n_steps):
            error = min(max(current_kl / self.target - 1, -0.2), 0.2)
            self.value *= 1 + error * n_steps / self.horizon

    def compute_entropy_loss(logits, response_mask, loss_agg_mode="token-mean"):
        logprobs = logits.log_softmax(-1)
        return agg_loss(-(logprobs.exp() * logprobs).sum(-1), response_mask, loss_agg_mode)

    def compute_pf_ppo_reweight_data(data, reweight_method="pow", weight_pow=2.0):
        size = data.batch["token_level_scores"].sum(1).abs()
        weight = size**weight_pow + 1e-8 if reweight_method == "pow" else size + 1.0
        return data.select_idxs(torch.multinomial(weight, len(data), replacement=True).tolist())
"""

RAY_TRAINER = """
    from verl.trainer.ppo import core_algos
    from verl.trainer.ppo.core_algos import AdvantageEstimator

    def compute_advantage(data, adv_estimator, gamma=1.0, lam=1.0, norm_adv_by_std_in_grpo=True, config=None):
        estimate = core_algos.ADV_ESTIMATOR_REGISTRY[adv_estimator]
        given = {"response_mask": data.batch["response_mask"]}
        given["token_level_rewards"] = data.batch["token_level_rewards"]
        if adv_estimator == AdvantageEstimator.GAE:
            given |= {"values": data.batch["values"], "gamma": gamma, "lam": lam}
        else:
            given["index"] = data.non_tensor_batch["uid"]
        if adv_estimator == AdvantageEstimator.GDPO:
            given |= {"config": config, "non_tensor_batch": data.non_tensor_batch, "batch": data.batch}
        if adv_estimator not in list(AdvantageEstimator):
            given["config"] = config
        data.batch["advantages"], data.batch["returns"] = estimate(**given)
        return data

    def apply_kl_penalty(data, kl_ctrl, kl_penalty="kl"):
        mask = data.batch["response_mask"]
        kl = core_algos.kl_penalty(data.batch["old_log_probs"], data.batch["ref_log_prob"], kl_penalty) * mask
        rewards = data.batch["token_level_scores"] - kl_ctrl.value * kl
        current = (kl.sum(1) / mask.sum(1).clamp(min=1)).mean().item()
        kl_ctrl.update(current_kl=SHAPED, n_steps=len(data))
        data.batch["token_level_rewards"] = rewards
        return data, {"actor/reward_kl_penalty": current, "actor/reward_kl_penalty_coeff": kl_ctrl.value}
"""

OUTPUTS = """
    import torch
    from verl.trainer.ppo.ray_trainer import compute_advantage

    def compute_advantage_for_multi_trajectories(
        data, batch_keys, adv_estimator, gamma=1.0, lam=1.0, norm_adv_by_std_in_grpo=True, config=None
    ):
        given = {"gamma": gamma, "lam": lam, "config": config}
        if adv_estimator != "grpo":
            return compute_advantage(data, adv_estimator, **given)
        whose, last = [key.rpartition("_")[0] for key in batch_keys], {}
        for row, key in enumerate(batch_keys):
            number = int(key.rpartition("_")[2])
            if number >= last.get(whose[row], (-1, 0))[0]:
                last[whose[row]] = (number, row)
        final = compute_advantage(data.select_idxs([row for _, row in last.values()]), adv_estimator, **given)
        mask, answers = data.batch["response_mask"], final.batch["advantages"]
        one = answers.gather(1, final.batch["response_mask"].argmax(1, keepdim=True))
        owner = torch.tensor([list(last).index(name) for name in whose])
        data.batch["advantages"] = data.batch["returns"] = BROADCAST
        return data
"""

CORRECTION = """
    import torch
    from verl import DataProto

    OPTIONS = ("token_k2", "seq_mean_k1")

    def compute_offpolicy_metrics(old_log_prob, rollout_log_prob, response_mask):
        metrics, count = {}, response_mask.sum(1)
        metrics["kl"] = (((rollout_log_prob - old_log_prob) * response_mask).sum() / count.sum().clamp(min=1)).item()
        each = (-(old_log_prob * response_mask).sum(1) / count.clamp(min=1)).exp()
        metrics["training_ppl"] = (each[LIVE].mean()).item()
        return metrics

    def compute_rollout_correction_and_rejection_mask(
        old_log_prob, rollout_log_prob, response_mask, rollout_is=None, rollout_is_threshold: str | float = 2.0,
        rollout_rs=None, rollout_rs_threshold=None, rollout_rs_threshold_lower=None, rollout_is_batch_normalize=False,
    ):
        if not response_mask.any():
            raise ValueError("nothing to train")
        ratio, weights, metrics = (old_log_prob - rollout_log_prob).exp() * response_mask, None, {}
        if rollout_is is not None:
            upper = float(str(rollout_is_threshold).rpartition("_")[2])
            if rollout_is == "sequence":
                total = ((old_log_prob - rollout_log_prob) * response_mask).sum(1, keepdim=True)
                ratio = total.exp() * response_mask
            bounded = ratio.clamp(max=upper).DETACHED
            metrics["rollout_is_mean"] = (bounded.sum() / response_mask.sum()).item()
            weights = DataProto.from_dict({"rollout_is_weights": bounded})
        kept = response_mask
        if rollout_rs is not None:
            log_ratio = (rollout_log_prob - old_log_prob).abs() * response_mask
            far = log_ratio.amax(1, keepdim=True) if rollout_rs.startswith("seq") else log_ratio
            kept = response_mask * (far <= 0.7)
            assert rollout_rs in OPTIONS, f"{rollout_rs} is no option"
            metrics["rollout_rs_masked_fraction"] = 1 - (kept.sum() / response_mask.sum()).item()
        return weights, kept, {f"rollout_corr/{name}": value for name, value in metrics.items()}
"""

NAIVE = """
    import torch

    class NaiveRewardManager:
        def __init__(self, tokenizer, num_examine, compute_score=None):
            self.compute_score, self.tokenizer = compute_score, tokenizer

        def __call__(self, data):
            out = torch.zeros_like(data.batch["responses"], dtype=torch.float32)
            length = data.batch["attention_mask"][:, data.batch["prompts"].shape[1]:].sum(1)
            for row, about in enumerate(data.non_tensor_batch["reward_model"]):
                words = self.tokenizer.decode(data.batch["responses"][row, : length[row]])
                source = data.non_tensor_batch["data_source"][row]
                score = self.compute_score(
                    data_source=source, solution_str=words, ground_truth=about["ground_truth"], extra_info={}
                )
                out[row, length[row] - 1] = score
            return out
"""

METRICS = """
    def compute_data_metrics(batch, use_critic=True):
        mask = batch.batch["response_mask"].bool()
        scores, lengths = batch.batch["token_level_scores"].sum(1), batch.batch["attention_mask"][:, 1:].sum(1)
        answered = {"critic/score/mean": scores.mean(), "response_length/mean": lengths.float().mean()}
        return answered | {"critic/advantages/mean": batch.batch["advantages"][mask].mean()}
"""

CUSTOM = """
    import torch
    from verl.trainer.ppo.core_algos import register_adv_est, register_policy_loss

    @register_adv_est("house_rule")
    def house_rule(token_level_rewards, response_mask, **more):
        score = token_level_rewards.sum(1)
        index = more["index"]
        same = torch.tensor([[a == b for a in index] for b in index]).to(score.dtype)
        advantage = (score - same @ score / same.sum(1))[:, None] * response_mask * more["config"].gamma
        return advantage, advantage

    @register_policy_loss("house_loss")
    def house_loss(old_log_prob, log_prob, advantages, response_mask, loss_agg_mode, config, rollout_is_weights=None):
        return (-log_prob * advantages).mean(), {}
"""


def files(
    *,
    broadcast: str = "one[owner] * mask",
    fed: str = "current",
    checked: bool = True,
    live: str = "count > 0",
    detached: str = "detach()",
) -> dict[str, str]:
    """The tree of a sound specimen, or of one that goes wrong in a place."""
    ppo = "verl/trainer/ppo"
    return {
        "verl/__init__.py": "from verl.protocol import DataProto\n",
        "verl/protocol.py": PROTOCOL,
        "verl/trainer/config/__init__.py": "from verl.trainer.config.algorithm import AlgoConfig\n",
        "verl/trainer/config/algorithm.py": ALGORITHM,
        "verl/workers/config/__init__.py": "from verl.workers.config.actor import FSDPActorConfig, PolicyLossConfig\n",
        "verl/workers/config/actor.py": ACTOR.replace("CHECKED", str(checked)),
        "verl/workers/reward_manager/naive.py": NAIVE,
        f"{ppo}/core_algos.py": CORE,
        f"{ppo}/ray_trainer.py": RAY_TRAINER.replace("SHAPED", fed),
        f"{ppo}/metric_utils.py": METRICS,
        f"{ppo}/rollout_corr_helper.py": CORRECTION.replace("LIVE", live).replace("DETACHED", detached),
        f"{ppo}/v1/utils.py": OUTPUTS.replace("BROADCAST", broadcast),
    }
