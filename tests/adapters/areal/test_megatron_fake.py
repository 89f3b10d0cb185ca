"""The updates of AReaL's specimen through its engine on Megatron, in words of our own."""

import pytest
import torch

from adapters.areal.test_updates import FIELDS, TRACKER, TRAINERS
from adapters.areal_specimen import CONFIG
from adapters.checks import Loads, by_setting, check_verdict, outputs_of
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.areal import FRAMEWORK
from rl_sentinel.adapters.areal.updates import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001

ENGINE = """
    import torch
    from megatron.core import parallel_state as mpu
    from megatron.core.pipeline_parallel import get_forward_backward_func

    def packed_context_parallel_forward(model, inputs):
        raise RuntimeError("there is no model")

    def gather_logprobs_entropy(output, labels):
        raise RuntimeError("there is no vocabulary")

    class MegatronEngine:
        def train_batch(self, data, loss_fn, loss_weight_fn):
            self._ensure_ready()
            parts = []
            for cut in torch.arange(len(data["input_ids"])).tensor_split(self.config.mb_spec.n_mbs):
                keep = data["attention_mask"][cut].bool()
                packed = {key: x for key, x in data.items() if not torch.is_tensor(x)}
                columns = {key: x for key, x in data.items() if torch.is_tensor(x)}
                packed |= {key: x[cut][keep] if x.dim() > 1 else x[cut] for key, x in columns.items()}
                parts += [packed] if len(cut) else []
            self.optimizer_zero_grad()
            total = sum(loss_weight_fn(part) for part in parts)
            scale = mpu.get_data_parallel_world_size() * self.optimizer.get_loss_scale().item() * (PARTS)

            def step(iterator, model):
                part = next(iterator)

                def compute_loss(output):
                    loss = self._compute_logprobs_and_loss(output, part, loss_fn)
                    return loss * scale * loss_weight_fn(part) / total, {}

                return packed_context_parallel_forward(model, part), compute_loss

            schedule = get_forward_backward_func()
            schedule(
                forward_step_func=step,
                data_iterator=iter(parts),
                model=self.model[0],
                num_microbatches=len(parts),
                forward_only=False,
            )
            return self.optimizer_step()

        def _compute_logprobs_and_loss(self, output, part, loss_fn):
            if self.config.is_critic:
                return loss_fn(output.squeeze(-1), part)
            return loss_fn(*gather_logprobs_entropy(output, part["input_ids"].roll(-SHIFT)), part)
"""


def _bound(loads: Loads, parts: str = "len(parts)", shift: str = "1") -> tuple[Target, dict[str, Boundary]]:
    trainers = TRAINERS
    for name in ("IN_PARTS", "FROM_TEACHER", "SWAPPED"):
        trainers = trainers.replace(name, "False")
    files = {
        "areal/__init__.py": "",
        "areal/api/cli_args.py": CONFIG + FIELDS,
        "areal/engine/megatron_engine.py": ENGINE.replace("PARTS", parts).replace("SHIFT", shift),
        "areal/utils/stats_tracker.py": TRACKER,
        "areal/trainer/ppo/actor.py": trainers,
        "areal/trainer/ppo/critic.py": trainers,
    }
    target = loads(FRAMEWORK, files)
    return target, by_setting(boundaries(target))


def test_updates_by_hand(loads: Loads) -> None:
    """Means over three trained tokens, in the engine's own scaling."""
    target, found = _bound(loads)
    columns = {
        "advantage": [[1.0, 2.0], [6.0, 50.0]],
        "value": [[0.0, 0.0], [2.0, 50.0]],
    }
    mask = torch.tensor([[True, True], [True, False]])
    batch = batch_of(mask, **{name: torch.tensor(rows) for name, rows in columns.items()})
    assert sorted(found) == ["critic", "ppo"]
    assert outputs_of(target, found["ppo"], "ppo", batch)["loss"].item() == pytest.approx(-3.0)
    assert outputs_of(target, found["critic"], "critic", batch)["loss"].item() == pytest.approx(4 / 2 / 3)
    for boundary in found.values():
        check_round_trip(target, boundary)


@pytest.mark.parametrize("setting", ["ppo", "critic"])
@pytest.mark.parametrize(("parts", "found"), [("len(parts)", False), ("1", True)])
def test_schedule_divides(loads: Loads, setting: str, parts: str, found: bool) -> None:
    """Megatron divides by the number of micro-batches; a loss that is scaled already shrinks with their number."""
    target, boundaries_ = _bound(loads, parts)
    check_verdict(SPL001, boundaries_[setting], setting, target, found=found)


@pytest.mark.parametrize(("shift", "found"), [("1", False), ("0", True)])
def test_labels(loads: Loads, shift: str, found: bool) -> None:
    """A position predicts the next token, not its own."""
    target, boundaries_ = _bound(loads, shift=shift)
    check_verdict(REF001, boundaries_["ppo"], "ppo", target, found=found)
