"""The update of verl's data-parallel actor, on a specimen of it in words of our own."""

import pytest
import torch

from adapters.checks import Loads, bound, judged_at
from adapters.kit.round_trip import check_round_trips
from adapters.verl.worker_specimen import update_files
from adapters.verl_specimen import files
from rl_sentinel.adapters.verl import FRAMEWORK
from rl_sentinel.audit.engine.executor import Asker
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.case import Case
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.metric_depends_on_split import LAW as MET005

ACTOR = """
    import torch
    from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY, agg_loss

    class DataParallelPPOActor:
        def __init__(self, config, actor_module, actor_optimizer):
            self.config, self.actor_module, self.actor_optimizer = config, actor_module, actor_optimizer

        def _forward_micro_batch(self, micro_batch, temperature):
            labels = micro_batch["responses"]
            logits = self.actor_module(input_ids=micro_batch["input_ids"]).logits.div_(SCALE)
            scores = logits[:, -labels.shape[1] - 1 : -1].log_softmax(-1)
            return -(scores.exp() * scores).sum(-1), scores.gather(-1, labels.unsqueeze(-1)).squeeze(-1)

        def _optimizer_step(self):
            self.actor_optimizer.step()

        def compute_log_prob(self, data, calculate_entropy):
            size, temperature = data.meta_info["micro_batch_size"], data.meta_info["temperature"]
            parts = [{n: x[i : i + size] for n, x in data.batch.items()} for i in range(0, len(data), size)]
            scored = [self._forward_micro_batch(part, temperature) for part in parts]
            entropys, log_probs = (torch.cat(part) for part in zip(*scored))
            return log_probs, entropys

        def update_policy(self, data):
            config, logged = self.config, {"actor/kl_loss": [], "actor/pg_loss": []}
            size = 1 if config.use_dynamic_bsz else config.ppo_micro_batch_size_per_gpu
            for _ in range(config.ppo_epochs):
                self.actor_optimizer.zero_grad()
                for start in range(0, len(data), size):
                    part = {name: column[start : start + size] for name, column in data.batch.items()}
                    entropy, log_prob = self._forward_micro_batch(part, temperature=data.meta_info["temperature"])
                    old, mask, mode = part["old_log_probs"], part["response_mask"], config.loss_agg_mode
                    chosen, gains = POLICY_LOSS_REGISTRY[config.policy_loss.loss_mode], part["advantages"]
                    loss, _ = chosen(old, log_prob, gains, TRAINED, mode, config)
                    policy_loss = float(loss.detach())
                    gap = part["ref_log_prob"] - log_prob
                    kl = agg_loss(gap.exp() - gap - 1, mask, mode)
                    weight = config.use_kl_loss * config.kl_loss_coef
                    loss = loss - config.entropy_coeff * agg_loss(entropy, mask, mode) SIGN weight * kl
                    share = SHARE
                    (loss * share).backward()
                    logged["actor/pg_loss"].append(float(policy_loss * (TERM)))
                    logged["actor/kl_loss"].append((kl * (WEIGHT)).item())
                self._optimizer_step()
            self.actor_optimizer.zero_grad()
            return logged
"""

#: Another loss that the configuration can select.
GPG = """
    @register_policy_loss("gpg")
    def compute_policy_loss_gpg(old_log_prob, log_prob, advantages, response_mask, loss_agg_mode, config):
        return agg_loss(-log_prob * advantages, response_mask, loss_agg_mode), {}
"""

#: What makes the mean of the micro-batches' numbers the mean over all tokens.
WEIGHT = 'mask.sum() / data.batch["response_mask"].sum().clamp(min=1) / share'


#: What logits are divided by.
SCALE = "temperature"

#: What a micro-batch counts: its rows among all.
SHARE = "len(mask) / len(data)"

#: What makes the mean of the micro-batches' losses that of the whole batch.
LIVE = "mask.any(1).sum() / data.batch['response_mask'].any(1).sum().clamp(min=1)"
TERM = f"{WEIGHT} if mode == 'token-mean' else {LIVE} / share"

#: What makes the mean of the micro-batches' numbers that of the last micro-batch.
LAST = "float(start + size >= len(data)) / share"


def _tree(  # noqa: PLR0913 - the places of the specimen
    sign: str = "+",
    weight: str = TERM,
    trained: str = "mask",
    scale: str = SCALE,
    share: str = SHARE,
    term: str = TERM,
) -> dict[str, str]:
    tree = update_files()
    actor = (
        ACTOR.replace("TERM", term)
        .replace("SIGN", sign)
        .replace("WEIGHT", weight)
        .replace("TRAINED", trained)
        .replace("SCALE", scale)
    )
    actor = actor.replace("SHARE", share)
    tree["verl/trainer/ppo/core_algos.py"] += GPG
    return tree | {"verl/workers/actor/dp_actor.py": actor}


