"""The forward passes of verl's engine on FSDP, on a specimen of trainer and engine in words of our own."""

import pytest
import torch

from adapters.checks import Loads, check_verdict, rewritten
from adapters.kit.round_trip import check_round_trips
from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl_specimen import files
from rl_sentinel.adapters.kit.causal_model import model_of, prompt_tokens, with_prompt_tokens
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, engine_passes
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004
from rl_sentinel.laws.valid_input_raises import LAW as RAI001

TRAINER = """
    import torch
    from verl import DataProto
    from verl.utils import tensordict_utils as tu

    def padded(rows, mask, width):
        lengths = mask[:, -width:].sum(1).tolist()
        cut = [row[len(row) - n - SHIFT : len(row) - SHIFT or None] for row, n in zip(rows, lengths)]
        rest = [row.new_zeros(width - len(row), *row.shape[1:]) for row in cut]
        return torch.stack([torch.cat(row) for row in zip(cut, rest)])

    def compute_advantage(data, adv_estimator, gamma, lam, config):
        values, rewards, later, advantages = data.batch["values"], data.batch["token_level_rewards"], 0, []
        for t in reversed(range(rewards.shape[1])):
            later = rewards[:, t] + gamma * later - values[:, t]
            advantages.append(later)
        data.batch["advantages"] = torch.stack(advantages[::-1], dim=1) * data.batch["response_mask"]

    class RayPPOTrainer:
        def _run(self, group, batch, names):
            data, mask = batch.batch, batch.batch["attention_mask"]
            rows = [(data["input_ids"][i][m], data["position_ids"][i][m]) for i, m in enumerate(mask.bool())]
            output = group(tu.get_tensordict({"rows": rows}, dict(batch.meta_info)))
            width = data["responses"].shape[1]
            return DataProto.from_dict({to: padded(output[name], mask, width) for name, to in names.items()})

        def _compute_old_log_prob(self, batch):
            names = {"log_probs": "old_log_probs", "entropy": "entropys", "squares": "sum_pi_squared"}
            return self._run(self.actor_rollout_wg.compute_log_prob, batch, names), 0.0

        def _compute_values(self, batch):
            return self._run(lambda data: self.critic_wg.infer_batch(data).get(), batch, {"values": "values"})
"""

TENSORS = """
    def assign_non_tensor(data, **values):
        data.update(values)

    def get_tensordict(tensors, about):
        return {**tensors, **about}
"""

ULYSSES = """
    import torch
    import torch.distributed as dist

    def get_ulysses_sequence_parallel_group():
        raise RuntimeError("a group is asked for")

    def share(x):
        group = get_ulysses_sequence_parallel_group()
        size = len(x) // dist.get_world_size(group)
        return x[dist.get_rank(group) * size :][:size]

    def gather(x):
        whole = torch.empty(len(x) * dist.get_world_size(None), dtype=x.dtype)
        dist.all_gather_into_tensor(whole, x, group=get_ulysses_sequence_parallel_group())
        return whole
"""

ENGINE = """
    import torch
    from torch.nn.functional import pad
    from verl.utils.ulysses import gather, share

    def get_device_id():
        raise RuntimeError("a device is asked for")

    class FSDPEngineWithLMHead:
        def __init__(self, model_config, engine_config, optimizer_config, checkpoint_config):
            self.engine_config = engine_config
            self._init_device_mesh()

        def infer_batch(self, data, loss_function):
            rows, order = data["rows"], list(range(len(data["rows"])))
            if data["use_dynamic_bsz"]:
                order.sort(key=lambda i: len(rows[i][0]))
            size = len(rows) if data["use_dynamic_bsz"] else data["micro_batch_size_per_gpu"]
            answers = {}
            for start in range(0, len(rows), size):
                part = [rows[i] for i in order[start : start + size]]
                for name, values in self.forward_step(part, data).items():
                    answers.setdefault(name, []).extend(values)
            place = {row: n for n, row in enumerate(order)}
            return {"model_output": {k: [v[place[i]] for i in BACK] for k, v in answers.items()}}

        def forward_step(self, part, data):
            lengths = [len(ids) for ids, _ in part]
            packed = self.packed if data["use_remove_padding"] else self.padded
            logits, labels = packed(part, lengths)
            names = self.answers(logits, labels, data)
            if self.use_ulysses_sp:
                names = {name: gather(x)[: sum(lengths)] for name, x in names.items()}
            return {name: x.split(lengths) for name, x in names.items()}

        def packed(self, part, lengths):
            ids, places = (torch.cat(x) for x in zip(*part))
            missing = -len(ids) % self.ulysses_sequence_parallel_size
            labels = pad(ids.roll(-1), (0, missing))
            ids, places = pad(ids, (0, missing)), torch.cat([places, torch.arange(missing)])
            if self.use_ulysses_sp:
                ids, places, labels = share(ids), share(places), share(labels)
            if LOCAL:
                labels = ids.roll(-1)
            output = self.module(input_ids=ids[None], attention_mask=None, position_ids=PLACES[None])
            return output.logits[0], labels

        def padded(self, part, lengths):
            ids, places = (torch.nn.utils.rnn.pad_sequence(list(x), batch_first=True) for x in zip(*part))
            mask = torch.arange(ids.shape[1]) < torch.tensor(lengths)[:, None]
            output = self.module(input_ids=ids, attention_mask=MASK, position_ids=places)
            return output.logits[mask], torch.cat([row for row, _ in part]).roll(-1)

        def answers(self, logits, labels, data):
            log_probs = (logits / TEMPERATURE).log_softmax(-1)
            probabilities = log_probs.exp()
            return {
                "log_probs": log_probs.gather(1, labels[:, None])[:, 0],
                "entropy": -(probabilities * log_probs).sum(1),
                "squares": (probabilities * probabilities).sum(1),
            }

    class FSDPEngineWithValueHead(FSDPEngineWithLMHead):
        def answers(self, logits, labels, data):
            return {"values": VALUES}
"""

