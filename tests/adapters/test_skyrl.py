"""SkyRL's adapter, on a specimen of its call shapes in words of our own."""

import pytest
import torch

from adapters.checks import Loads, answering, bound, check_verdict, judged_at, rewritten
from adapters.kit.round_trip import check_round_trips
from rl_sentinel.adapters.kit.forms import RightAligned, ZeroPadded
from rl_sentinel.adapters.loading import used
from rl_sentinel.adapters.skyrl import FRAMEWORK
from rl_sentinel.adapters.skyrl.arguments import arguments, steps_in_order
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Unbound
from rl_sentinel.core.codec import Inputs
from rl_sentinel.laws.clip_range_ends_at_old_policy import LAW as ONP002
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.masked_value_spreads import LAW as MSK004
from rl_sentinel.laws.metric_fits_no_definition import LAW as MET001
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001
from rl_sentinel.laws.nonsense_accepted import LAW as CFG003
from rl_sentinel.laws.padding_shifts_signal import LAW as PAD001
from rl_sentinel.laws.trained_token_without_signal import LAW as PLC001

CONFIG = """
    from dataclasses import dataclass, field
    from skyrl_gym.envs.sql.env import Text2SQLEnvConfig

    @dataclass
    class Correction:
        tis_ratio_type: str | None = None
        token_tis_ratio_clip_high: float = 2.0
        sequence_tis_ratio_clip_high: float = 5.0
        geo_mask_low: float = 0.99
        geo_mask_high: float = 1.01
        product_mask_low: float = 0.5
        product_mask_high: float = 2.0
        sequence_mask_metric: str | None = None
        outlier_token_is_threshold_low: float | None = None
        outlier_token_is_threshold_high: float | None = None
        token_mask_is_threshold_low: float | None = None
        token_mask_is_threshold_high: float | None = None

    @dataclass
    class CISPO:
        cispo_eps_clip_low: float = LOWER
        cispo_eps_clip_high: float = 4.0

    @dataclass
    class Algorithm:
        advantage_estimator: str = "grpo"
        kl_estimator_type: str = "k3"
        policy_loss_type: str = "regular"
        loss_reduction: str = "token_mean"
        max_seq_len: int | None = None
        value_clip: float = 0.2
        eps_clip_low: float = 0.2
        eps_clip_high: float = 0.2
        cispo: CISPO = field(default_factory=CISPO)
        advantage_batch_normalize: bool = False
        off_policy_correction: Correction = field(default_factory=Correction)

    @dataclass
    class Model:
        path: str | None = None

    @dataclass
    class Critic:
        model: Model = field(default_factory=Model)

    @dataclass
    class Trainer:
        logger: str = "wandb"
        critic: Critic = field(default_factory=Critic)
        algorithm: Algorithm = field(default_factory=Algorithm)

    @dataclass
    class Generator:
        step_wise_trajectories: bool = False

    @dataclass
    class SkyRLTrainConfig:
        trainer: Trainer = field(default_factory=Trainer)
        generator: Generator = field(default_factory=Generator)
        environment: Text2SQLEnvConfig = field(default_factory=Text2SQLEnvConfig)
"""

