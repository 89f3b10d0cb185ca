"""The values and the update of verl's data-parallel critic, on a specimen of it in words of our own."""

import json

import pytest

from adapters.checks import Loads, bound, judged_at
from adapters.kit.round_trip import check_round_trips
from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl.worker_specimen import REDUCE
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.gradient_off_mask import LAW as PLC002
from rl_sentinel.laws.metric_depends_on_split import LAW as MET005
from rl_sentinel.laws.row_order_matters import LAW as PRM001

CRITIC = """
    import torch
    from verl.trainer.ppo.core_algos import compute_value_loss

    class DataParallelPPOCritic:
        def __init__(self, config, critic_module, critic_optimizer):
            self.config, self.critic_module, self.critic_optimizer = config, critic_module, critic_optimizer

        def forward(self, part):
            width = part["responses"].shape[1]
            self.critic_module.train()
            output = self.critic_module(part["input_ids"], attention_mask=part["attention_mask"])
            return output.logits[:, -width - SHIFT : -SHIFT or None]SQUEEZE

        def cut(self, data, sizes, dynamic):
            order = torch.arange(len(data))
            if dynamic:
                order = data.batch["attention_mask"].sum(1).argsort(descending=True)
            size = 1 if dynamic else sizes.get("micro_batch_size") or sizes["SIZE"]
            parts = [order[i : i + size] for i in range(0, len(data), size)]
            return order.argsort(), [{name: column[part] for name, column in data.batch.items()} for part in parts]

        def compute_values(self, data):
            back, parts = self.cut(data, data.meta_info, data.meta_info["use_dynamic_bsz"])
            values = torch.cat([self.forward(part) for part in parts])
            mask = data.batch["response_mask"]
            return BACK

        def update_critic(self, data):
            loss_agg_mode = self.config.loss_agg_mode
            logged = {"critic/vf_clipfrac": [], "critic/vpred_mean": [], "critic/vf_loss": []}
            self.critic_optimizer.zero_grad()
            tokens = data.batch["response_mask"].sum()
            for part in self.cut(data, self.config, self.config.use_dynamic_bsz)[1]:
                mask, values = part["UPDATED"], self.forward(part)
                mask = mask[:, -values.shape[1] :]
                loss, clipped = compute_value_loss(
                    values, part["returns"], part["values"], mask, self.config.cliprange_value, loss_agg_mode
                )
                (loss * SHARE).backward()
                weight = mask.sum() / tokens.clamp(min=1) * (len(data) / len(mask))
                logged["critic/vf_loss"].append(float(loss.detach() * (TERM)))
                logged["critic/vf_clipfrac"].append(float(clipped * weight))
                mean = (values * mask).sum() / mask.sum().clamp(min=1)
                logged["critic/vpred_mean"].append(float(mean.detach() * WEIGHT))
            self.critic_optimizer.step()
            self.critic_optimizer.zero_grad()
            return logged
"""

CONFIG = {"critic": {"grad_clip": 1.0, "cliprange_value": 0.5, "ppo_epochs": 1}}

#: Values in the order of the batch, then masked.
SOUND = "values[back] * mask"


#: What a micro-batch counts: its rows among all.
SHARE = "len(mask) / len(data)"

#: What makes the mean of the micro-batches' losses that of the whole batch.
LIVE = "mask.any(1).sum() / data.batch['response_mask'].any(1).sum().clamp(min=1)"
TERM = f"weight if loss_agg_mode == 'token-mean' else {LIVE} / ({SHARE})"

#: The size of a micro-batch, by the name that it has since 0.2.
SIZE = "ppo_micro_batch_size_per_gpu"


def _tree(
    back: str = SOUND,
    shift: int = 1,
    updated: str = "response_mask",
    share: str = SHARE,
    size: str = SIZE,
    **words: str,
) -> dict[str, str]:
    critic = CRITIC.replace("BACK", back).replace("SHIFT", str(shift)).replace("UPDATED", updated)
    critic = (
        critic.replace("SHARE", share).replace("SIZE", size).replace("SQUEEZE", words.get("squeeze", ".squeeze(-1)"))
    )
    critic = critic.replace("TERM", words.get("term", TERM))
    return files() | {
        "verl/workers/critic/dp_critic.py": critic.replace("WEIGHT", words.get("weight", "weight")),
        "verl/utils/metric/__init__.py": REDUCE,
        "verl/trainer/config/ppo_trainer.yaml": json.dumps(CONFIG),
    }


