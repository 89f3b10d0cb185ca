"""The passes of verl's v1 trainer, whose rows are in a queue, on a specimen in words of our own."""

from textwrap import dedent, indent

import pytest

from adapters.checks import Loads, check_verdict, rewritten
from adapters.kit.round_trip import check_round_trips
from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl.tensordict_specimen import SYNC, TENSORDICT
from adapters.verl.test_actor_update import LOSS
from adapters.verl.test_engine_passes import engine_tree
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, actor_update, queue_passes
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.differs_from_reference import LAW as REF001

BASE = """
    import torch
    from abc import ABC, abstractmethod
    from torch.nested import as_nested_tensor

    tq = None

    class PPOTrainer(ABC):
        @abstractmethod
        def on_step_end(self):
            pass

        def _compute_old_log_prob(self, batch, metrics):
            place = {"keys": batch.keys, "partition_id": batch.partition_id}
            batch.extra_info["temperature"] = self.config.actor_rollout_ref.rollout.temperature
            self.actor_rollout_wg.compute_log_prob(batch)
            data = tq.kv_batch_get(**place, select_fields=["log_probs", "entropy", "response_mask"])
            masks, added = data["response_mask"].unbind(), {}
            for name, to in (("log_probs", "old_log_probs"), ("entropy", "entropy")):
                rows = zip(data[name].unbind(), masks)
                own = [row[len(row) - len(mask) - AHEAD : len(row) - AHEAD] for row, mask in rows]
                added[to] = as_nested_tensor(own, layout=torch.jagged)
            tq.kv_batch_put(**place, fields=added)
            entropy, mask = torch.cat(added["entropy"].unbind()), torch.cat(masks)
            metrics["actor/entropy"] = MEAN.item()

        def _update_actor(self, batch, metrics):
            sizes = self.config.actor_rollout_ref
            batch.extra_info["temperature"] = HEAT
            batch.extra_info["mini_batch"] = sizes.actor.ppo_mini_batch_size * sizes.rollout.n
            self.actor_rollout_wg.update_actor(batch)
"""

WORKER = """
    class DistProfiler:
        def __init__(self, rank, config):
            self.rank = rank

    class TrainingWorker:
        def train_mini_batch(self, data):
            assert data["mini_batch"] == len(data["response_mask"].unbind())
            with self.engine.train_mode():
                self.engine.train_batch(data, self.loss_fn)
"""

#: Methods of the specimen's engine.
ENGINE = """
    def infer_batch(self, data, loss_function):
        answers = self.forward_step(list(zip(data["input_ids"].unbind(), data["position_ids"].unbind())), data)
        output = {n: torch.nested.as_nested_tensor(list(x), layout=torch.jagged) for n, x in answers.items()}
        return {"model_output": output}

    def train_batch(self, data, loss_function):
        answers = self.infer_batch(data, None)["model_output"]["log_probs"].unbind()
        masks = data["response_mask"].unbind()
        own = [row[len(row) - len(mask) - 1 : len(row) - 1] for row, mask in zip(answers, masks)]
        columns = ("old_log_probs", "advantages", "ref_log_prob", "response_mask")
        whole = {name: torch.cat(data[name].unbind()) for name in columns}
        loss_function(torch.cat(own), whole, whole["response_mask"].sum()).backward()
"""

SOUND = {"AHEAD": "1", "MEAN": "entropy[mask.bool()].mean()", "HEAT": "sizes.rollout.temperature"}


def _bound(loads: Loads, **broken: str) -> tuple[Target, list[Boundary]]:
    base = rewritten(BASE, SOUND | broken)
    tree = engine_tree()
    place = "verl/workers/engine/fsdp/transformer_impl.py"
    head, word, rest = tree[place].rpartition("    class FSDPEngineWithValueHead")
    tree |= {
        place: f"{head}{indent(dedent(ENGINE), '        ')}\n{word}{rest}",
        "verl/trainer/config/ppo_trainer.yaml": '{"actor_rollout_ref": {"rollout": {}, "actor": {}}}',
        "verl/trainer/ppo/v1/trainer_base.py": base,
        "verl/trainer/ppo/v1/trainer_sync.py": SYNC,
        "verl/workers/engine_workers.py": WORKER,
        "verl/workers/utils/losses.py": LOSS,
    }
    target = loads(FRAMEWORK, tree, {"omegaconf.py": OMEGACONF, "tensordict.py": TENSORDICT})
    made = [*queue_passes.boundaries(target), *actor_update.boundaries(target)]
    assert all(isinstance(one, Boundary) for one in made), made
    return target, [one for one in made if isinstance(one, Boundary)]


def test_reads_back(loads: Loads) -> None:
    """Columns, settings and arguments survive the round trip; the pass, and the update."""
    target, made = _bound(loads)
    assert [one.stage for one in made] == ["batch", "policy-loss"]
    check_round_trips(target, made)


@pytest.mark.parametrize(
    ("place", "broken"),
    [
        (0, {}),
        (0, {"AHEAD": "0"}),  # the log-prob of the token after
        (0, {"MEAN": "entropy.mean()"}),
        (1, {}),
        (1, {"HEAT": "1.0"}),  # the model is another policy than the sampler
    ],
)
def test_faults(loads: Loads, place: int, broken: dict[str, str]) -> None:
    target, made = _bound(loads, **broken)
    check_verdict(REF001, made[place], "packed", target, found=bool(broken))