PPO_UTILS = """
    import ray
    import torch
    from ray.util.scheduling import Strategy

    class Registry:
        def __init__(self): self.known = {}
        def list_available(self):
            return [] if ray.is_initialized() else list(self.known)
        def get(self, name): return self.known[name]

    AdvantageEstimatorRegistry, PolicyLossRegistry = Registry(), Registry()

    @ray.remote
    class Holder: pass

    @ray.remote(num_cpus=1)
    class Other: pass

    def compute_grpo_outcome_advantage(token_level_rewards, response_mask, index, grpo_norm_by_std=True, **more):
        score = token_level_rewards.sum(1)
        same = torch.tensor([[a == b for a in index] for b in index]).float()
        score = score - same @ score / same.sum(1)
        return score[:, None] * response_mask, score[:, None] * response_mask

    def compute_gae_advantage_return(token_level_rewards, values, response_mask, gamma, lambd, **more):
        later = token_level_rewards.flip(1).cumsum(1).flip(1)
        return (later - values) * response_mask, later

    AdvantageEstimatorRegistry.known = {
        "grpo": compute_grpo_outcome_advantage, "gae": compute_gae_advantage_return
    }

    def ppo_policy_loss(log_probs, old_log_probs, advantages, config, loss_mask=None, rollout_logprobs=None):
        ratio = (log_probs - old_log_probs).exp()
        cut = ratio.clamp(1 - config.eps_clip_low, 1 + config.eps_clip_high) * advantages
        binds = (cut < ratio * advantages) & (loss_mask > 0)
        share = binds.sum() / COUNTED
        return (-torch.minimum(ratio * advantages, cut) * loss_mask).sum(), {"clip_ratio": share.item()}

    def compute_policy_loss_cispo(log_probs, old_log_probs, advantages, config, loss_mask=None, rollout_logprobs=None):
        low, high = 1 - config.cispo.cispo_eps_clip_low, 1 + config.cispo.cispo_eps_clip_high
        ratio = (log_probs - old_log_probs).exp().detach()
        beyond = ((ratio < low) | (ratio > high)) & (loss_mask > 0)
        share = beyond.sum() / COUNTED
        return (-ratio.clamp(low, high) * log_probs * advantages * loss_mask).sum(), {"clip_ratio": share.item()}

    PolicyLossRegistry.known = {
        "regular": ppo_policy_loss, "cispo": compute_policy_loss_cispo, "cross_entropy": ppo_policy_loss
    }

    def apply_loss_reduction_to_advantages_minibatch(
        advantages, loss_mask, loss_reduction, micro_batch_size, max_seq_len
    ):
        whole = LEGACY if loss_reduction == "token_mean_legacy" else SCALED
        return advantages / whole.sum().clamp(min=1)

    def normalize_advantages_dict(data):
        data["advantages"] = data["advantages"] - data["advantages"].mean()
        return data

    def ppo_critic_loss(values, old_values, returns, config, loss_mask=None):
        return ((values - returns) ** 2 * loss_mask).sum(), None

    def compute_approx_kl(log_probs, log_probs_base, loss_mask=None, kl_estimator_type="k3"):
        d = log_probs - log_probs_base
        kl = {"k1": d, "abs": d.abs(), "k2": d * d / 2, "k3": (-d).exp() - 1 + d}[kl_estimator_type]
        return MASKED

    class FixedKLController:
        def __init__(self, kl_coef): self.value = kl_coef
"""

CORRECTION = """
    import torch

    def compute_off_policy_correction(old_log_probs, rollout_logprobs, loss_mask, off_policy_correction):
        config, mask = off_policy_correction, loss_mask > 0
        ratio = (old_log_probs - rollout_logprobs).exp()
        logs = torch.where(mask, old_log_probs - rollout_logprobs, 0.0).sum(-1, keepdim=True)
        geometric, product = (logs / mask.sum(-1, keepdim=True).clamp(min=1)).exp(), logs.exp()
        weight, kept = None, mask
        if config.tis_ratio_type == "token":
            weight = ratio.clamp(max=config.token_tis_ratio_clip_high)
        elif config.tis_ratio_type == "sequence":
            weight = product.clamp(max=config.sequence_tis_ratio_clip_high)
        if config.sequence_mask_metric == "geometric":
            kept = mask & (geometric >= config.geo_mask_low) & (geometric <= config.geo_mask_high)
        elif config.sequence_mask_metric == "product":
            kept = mask & (product >= config.product_mask_low) & (product <= config.product_mask_high)
        low, high = config.token_mask_is_threshold_low, config.token_mask_is_threshold_high
        if low is not None:
            kept = mask & (ratio >= low) & (ratio <= high)
        low, high = config.outlier_token_is_threshold_low, config.outlier_token_is_threshold_high
        if low is not None:
            kept = mask & ((ratio >= low) & (ratio <= high) | ~mask).all(-1, keepdim=True)
        kept = kept * loss_mask
        metrics = {"is_ratio_min": LEAST.min().item(), "token_mask_ratio": SHARE, "is_ratio_max": LARGEST.max().item()}
        return weight, metrics, kept
"""

PREPROCESS = """
    import torch

    def convert_prompts_responses_to_batch_tensors(tokenizer, prompts, responses, rewards, loss_masks):
        width = max(map(len, responses))
        masks, paid = torch.zeros(len(responses), width), torch.zeros(len(responses), width)
        for row, (mask, reward) in enumerate(zip(loss_masks, rewards)):
            at = slice(width - len(mask), width) if RIGHT else slice(0, len(mask))
            masks[row, at], paid[row, at] = torch.tensor(mask).float(), torch.tensor(reward)
        return None, None, masks.long(), paid, masks
"""

