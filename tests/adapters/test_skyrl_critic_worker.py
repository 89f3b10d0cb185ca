"""SkyRL's critic worker, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, rewritten, the_only
from adapters.kit.round_trip import check_calls, check_round_trip
from adapters.skyrl_worker_specimen import FILES
from rl_sentinel.adapters.skyrl import FRAMEWORK
from rl_sentinel.adapters.skyrl.critic_worker import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001

LOSS = """
    def ppo_critic_loss(values, old_values, returns, config, loss_mask):
        near = old_values + (values - old_values).clamp(-config.value_clip, config.value_clip)
        errors = torch.maximum((values - returns) ** 2, (near - returns) ** 2)
        rows = torch.where(loss_mask > 0, errors, 0.0).sum(-1) / loss_mask.sum(-1).clamp(min=1)
        return rows.mean() / 2, 0.0
"""

WORKER = """
    import torch

    class CriticWorkerBase:
        def forward_backward(self, data):
            for part in data.chunk(self.cfg.micro_train_batch_size_per_gpu):
                tokens = part["sequences"].to(torch.cuda.current_device())
                values, _ = self.model(tokens, part.metadata["response_length"], attention_mask=part["attention_mask"])
                columns = (OLD, part["returns"])
                loss, _ = self.critic_loss_fn(values, *columns, config=self.cfg.algorithm, loss_mask=part["loss_mask"])
                self.strategy.backward(loss, self.model, self.optimizer)
                self._micro_batches_accumulated += 1
            return {"critic_loss": loss.item()}

        def optim_step(self):
            for one in self.model.parameters():
                one.grad.mul_(SCALE)
            self.strategy.optimizer_step(self.optimizer, self.model, self.scheduler, name="critic")
"""

#: A worker that divides the loss of each micro-batch, and whose settings are those of the whole configuration.
EARLIER = """
    import torch
    from tqdm import tqdm

    class CriticWorkerBase:
        def ppo_train(self, data):
            size = self.cfg.trainer.micro_train_batch_size_per_gpu
            parts, steps = data.chunk(size), self.critic_mini_batch_size_per_gpu // size
            for _ in range(self.cfg.trainer.update_epochs_per_batch):
                for part in tqdm(parts, disable=False):
                    self.training_step(part, steps)
            torch.distributed.barrier()

        def training_step(self, part, steps):
            tokens = part["sequences"].to(torch.cuda.current_device())
            values, _ = self.model(tokens, part.metadata["response_length"], attention_mask=part["attention_mask"])
            columns, own = (OLD, part["returns"]), self.cfg.trainer.algorithm
            loss, _ = self.critic_loss_fn(values, *columns, config=own, loss_mask=part["loss_mask"])
            self.strategy.backward(loss SCALE, self.model, self.optimizer)
"""

SOUND = {"OLD": 'part["values"]', "SCALE": "1 / self._micro_batches_accumulated"}


def _bound(loads: Loads, worker: str = WORKER, **broken: str) -> tuple[Target, Boundary]:
    source = rewritten(worker, SOUND | broken)
    place = "skyrl/backends/skyrl_train"
    files = {
        **FILES,
        f"{place}/utils/ppo_utils.py": FILES[f"{place}/utils/ppo_utils.py"] + LOSS,
        f"{place}/workers/worker.py": source,
        "skyrl/train/config.py": FILES["skyrl/train/config.py"].replace("use_kl_loss", "value_clip=0.5, use_kl_loss"),
    }
    target = loads(FRAMEWORK, files)
    return target, the_only(boundaries(target))


def test_answers(loads: Loads) -> None:
    target, boundary = _bound(loads)
    check_calls(target, [boundary])


def test_worker_without_a_scale(loads: Loads) -> None:
    """A worker whose step and update both scale nothing has no step that could be judged."""
    source = "class CriticWorkerBase:\n    def forward_backward(self, data): ...\n    def optim_step(self): ...\n"
    assert list(boundaries(loads(FRAMEWORK, {**FILES, "skyrl/backends/skyrl_train/workers/worker.py": source}))) == []


CASES: list[tuple[Law, dict[str, str]]] = [
    (REF001, {"OLD": "values.detach()"}),
    (SPL001, {"SCALE": "1.0 if self._micro_batches_accumulated else 0.0"}),
]


@pytest.mark.parametrize(("law", "broken"), CASES)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(loads: Loads, law: Law, broken: dict[str, str], found: bool) -> None:
    """Values of the new critic in the place of the old one's, and gradients that are added up."""
    target, boundary = _bound(loads, **(broken if found else {}))
    check_verdict(law, boundary, "in micro-batches", target, found=found)


@pytest.mark.parametrize(
    ("law", "old", "scale", "found"),
    [
        (REF001, 'part["values"]', "/ steps", False),
        (SPL001, 'part["values"]', "/ steps", False),
        (REF001, "values.detach()", "/ steps", True),
        (SPL001, 'part["values"]', "", True),
    ],
)
def test_releases_that_scale_each_loss(loads: Loads, law: Law, old: str, scale: str, *, found: bool) -> None:
    target, boundary = _bound(loads, EARLIER, OLD=old, SCALE=scale)
    check_round_trip(target, boundary)
    check_verdict(law, boundary, "in micro-batches", target, found=found)