def _judged(
    loads: Loads, law: Law, tree: dict[str, str], setting: str = "token-mean", name: str = "update_policy"
) -> tuple[int, bool]:
    target = loads(FRAMEWORK, tree)
    judgement = judged_at(law, bound(FRAMEWORK, target)[name, setting], setting, target)
    return judgement.tried, judgement.found is not None


@pytest.mark.slow
def test_the_update_reads_back(loads: Loads) -> None:
    """Columns, settings and arguments survive the round trip in both modes, and with another loss."""
    target = loads(FRAMEWORK, _tree())
    mine = [b for (name, _), b in bound(FRAMEWORK, target).items() if name in ("update_policy", "compute_log_prob")]
    assert len(mine) == 9
    check_round_trips(target, mine)


@pytest.mark.slow
@pytest.mark.parametrize(("sign", "found"), [("+", False), ("-", True)])
def test_sign_of_the_kl_loss(loads: Loads, sign: str, found: bool) -> None:
    """A KL loss that is subtracted is no dual clip with a KL penalty, though each function alone is right."""
    tried, broken = _judged(loads, REF001, _tree(sign=sign))
    assert tried > 0
    assert broken is found


@pytest.mark.parametrize(("trained", "found"), [("mask", False), ("gains", True)])
def test_mask_of_another_loss(loads: Loads, trained: str, found: bool) -> None:
    """A selected loss that is passed the advantages where it takes the mask weights each token by them."""
    tried, broken = _judged(loads, REF001, _tree(trained=trained), "gpg")
    assert tried > 0
    assert broken is found


@pytest.mark.parametrize(("scale", "found"), [(SCALE, False), ("1.0", True)])
def test_temperature_of_the_log_probs(loads: Loads, scale: str, found: bool) -> None:
    """Log-probs are those of the policy that sampled: logits divided by the temperature, at the token they predict."""
    tried, broken = _judged(loads, REF001, _tree(scale=scale), "other temperature", "compute_log_prob")
    assert tried > 0
    assert broken is found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("share", "found"), [(SHARE, False), ("config.ppo_micro_batch_size_per_gpu / len(data)", True)]
)
def test_weight_of_a_micro_batch(loads: Loads, share: str, found: bool) -> None:
    """A micro-batch of another size than configured counts by its own rows."""
    tried, broken = _judged(loads, REF001, _tree(share=share), "dynamic batch size")
    assert tried > 0
    assert broken is found
    assert not _judged(loads, REF001, _tree(share=share))[1]


def test_gradient_of_one_epoch(loads: Loads) -> None:
    """Of two equal epochs the last one is read: at a ratio of 1 the slope is minus the advantage, not twice that."""
    target = loads(FRAMEWORK, _tree())
    ask = Asker(bound(FRAMEWORK, target)["update_policy", "token-mean"], {}, gate=target)
    batch = batch_of(torch.ones(1, 1, dtype=torch.bool), advantage=torch.tensor([[3.0]]))
    seen = ask(Case(batch, setting="token-mean"), gradients=("logprob",))
    assert seen.gradients["logprob"].tolist() == [[-3.0]]
    assert seen.values["loss"].item() == -3.0


@pytest.mark.parametrize(("weight", "found"), [(WEIGHT, False), ("1", True)])
def test_mean_of_means(loads: Loads, weight: str, found: bool) -> None:
    """A logged mean over tokens weights each micro-batch by its tokens; a mean of means is found."""
    tried, broken = _judged(loads, MET005, _tree(weight=weight))
    assert tried > 0
    assert broken is found


@pytest.mark.parametrize(("term", "found"), [(TERM, False), ("share", True)])
@pytest.mark.parametrize("setting", ["token-mean", "seq-mean-token-mean"])
def test_logged_loss(loads: Loads, setting: str, term: str, found: bool) -> None:
    """A mean over micro-batches of losses that are already shares of the batch divides by their number twice."""
    tried, broken = _judged(loads, MET005, _tree(term=term), setting)
    assert tried > 0
    assert broken is found


@pytest.mark.parametrize(("weight", "found"), [(TERM, False), (LAST, True)])
@pytest.mark.parametrize("setting", ["token-mean", "seq-mean-token-mean"])
def test_logged_kl(loads: Loads, setting: str, weight: str, found: bool) -> None:
    """The KL of all micro-batches, not that of the last one."""
    tried, broken = _judged(loads, MET005, _tree(weight=weight), setting)
    assert tried > 0
    assert broken is found


def test_releases_without_the_actor(loads: Loads) -> None:
    """Have no such boundary, and nothing is reported as missing."""
    target = loads(FRAMEWORK, files())
    assert not [name for name, _ in bound(FRAMEWORK, target) if name == "update_policy"]