TRAINER = """
    import numpy as np
    import torch
    from pydantic import BaseModel
    from skyrl.backends.skyrl_train.utils.ppo_utils import AdvantageEstimatorRegistry, compute_approx_kl

    class Request(BaseModel):
        size: int = 1

    class RayPPOTrainer:
        def compute_advantages_and_returns(self, data):
            algorithm = self.cfg.trainer.algorithm
            estimate = AdvantageEstimatorRegistry.get(algorithm.advantage_estimator)
            mask, rewards, index = data["response_mask"], data["rewards"], data.metadata["uids"]
            given = {"gamma": 1.0, "lambd": 1.0}
            given |= {"values": data["values"]} if data["values"] is not None else {}
            if not self.cfg.generator.step_wise_trajectories:
                data["advantages"], data["returns"] = estimate(rewards, response_mask=mask, index=index, **given)
                return data
            last = torch.tensor(data.metadata["is_last_step"])
            shown = torch.ones_like(mask[last]) if FIXED else mask[last]
            advantages, _ = estimate(rewards[last], response_mask=shown, index=np.array(index)[last.numpy()], **given)
            owner = torch.cat([torch.tensor([0]), last[:-1].long()]).cumsum(0)
            data["advantages"] = advantages[owner] * (mask if FIXED else 1)
            data["returns"] = data["advantages"]
            return data

        def apply_reward_kl_penalty(self, data):
            kind = self.cfg.trainer.algorithm.kl_estimator_type
            kl = compute_approx_kl(
                data["action_log_probs"], data["base_action_log_probs"], data["loss_mask"], kind
            )
            data["rewards"] = data["rewards"] - self.reward_kl_controller.value * kl
            mean = (kl.sum(1) / data["loss_mask"].sum(1).clamp(min=1)).mean().item()
            data.metadata["metrics"] = {"avg_kl": mean}
            return data
"""

CHECK = """
    def validate_cfg(cfg):
        assert cfg.trainer.logger != "wandb", "an account is needed"
        if FIXED and cfg.generator.step_wise_trajectories:
            if cfg.trainer.algorithm.advantage_estimator in ("gae", "reinforce++"):
                raise ValueError("temporal estimators do not work with steps")
"""


#: A KL that lets nothing through where nothing is trained.
MASKED = "torch.where(loss_mask > 0, kl, 0.0)"


#: What the specimen's words stand for where it is sound.
SOUND = {
    "COUNTED": "loss_mask.sum().clamp(min=1)",
    "LOWER": "1.0",
    "SCALED": "loss_mask",
    "LEGACY": "loss_mask",
    "MASKED": MASKED,
    "LEAST": "ratio[loss_mask > 0]",
    "LARGEST": "(ratio * loss_mask)",
    "SHARE": "(1 - kept.sum() / loss_mask.sum()).item()",
}


def _files(*, fixed: bool, right: bool = True, **broken: str) -> dict[str, str]:
    base, words = "skyrl/backends/skyrl_train", {**SOUND, **{word.upper(): code for word, code in broken.items()}}

    def written(source: str) -> str:
        return rewritten(source, words)

    return {
        "skyrl/backends/__init__.py": "raise RuntimeError('an engine was started')",
        f"{base}/training_batch.py": "class TrainingInputBatch(dict):\n    metadata = None\n",
        f"{base}/utils/ppo_utils.py": written(PPO_UTILS),
        f"{base}/utils/off_policy_correction_utils.py": written(CORRECTION),
        "skyrl/train/config.py": written(CONFIG),
        "skyrl/train/dataset/preprocess.py": PREPROCESS.replace("RIGHT", str(right)),
        "skyrl/train/trainer.py": TRAINER.replace("FIXED", str(fixed)),
        "skyrl/train/utils/utils.py": CHECK.replace("FIXED", str(fixed)),
    }


def test_all_boundaries_answer(loads: Loads) -> None:
    target = loads(FRAMEWORK, _files(fixed=True))
    boundaries = bound(FRAMEWORK, target)
    assert len(boundaries) == 40
    refused = [("validate_cfg", "ValueError: temporal estimators do not work with steps")] * 2
    assert answering(boundaries, target) == refused
    assert used["ray"] == "fake"


@pytest.mark.parametrize(("fixed", "found"), [(True, False), (False, True)])
def test_steps_without_signal(loads: Loads, fixed: bool, found: bool) -> None:
    target = loads(FRAMEWORK, _files(fixed=fixed))
    boundaries = bound(FRAMEWORK, target)
    pair = ("compute_advantages_and_returns", "step-wise grpo")
    check_verdict(PLC001, boundaries[pair], pair[1], target, found=found)


