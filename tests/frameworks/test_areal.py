"""AReaL's adapter, on a specimen of its call shapes in words of our own."""

from collections.abc import Callable

import pytest
import torch

from frameworks.adapters import answering, bound, judged_at
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Unbound
from rl_sentinel.core.errors import NotApplicable
from rl_sentinel.frameworks.areal import FRAMEWORK
from rl_sentinel.frameworks.areal.sequences import group_size, sequences, spare
from rl_sentinel.frameworks.target import Target
from rl_sentinel.laws.suppressed_reward_shifts_signal import LAW as MSK003

Loads = Callable[..., Target]

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
        def __init__(self, kind):
            self.kind = kind
        def __call__(self, a, b):
            d = a - b
            return {"k1": d, "k2": d * d / 2, "k3": (-d).exp() - 1 + d}[self.kind]

    class Normalization:
        def __init__(self, config):
            self.config = config
        def __call__(self, x, mask=None):
            weight = mask if mask is not None else x * 0 + 1
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
            per_token = -self.config.kl_ctl * (data["logprobs"].roll(-1, 1) - data["ref_logp"]) * mask
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
                          importance_sampling_level="token"):
        return _mean(-advantages * (logprobs - proximal_logprobs).exp(), loss_mask), {}

    def sapo_loss_fn(logprobs, old_logprobs, advantages, tau_pos, tau_neg, loss_mask,
                     importance_sampling_level="token"):
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


def _files(*, early: bool) -> dict[str, str]:
    return {
        "areal/__init__.py": "import absent_everything",
        "areal/api/cli_args.py": CONFIG,
        "areal/utils/data.py": DATA,
        "areal/utils/functional.py": FUNCTIONAL,
        "areal/trainer/ppo/actor.py": ACTOR.replace("EARLY", str(early)),
    }


def test_all_boundaries_answer(loads: Loads) -> None:
    """Each family binds and its outputs move."""
    boundaries = bound(FRAMEWORK, loads(FRAMEWORK, _files(early=True)))
    assert len(boundaries) == 38
    assert answering(boundaries) == []


@pytest.mark.parametrize(("early", "found"), [(True, False), (False, True)])
def test_suppressed_reward(loads: Loads, early: bool, found: bool) -> None:  # noqa: FBT001 - parametrised
    """Void before the mean, the reward moves nothing; after it, it moves the rows that ended."""
    boundaries = bound(FRAMEWORK, loads(FRAMEWORK, _files(early=early)))
    setting = "no EOS masked, batch mean"
    judgement = judged_at(MSK003, boundaries["_compute_advantages", setting], setting)
    assert (judgement.found is not None) is found
    assert judgement.tried > 0


def test_missing_functions_are_unbound(loads: Loads) -> None:
    """A tree without the actor fails with the name of what is missing."""
    files = _files(early=True)
    del files["areal/trainer/ppo/actor.py"]
    unbound = [b for b in FRAMEWORK.boundaries(loads(FRAMEWORK, files)) if isinstance(b, Unbound)]
    assert [(b.path, b.stage) for b in unbound] == [
        ("areal.trainer.ppo.actor.PPOActor._compute_advantages", "advantage")
    ]


def test_who_fills_the_width() -> None:
    """With every row scored one column is spare; without, the unscored row fills the width alone."""
    mask = torch.ones(2, 3, dtype=torch.bool)
    scored = batch_of(mask)
    assert spare(scored) == 1
    assert sequences(scored)["input_ids"].shape == (2, 5)
    one_open = batch_of(mask, scored=torch.tensor([True, False]), length=torch.tensor([2, 3]))
    full = sequences(one_open)
    assert full["attention_mask"].tolist() == [[True, True, True, False], [True] * 4]
    with pytest.raises(NotApplicable, match="as long as an unscored one"):
        sequences(batch_of(mask, scored=torch.tensor([True, False])))


def test_groups_by_position() -> None:
    """Groups of one size that stand together have a size; others are not what AReaL can be given."""
    mask = torch.ones(4, 1, dtype=torch.bool)
    assert group_size(batch_of(mask, group=torch.tensor([5, 5, 2, 2]))) == 2
    for group in ([0, 1, 0, 1], [0, 0, 0, 1]):
        with pytest.raises(NotApplicable, match="groups by position"):
            group_size(batch_of(mask, group=torch.tensor(group)))


def test_a_script_names_what_its_imports_need() -> None:
    """The framework last and without its own requirements, which name another torch."""
    needs = FRAMEWORK.installation("1.0.4")
    assert needs.packages.startswith("numpy aiofiles aiohttp ")
    assert needs.alone == "areal==1.0.4"