MODEL = """
    def compute_position_id_with_mask(mask):
        return (mask.cumsum(-1) - FIRST).clamp(min=0)
"""

CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class FSDPEngineConfig:
        ulysses_sequence_parallel_size: int = 1
        use_torch_compile: bool = True
"""

SOUND = {
    "SHIFT": "1",
    "BACK": "range(len(rows))",
    "TEMPERATURE": 'data["temperature"]',
    "LOCAL": "False",
    "PLACES": "places",
    "MASK": "mask",
    "FIRST": "1",
    "VALUES": "logits[:, 0]",
}


def engine_tree(**broken: str) -> dict[str, str]:
    """The files of trainer and engine, with parts of their code replaced."""
    words = {**SOUND, **broken}

    def written(source: str) -> str:
        return rewritten(source, words)

    return files() | {
        "verl/trainer/ppo/ray_trainer.py": written(TRAINER),
        "verl/utils/model.py": written(MODEL),
        "verl/utils/tensordict_utils.py": TENSORS,
        "verl/utils/ulysses.py": ULYSSES,
        "verl/workers/engine/fsdp/transformer_impl.py": written(ENGINE),
        "verl/workers/config/__init__.py": CONFIG,
    }


def _bound(loads: Loads, tree: dict[str, str]) -> tuple[Target, dict[str, Boundary]]:
    target = loads(FRAMEWORK, tree, {"omegaconf/__init__.py": OMEGACONF})
    mine = [b for b in engine_passes.boundaries(target) if isinstance(b, Boundary)]
    return target, {("values " if "value" in b.outputs else "") + s: b for b in mine for s in b.settings}


def test_reads_back(loads: Loads) -> None:
    """Columns, settings and arguments survive the round trip."""
    target, mine = _bound(loads, engine_tree())
    assert set(mine) == {"packed", "padded", "sequence parallel", "values padded"}
    check_round_trips(target, mine.values())


CASES: list[tuple[Law, str, dict[str, str]]] = [
    (REF001, "packed", {"TEMPERATURE": "1.0"}),
    (REF001, "padded", {"SHIFT": "0"}),
    (REF001, "packed", {"PLACES": "torch.arange(len(ids))"}),
    (REF001, "packed", {"BACK": "order"}),
    (REF001, "padded", {"MASK": "(mask & (ids > 0))"}),
    (REF001, "sequence parallel", {"LOCAL": "True"}),
    (REF001, "sequence parallel", {"PLACES": "torch.arange(len(ids))"}),
    (REF001, "padded", {"FIRST": "0"}),
    (PLC004, "values padded", {"SHIFT": "0"}),
    (PLC004, "values padded", {"FIRST": "2"}),
    (RAI001, "values padded", {"VALUES": "logits"}),
    (PLC004, "values padded", {"MASK": "(mask & (ids > 0))"}),
]


@pytest.mark.parametrize(("law", "setting", "broken"), CASES)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(loads: Loads, law: Law, setting: str, broken: dict[str, str], found: bool) -> None:
    """Temperature, shift, positions, order, attention mask, labels rolled on a rank's share, an axis that is left."""
    target, mine = _bound(loads, engine_tree(**(broken if found else {})))
    check_verdict(law, mine[setting], setting.removeprefix("values "), target, found=found)


def test_model_answers_its_sequences_alone() -> None:
    """An answer differs after a wrong token, at a wrong position and where a token is not attended to."""
    ids = torch.tensor([[0, *prompt_tokens(0, 2, 3), 1, 2]])
    attended = torch.tensor([[0, 1, 1, 1, 1]])
    logits = with_prompt_tokens(torch.arange(6.0).reshape(1, 2, 3))
    model = model_of(ids, attended, 2, logits)
    right = model.packed(ids[0, 1:], torch.arange(4), [0])
    assert right[1:3].tolist() == logits[0].tolist()
    assert not torch.equal(model.packed(ids[0, 1:], torch.arange(1, 5), [0]), right)
    assert not torch.equal(model.packed(torch.tensor([3, 2, 1, 2]), torch.arange(4), [0])[1:3], right[1:3])
    hidden = model.padded(ids[:, 1:], torch.arange(4).unsqueeze(0), torch.tensor([[1, 0, 1, 1]]))
    assert not torch.equal(hidden[0, 2:], right[2:])