@pytest.mark.parametrize(("fixed", "found"), [(True, False), (False, True)])
def test_nonsense(loads: Loads, fixed: bool, found: bool) -> None:
    target = loads(FRAMEWORK, _files(fixed=fixed))
    boundaries = bound(FRAMEWORK, target)
    judgement = judged_at(CFG003, boundaries["validate_cfg", "default"], "default", target)
    assert (judgement.found is not None) is found
    if judgement.found is not None:
        assert "stepwise_gae" in judgement.found.expectation.sentence()


def test_missing_pieces_are_unbound(loads: Loads) -> None:
    files = _files(fixed=True)
    files["skyrl/train/config.py"] = files["skyrl/train/config.py"].replace("step_wise_trajectories", "by_step")
    unbound = [b for b in FRAMEWORK.boundaries(loads(FRAMEWORK, files)) if isinstance(b, Unbound)]
    assert {b.path.rpartition(".")[2] for b in unbound} == {"compute_advantages_and_returns", "validate_cfg"}
    assert all(b.absent and "generator.step_wise_trajectories is absent" in b.reason for b in unbound)


def test_steps_in_order() -> None:
    mask = torch.ones(3, 1, dtype=torch.bool)
    together = batch_of(mask, trajectory=torch.tensor([4, 4, 1]), last_step=torch.tensor([False, True, True]))
    assert steps_in_order(Inputs(together)) == ""
    for trajectory, last in (([0, 1, 0], [False, True, True]), ([0, 0, 1], [True, False, True])):
        batch = batch_of(mask, trajectory=torch.tensor(trajectory), last_step=torch.tensor(last))
        assert "are not consecutive" in steps_in_order(Inputs(batch))


@pytest.mark.parametrize(
    ("least", "share", "output"),
    [
        (SOUND["LEAST"], SOUND["SHARE"], None),
        ("(ratio * loss_mask)", SOUND["SHARE"], "is_ratio_min"),
        (SOUND["LEAST"], "(loss_mask - kept).sum().item()", "token_mask_ratio"),
    ],
)
def test_numbers_of_the_correction(loads: Loads, least: str, share: str, output: str | None) -> None:
    """The least ratio is not that of a masked token, and a share is no count."""
    target = loads(FRAMEWORK, _files(fixed=True, least=least, share=share))
    pair = (
        "compute_off_policy_correction",
        f"metrics of {'token mask' if output == 'token_mask_ratio' else 'the ratio'}",
    )
    judgement = judged_at(MET001, bound(FRAMEWORK, target)[pair], pair[1], target)
    assert judgement.tried > 0
    assert (judgement.found.expectation.name if judgement.found else None) == output


@pytest.mark.parametrize(
    ("name", "broken", "output"),
    [
        ("token weight", {}, None),
        ("token weight", {"token_tis_ratio_clip_high)": "token_tis_ratio_clip_high / 2)"}, "weight"),
        ("sequence weight", {}, None),
        ("sequence weight", {"product.clamp(": "geometric.clamp("}, "weight"),
        ("geometric mask", {}, None),
        ("geometric mask", {"mask.sum(-1, keepdim=True)": "mask.sum()"}, "keep"),
        ("product mask", {}, None),
        ("product mask", {"& (product <=": "| (product <="}, "keep"),
        ("outlier mask", {}, None),
        ("outlier mask", {"| ~mask).all(": "| ~mask).any("}, "keep"),
        ("outlier mask", {"= config.outlier": "= config.tis_ratio_type and config.outlier"}, None),
        ("token mask", {}, None),
    ],
)
def test_formula_of_the_correction(loads: Loads, name: str, broken: dict[str, str], output: str | None) -> None:
    """A cap of another size, a mean instead of a product, a mean over the tokens of the batch, one bound of two.

    A mask that has no effect without weights is right with them.
    """
    tree = _files(fixed=True)
    (path,) = (path for path in tree if path.endswith("off_policy_correction_utils.py"))
    for right, wrong in broken.items():
        assert right in tree[path]
        tree[path] = tree[path].replace(right, wrong)
    target = loads(FRAMEWORK, tree)
    judgement = judged_at(REF001, bound(FRAMEWORK, target)["compute_off_policy_correction", name], name, target)
    assert judgement.tried > 0
    assert (judgement.found.expectation.name if judgement.found else None) == output