def _load(loads: Loads, tree: dict[str, str]) -> Target:
    return loads(FRAMEWORK, tree, {"omegaconf/__init__.py": OMEGACONF})


def _broken(target: Target, law: Law, name: str, setting: str) -> bool:
    judgement = judged_at(law, bound(FRAMEWORK, target)[name, setting], setting, target)
    assert judgement.tried > 0
    return judgement.found is not None


VALUES = ("compute_values", "dynamic batch size")
UPDATE = ("update_critic", "token-mean")


@pytest.mark.slow
def test_the_critic_reads_back(loads: Loads) -> None:
    """Columns, settings and arguments survive the round trip: values, and the update in modes, cuts and epochs."""
    target = _load(loads, _tree())
    mine = [b for (name, _), b in bound(FRAMEWORK, target).items() if name in ("compute_values", "update_critic")]
    assert len(mine) == 7
    check_round_trips(target, mine)


@pytest.mark.parametrize(("law", "which"), [(PRM001, VALUES), (PLC002, VALUES), (REF001, VALUES), (PLC002, UPDATE)])
def test_a_sound_critic(loads: Loads, law: Law, which: tuple[str, str]) -> None:
    """Nothing is found at values in the order of the rows, and an update under the mask of the response."""
    assert not _broken(_load(loads, _tree()), law, *which)


@pytest.mark.parametrize(
    ("law", "fault"),
    [
        (PRM001, {"back": "(values * mask)[back]"}),  # the mask of another row
        (PLC002, {"back": "values[back]"}),
        (REF001, {"shift": 0}),  # the value after the token, not before it
    ],
)
def test_faults_of_the_values(loads: Loads, law: Law, fault: dict[str, str]) -> None:
    """Values under the mask of another row, without a mask, or of the next position."""
    assert _broken(_load(loads, _tree(**fault)), law, *VALUES)  # type: ignore[arg-type] # of two types


@pytest.mark.parametrize("size", [SIZE, "ppo_micro_batch_size"])
@pytest.mark.parametrize("setting", ["token-mean", "dynamic batch size"])
@pytest.mark.parametrize(("share", "found"), [(SHARE, False), ("self.config['{size}'] / len(data)", True)])
def test_weight_of_a_micro_batch(loads: Loads, size: str, setting: str, share: str, *, found: bool) -> None:
    """A micro-batch counts by its rows; one of another size than configured by its own, also before the name changed.

    In equal cuts both are the same number.
    """
    target = _load(loads, _tree(share=share.format(size=size), size=size))
    assert _broken(target, REF001, "update_critic", setting) is (found and setting != "token-mean")


def test_head_that_gives_one_number(loads: Loads) -> None:
    """Before 0.2 the head of the model drops the last axis, and the worker does not."""
    target = _load(loads, _tree(squeeze="", size="ppo_micro_batch_size"))
    assert not _broken(target, PLC002, *VALUES)
    assert not _broken(target, REF001, *UPDATE)


def test_faults_of_the_update(loads: Loads) -> None:
    """A critic that fits every response token trains on those that no one sampled; a mean of means is no mean."""
    assert _broken(_load(loads, _tree(updated="attention_mask")), PLC002, *UPDATE)


@pytest.mark.parametrize(("weight", "found"), [("weight", False), ("1", True)])
def test_logged_value(loads: Loads, weight: str, found: bool) -> None:
    """The logged mean over tokens weights each micro-batch by its tokens."""
    assert _broken(_load(loads, _tree(weight=weight)), MET005, *UPDATE) is found


@pytest.mark.parametrize(("term", "found"), [(TERM, False), (SHARE, True)])
def test_logged_loss(loads: Loads, term: str, found: bool) -> None:
    """A mean over micro-batches of losses that are already shares of the batch divides by their number twice."""
    tree = _tree(term=term)
    for setting in ("token-mean", "seq-mean-token-mean"):
        assert _broken(_load(loads, tree), MET005, "update_critic", setting) is found


def test_releases_without_the_critic(loads: Loads) -> None:
    """Have no such boundary, and nothing is reported as missing."""
    assert not [name for name, _ in bound(FRAMEWORK, _load(loads, files())) if name.endswith("critic")]
