"""verl's update of the actor from logits, on a specimen of trainer, worker, engine and loss in words of our own."""

from textwrap import dedent, indent

import pytest
import torch

from adapters.checks import Loads, check_verdict, the_only
from adapters.kit.round_trip import check_round_trips
from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl.test_engine_passes import engine_tree
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, actor_update
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.differs_from_reference import LAW as REF001

#: A method of the specimen's trainer.
UPDATE = """
    def _update_actor(self, batch):
        sizes, data = self.config.actor_rollout_ref, batch.batch
        names = ("input_ids", "position_ids", "attention_mask", "response_mask")
        names += ("old_log_probs", "advantages", "ref_log_prob")
        about = {"temperature": HEAT, "mini_batch": sizes.actor.ppo_mini_batch_size * COPIES}
        self.actor_rollout_wg.update_actor(tu.get_tensordict({name: data[name] for name in names}, about))
"""

#: A method of the specimen's engine.
TRAIN = """
    def train_batch(self, data, loss_function):
        size = len(data["input_ids"]) if data["use_dynamic_bsz"] else data["micro_batch_size_per_gpu"]
        self.optimizer_zero_grad()
        for first in range(0, len(data["input_ids"]), size):
            part = {k: v[first : first + size] if hasattr(v, "shape") else v for k, v in data.items()}
            inside, width = part["attention_mask"].bool(), part["response_mask"].shape[1]
            rows = [(ids[m], at[m]) for ids, at, m in zip(part["input_ids"], part["position_ids"], inside)]
            log_probs = []
            for row, length in zip(self.forward_step(rows, part)["log_probs"], inside[:, -width:].sum(1).tolist()):
                own = row[len(row) - length - AHEAD : len(row) - AHEAD]
                log_probs.append(pad(own, (0, width - length)))
            loss_function(torch.stack(log_probs), part, data["response_mask"].sum()).backward()
        self.optimizer_step()
"""

WORKER = """
    class DistProfiler:
        def __init__(self, rank, config):
            self.rank = rank

    class TrainingWorker:
        def train_mini_batch(self, data):
            for first in range(0, len(data["input_ids"]), data["mini_batch"]):
                rows = slice(first, first + data["mini_batch"])
                part = {name: x[rows] if hasattr(x, "shape") else x for name, x in data.items()}
                with self.engine.train_mode():
                    self.engine.train_batch(part, self.loss_fn)
"""

LOSS = """
    import torch

    def ppo_loss(config, log_prob, data, count):
        ratio, gain = (log_prob - data["old_log_probs"]).exp(), data["advantages"]
        clipped = ratio.clamp(1 - config.clip_ratio_low, 1 + config.clip_ratio_high)
        loss = torch.maximum(-ratio * gain, -clipped * gain)
        loss = torch.where(gain < 0, torch.minimum(loss, -config.clip_ratio_c * gain), loss)
        gap = data["ref_log_prob"] - log_prob
        loss = loss + config.kl_loss_coef * (gap.exp() - gap - 1)
        return torch.where(data["response_mask"].bool(), loss, 0.0).sum() / count
"""

SOUND = {"HEAT": "sizes.rollout.temperature", "COPIES": "sizes.rollout.n", "AHEAD": "1"}


def update_tree(**broken: str) -> dict[str, str]:
    """The files of trainer, worker, engine and loss, with parts of their code replaced."""
    tree = engine_tree() | {"verl/workers/engine_workers.py": WORKER, "verl/workers/utils/losses.py": LOSS}
    for path, method in (("trainer/ppo/ray_trainer.py", UPDATE), ("workers/engine/fsdp/transformer_impl.py", TRAIN)):
        head, word, rest = tree[f"verl/{path}"].rpartition("    class FSDPEngineWithValueHead")
        own = indent(dedent(method), "        ")
        tree[f"verl/{path}"] = f"{head}{own}\n{word}{rest}" if word else rest + own
    for name, code in (SOUND | broken).items():
        tree = {path: source.replace(name, code) for path, source in tree.items()}
    tree["verl/trainer/config/ppo_trainer.yaml"] = '{"actor_rollout_ref": {"rollout": {}, "actor": {}}}'
    return tree


def _bound(loads: Loads, **broken: str) -> tuple[Target, Boundary]:
    target = loads(FRAMEWORK, update_tree(**broken), {"omegaconf/__init__.py": OMEGACONF})
    return target, the_only(actor_update.boundaries(target))


def test_reads_back(loads: Loads) -> None:
    """Columns, settings and arguments survive the round trip."""
    target, boundary = _bound(loads)
    assert set(boundary.settings) == {"padded"}
    check_round_trips(target, [boundary])


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"HEAT": "1.0"},  # the model is another policy than the sampler
        {"COPIES": "1"},  # a mini-batch counts prompts, and rows are split
        {"AHEAD": "0"},  # the log-prob of the token after
    ],
)
def test_faults(loads: Loads, broken: dict[str, str]) -> None:
    target, boundary = _bound(loads, **broken)
    check_verdict(REF001, boundary, "padded", target, found=bool(broken))


def test_logits_have_the_log_probs() -> None:
    """At the temperature; the rest of the probability is on the other tokens."""
    log_probs, tokens = torch.tensor([[-0.5, -3.0]]), torch.tensor([[2, 0]])
    table = (actor_update.logits_of(log_probs, tokens, 0.25) / 0.25).log_softmax(-1)
    assert table.gather(2, tokens.unsqueeze(2))[..., 0].flatten().tolist() == pytest.approx([-0.5, -3.0])
