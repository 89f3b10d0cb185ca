"""verl's distillation through the engine, on a specimen of its loss and its engine in words of our own."""

import pytest

from adapters.checks import Loads, bound, judged_at
from adapters.kit.round_trip import check_round_trips
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.gradient_off_mask import LAW as PLC002
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001

CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class DistillationLossConfig:
        loss_mode: str = "k3"
        use_task_rewards: bool = True
        use_policy_gradient: bool = True
        distillation_loss_coef: float = 1.0
        loss_max_clamp: float | None = None

    @dataclass
    class DistillationConfig:
        enabled: bool = False
        distillation_loss: DistillationLossConfig | None = None
"""

LOSS = """
    import torch

    def distillation_ppo_loss(config, distillation_config, model_output, data, dp_group=None):
        own, kind = distillation_config.distillation_loss, distillation_config.distillation_loss.loss_mode
        teacher, student, at = [], [], 0
        width = data["responses"].shape[1]
        for row, length in zip(data["teacher_logprobs"].unbind(), data["attention_mask"][:, 1:].sum(1).tolist()):
            gap = torch.zeros(width - length)
            teacher.append(torch.cat([row[SHIFTED, 0], gap]))
            student.append(torch.cat([model_output["log_probs"][at : at + length], gap]))
            at += length + 1
        moved = torch.stack(student) - torch.stack(teacher)
        mask, rows = MASK, data["global_batch_size"]
        value = {"k1": moved, "mse": moved**2 / 2, "low_var_kl": torch.exp(-moved) + moved - 1}[kind]
        if own.use_policy_gradient:
            ratio = torch.exp(torch.stack(student) - data["old_log_probs"])
            value = ratio * value.detach()
        value = torch.where(mask, value, 0.0)
        if config.loss_agg_mode == "token-mean":
            loss = value.sum() / COUNT
        else:
            loss = (value.sum(1) / mask.sum(1).clamp(min=1)).sum() / rows
        return loss, {}
"""

ENGINE = """
    def get_device_id():
        return 0

    class FSDPEngine:
        def forward_backward_batch(self, data, loss_function, forward_only=False):
            data["batch_num_tokens"] = int(data["loss_mask"].sum())
            size, rows = data["micro_batch_size_per_gpu"], len(data["row"])
            for start in range(0, rows, size):
                part = {n: x[start : start + size] if hasattr(x, "shape") else x for n, x in data.items()}
                loss, _ = self.forward_step(part, loss_function=loss_function)
                loss.backward()
"""

TENSORS = """
    import torch

    class Nested(list):
        shape = ()

        def unbind(self):
            return list(self)

        def __getitem__(self, rows):
            return Nested(list.__getitem__(self, rows)) if isinstance(rows, slice) else list.__getitem__(self, rows)

    def get_tensordict(tensor_dict, non_tensor_dict):
        cut = {n: Nested(x.unbind()) if torch.is_tensor(x) and x.is_nested else x for n, x in tensor_dict.items()}
        return {**cut, **non_tensor_dict}
"""

SOUND = {"SHIFTED": ":-1", "MASK": 'data["response_mask"].bool()', "COUNT": 'data["batch_num_tokens"]'}


def _load(loads: Loads, **fault: str) -> Target:
    loss = LOSS
    for name, text in {**SOUND, **fault}.items():
        loss = loss.replace(name, text)
    config = "verl/workers/config/__init__.py"
    tree = files()
    tree[config] += "from verl.workers.config.distillation import DistillationConfig, DistillationLossConfig\n"
    return loads(
        FRAMEWORK,
        tree
        | {
            "verl/workers/config/distillation.py": CONFIG,
            "verl/trainer/distillation/losses.py": loss,
            "verl/utils/tensordict_utils.py": TENSORS,
            "verl/workers/engine/fsdp/transformer_impl.py": ENGINE,
        },
    )


def _broken(target: Target, law: Law, setting: str) -> bool:
    boundary = bound(FRAMEWORK, target)["distillation_ppo_loss", setting]
    judgement = judged_at(law, boundary, setting, target)
    assert judgement.tried > 0
    return judgement.found is not None


@pytest.mark.slow
def test_reads_back(loads: Loads) -> None:
    """Columns, settings and arguments survive the round trip: two estimators in two modes, and the policy gradient."""
    target = _load(loads)
    mine = [b for (name, _), b in bound(FRAMEWORK, target).items() if name == "distillation_ppo_loss"]
    assert len(mine) == 5
    check_round_trips(target, mine)


FAULTS: list[tuple[Law, str, dict[str, str]]] = [
    (SPL001, "mse, token-mean", {"COUNT": "mask.sum()"}),  # the tokens of the micro-batch
    (PLC002, "low_var_kl, token-mean", {"MASK": 'data["attention_mask"][:, 1:].bool()'}),
    (REF001, "low_var_kl, seq-mean-token-mean", {"SHIFTED": "1:"}),  # the teacher one token too late
]


@pytest.mark.parametrize(("law", "setting", "fault"), FAULTS)
def test_faults(loads: Loads, law: Law, setting: str, fault: dict[str, str]) -> None:
    assert _broken(_load(loads, **fault), law, setting)


@pytest.mark.parametrize(("law", "setting"), [(law, setting) for law, setting, _ in FAULTS])
def test_a_sound_loss(loads: Loads, law: Law, setting: str) -> None:
    assert not _broken(_load(loads), law, setting)


def test_releases_without_it(loads: Loads) -> None:
    """Have no such boundary, and nothing is reported as missing."""
    assert not [name for name, _ in bound(FRAMEWORK, loads(FRAMEWORK, files())) if name.startswith("distillation")]