@pytest.mark.parametrize("broken", [False, True])
def test_a_wrong_statistic_hides_no_other(loads: Loads, broken: bool) -> None:
    """The least ratio is that of a masked token, as in releases; the largest one has a boundary of its own."""
    largest = "(ratio * loss_mask / 2)" if broken else SOUND["LARGEST"]
    target = loads(FRAMEWORK, _files(fixed=True, least="(ratio * loss_mask)", largest=largest))
    boundaries = bound(FRAMEWORK, target)
    names = {"the ratio": "is_ratio_min", "the ratio's mean and maximum": "is_ratio_max" if broken else None}
    for name, output in names.items():
        pair = ("compute_off_policy_correction", f"metrics of {name}")
        judgement = judged_at(MET001, boundaries[pair], pair[1], target)
        assert (judgement.found.expectation.name if judgement.found else None) == output


@pytest.mark.slow
@pytest.mark.parametrize("right", [True, False])
def test_alignment(loads: Loads, right: bool) -> None:
    target = loads(FRAMEWORK, _files(fixed=True, right=right))
    assert type(arguments(target).form) is (RightAligned if right else ZeroPadded)
    check_round_trips(target, bound(FRAMEWORK, target).values())


@pytest.mark.parametrize(("masked", "found"), [(MASKED, False), ("kl * loss_mask", True)])
def test_kl_off_the_mask(loads: Loads, masked: str, found: bool) -> None:
    """A number that is not finite, where nothing is trained, is dropped; a product with the mask lets it through."""
    target = loads(FRAMEWORK, _files(fixed=True, masked=masked))
    check_verdict(MSK004, bound(FRAMEWORK, target)["compute_approx_kl", "k1"], "k1", target, found=found)


@pytest.mark.parametrize(("legacy", "found"), [("loss_mask", False), ("torch.ones_like(loss_mask)", True)])
def test_loss_of_one_micro_batch(loads: Loads, legacy: str, found: bool) -> None:
    """The older reduction counts trained tokens, too."""
    target, setting = loads(FRAMEWORK, _files(fixed=True, legacy=legacy)), "regular, token_mean_legacy"
    check_verdict(PAD001, bound(FRAMEWORK, target)["ppo_policy_loss", setting], setting, target, found=found)


@pytest.mark.parametrize(("scaled", "found"), [("loss_mask", False), ("loss_mask[:micro_batch_size]", True)])
def test_loss_in_micro_batches(loads: Loads, scaled: str, found: bool) -> None:
    """Advantages are divided by the tokens of the mini-batch, not by those of a micro-batch."""
    target, setting = loads(FRAMEWORK, _files(fixed=True, scaled=scaled)), "regular, token_mean, in micro-batches"
    check_verdict(SPL001, bound(FRAMEWORK, target)["ppo_policy_loss", setting], setting, target, found=found)


@pytest.mark.parametrize(("lower", "found"), [("1.0", False), ("0.0", True)])
def test_default_clip_range(loads: Loads, lower: str, found: bool) -> None:
    """The default range of CISPO's weight is asked, so an offset in the place of a bound is found."""
    target, setting = loads(FRAMEWORK, _files(fixed=True, lower=lower)), "cispo, token_mean"
    check_verdict(ONP002, bound(FRAMEWORK, target)["compute_policy_loss_cispo", setting], setting, target, found=found)


@pytest.mark.parametrize(("counted", "found"), [(SOUND["COUNTED"], False), ("len(loss_mask)", True)])
@pytest.mark.parametrize(("function", "name"), [("ppo_policy_loss", "regular"), ("compute_policy_loss_cispo", "cispo")])
def test_clip_ratio(loads: Loads, function: str, name: str, counted: str, found: bool) -> None:
    """The logged share of clipped tokens is one of trained tokens."""
    target, setting = loads(FRAMEWORK, _files(fixed=True, counted=counted)), f"{name}, with set numbers"
    check_verdict(MET001, bound(FRAMEWORK, target)[function, setting], setting, target, found=found)


@pytest.mark.parametrize(("scaled", "found"), [("loss_mask", False), ("torch.ones_like(loss_mask)", True)])
def test_formula_of_a_loss(loads: Loads, scaled: str, found: bool) -> None:
    """With set numbers, the loss is compared with its paper's formula, averaged over trained tokens."""
    target, setting = loads(FRAMEWORK, _files(fixed=True, scaled=scaled)), "cispo, with set numbers"
    check_verdict(REF001, bound(FRAMEWORK, target)["compute_policy_loss_cispo", setting], setting, target, found=found)
