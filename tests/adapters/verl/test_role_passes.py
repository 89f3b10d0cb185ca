"""The forward passes of verl's workers of October 2025, on a specimen of worker and engine in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, rewritten
from adapters.kit.round_trip import check_round_trips
from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl.test_engine_passes import engine_tree
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, role_passes
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

PADDING = """
    import torch
    from torch.nn.functional import pad

    def left_right_2_no_padding(data):
        ids, places, *_ = unpad_input(data["input_ids"].unsqueeze(-1), data["attention_mask"])
        lengths = data["attention_mask"].sum(1).tolist()
        return [(row, torch.arange(len(row))) for row in ids.squeeze(-1).split(lengths)]

    def no_padding_2_padding(rows, data):
        width = data["responses"].shape[1]
        lengths = data["attention_mask"][:, -width:].sum(1).tolist()
        cut = [row[len(row) - n - LEFT : len(row) - LEFT or None] for row, n in zip(rows, lengths)]
        return torch.stack([pad(row, (0, width - len(row))) for row in cut])
"""

WORKER = """
    from verl import DataProto
    from verl.workers.roles.utils.padding import left_right_2_no_padding, no_padding_2_padding

    class KIND:
        def METHOD(self, data):
            if not self.config.use_dynamic_bsz:
                raise ValueError("equal micro-batches")
            about = {"use_dynamic_bsz": True, **data.meta_info}
            rows = left_right_2_no_padding(data.batch)
            output = self.engine.infer_batch({"rows": rows, **about}, None)["model_output"]
            return DataProto.from_dict({to: no_padding_2_padding(output[n], data.batch) for n, to in NAMES.items()})
"""

LAYOUT = """
    import torch
    from megatron.core import parallel_state as mpu

    def pieces(size, rank):
        cut = torch.arange(size).chunk(2 * mpu.get_context_parallel_world_size())
        return torch.cat([cut[rank], cut[-1 - rank]])

    def gather(own, size):
        parts = [torch.empty_like(own) for _ in range(mpu.get_context_parallel_world_size())]
        torch.distributed.all_gather(parts, own, group=mpu.get_context_parallel_group())
        whole = own.new_zeros(size)
        for rank, part in enumerate(parts):
            whole[pieces(size, rank)] = part
        return whole
"""

MEGATRON = """
    import torch
    from types import SimpleNamespace
    from torch.nn.functional import pad
    from verl.models.mcore.util import gather, mpu, pieces

    class MegatronEngineWithLMHead:
        def infer_batch(self, data, loss_function):
            rows = [self.forward_step(ids, data) for ids, _ in data["rows"]]
            return {"model_output": {name: [row[name] for row in rows] for name in rows[0]}}

        def forward_step(self, ids, data):
            size = len(ids) + -len(ids) % (2 * mpu.get_context_parallel_world_size())
            places = pieces(size, mpu.get_context_parallel_rank())
            whole = pad(ids, (0, size - len(ids)))
            own = whole[places]
            labels = own.roll(-1) if LOCAL else whole.roll(-1)[places]
            about = SimpleNamespace(cu_seqlens_q_padded=torch.tensor([0, size]))
            answers = self.answers(self.module[0](own[None], None, None, about)[0], labels, data)
            return {name: gather(x, size)[: len(ids)] for name, x in answers.items()}

        def answers(self, logits, labels, data):
            table = (logits / data["temperature"]).log_softmax(-1)
            return {"log_probs": table.gather(1, labels[:, None])[:, 0], "entropy": -(table.exp() * table).sum(1)}

    class MegatronEngineWithValueHead(MegatronEngineWithLMHead):
        def answers(self, logits, labels, data):
            return {"values": logits[:, 0]}
"""

CONFIG = """
    @dataclass
    class McoreEngineConfig:
        context_parallel_size: int = 1
        sequence_parallel: bool = True
"""

MICRO_BATCHES = """
    def prepare_micro_batches(data):
        return data.split(data["micro_batch_size_per_gpu"])
"""

ACTOR = {
    "KIND": "ActorWorker",
    "METHOD": "compute_log_prob",
    "NAMES": '{"log_probs": "old_log_probs", "entropy": "entropy"}',
}
CRITIC = {"KIND": "CriticWorker", "METHOD": "compute_values", "NAMES": '{"values": "values"}'}


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    words = {"LEFT": "1", "LOCAL": "False"} | broken

    def written(source: str, more: dict[str, str]) -> str:
        return rewritten(source, more | words)

    tree = engine_tree() | {
        "verl/workers/engine/utils.py": MICRO_BATCHES,
        "verl/workers/roles/utils/padding.py": written(PADDING, {}),
        "verl/workers/roles/actor.py": written(WORKER, ACTOR),
        "verl/workers/roles/critic.py": written(WORKER, CRITIC),
        "verl/workers/engine/megatron/transformer_impl.py": written(MEGATRON, {}),
        "verl/models/mcore/util.py": LAYOUT,
        **dict.fromkeys(("verl/models/mcore/model_forward.py", "verl/utils/megatron/tensor_parallel.py"), ""),
    }
    tree["verl/workers/config/__init__.py"] += CONFIG
    target = loads(FRAMEWORK, tree, {"omegaconf/__init__.py": OMEGACONF})
    mine = [b for b in role_passes.boundaries(target) if isinstance(b, Boundary)]
    return target, {_name(boundary) + s: boundary for boundary in mine for s in boundary.settings}


def _name(boundary: Boundary) -> str:
    return ("Megatron, " if "Megatron" in boundary.path else "") + ("values " if "value" in boundary.outputs else "")


def test_reads_back(loads: Loads) -> None:
    """Columns, settings and arguments survive the round trip."""
    target, mine = _bound(loads)
    fsdp = {"packed", "padded", "sequence parallel", "values packed"}
    assert set(mine) == fsdp | {f"Megatron, {name}" for name in ("packed", "context parallel", "values packed")}
    check_round_trips(target, mine.values())
    assert all("main_ppo uses it with no setting" in b.reach for name, b in mine.items() if "values" not in name)


CASES: list[tuple[Law, str, dict[str, str]]] = [
    (REF001, "padded", {"LEFT": "0"}),
    (REF001, "packed", {"**data.meta_info": '**data.meta_info, "temperature": 1.0'}),
    (PLC004, "values packed", {"LEFT": "0"}),
    (PLC004, "Megatron, values packed", {"LEFT": "0"}),
    (REF001, "Megatron, packed", {"LEFT": "0"}),
    (REF001, "Megatron, context parallel", {"LOCAL": "True"}),
]


@pytest.mark.parametrize(("law", "setting", "broken"), CASES)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(loads: Loads, law: Law, setting: str, broken: dict[str, str], found: bool) -> None:
    """Numbers of the next token, logits without the temperature, labels that are rolled within a rank."""
    target, mine = _bound(loads, **(broken if found else {}))
    boundary = mine[setting]
    check_verdict(law, boundary, setting.removeprefix(_name(boundary)), target, found=found)
