"""verl's update on Megatron and its further heads, on a specimen of engine and forward pass in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict
from adapters.kit.round_trip import check_round_trips
from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl.test_actor_update import update_tree
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, megatron_update
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.conversation_tokens_differ import LAW as TOK001
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

ENGINE = """
    import torch
    from torch.nn.functional import pad
    from verl.models.mcore.model_forward import gptmodel_forward_model_engine

    def get_megatron_mtp_loss(count):
        raise RuntimeError("Megatron is asked for")

    class MegatronEngineWithLMHead:
        def train_batch(self, data, loss_function):
            rows, count = len(data["input_ids"]), data["response_mask"].sum()
            size = rows if data["use_dynamic_bsz"] else data["micro_batch_size_per_gpu"]
            for first in range(0, rows, size):
                part = {k: v[first : first + size] if hasattr(v, "shape") else v for k, v in data.items()}
                loss_function(self.forward_step(part), part, count).backward()
            if self.model_config.mtp.enable:
                get_megatron_mtp_loss(rows // size)

        def forward_step(self, part):
            inside, width, log_probs = part["attention_mask"].bool(), part["response_mask"].shape[1], []
            for row, valid, trained in zip(part["input_ids"], inside, part["response_mask"]):
                ids, n = row[valid], int(valid[-width:].sum())
                mask = MASK
                logits = gptmodel_forward_model_engine(self.module[0], ids, mask, self.model_config.mtp.enable_train)
                table = (logits / part["temperature"]).log_softmax(-1)
                own = table.gather(1, ids.roll(-1)[:, None])[len(ids) - n - AHEAD :, 0][:n]
                log_probs.append(pad(own, (0, width - n)))
            return torch.stack(log_probs)
"""

FORWARD = """
    import torch
    from types import SimpleNamespace

    def gptmodel_forward_model_engine(model, ids, mask, heads):
        about = {"labels": ids.roll(SHIFT)[None], "loss_mask": mask.roll(-1)[None]} if heads else {}
        if PACKS:
            about["packed_seq_params"] = SimpleNamespace(cu_seqlens_q_padded=torch.tensor([0, len(ids)]))
        return model(ids[None], None, None, **about)[0]
"""

CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class McoreEngineConfig:
        context_parallel_size: int = 1
        use_remove_padding: bool = True
        sequence_parallel: bool = True
"""

SOUND = {
    "MASK": "torch.cat([ids.new_zeros(len(ids) - n), trained[:n]])",
    "AHEAD": "1",
    "SHIFT": "-1",
    "PACKS": "True",
}


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    engine, forward = ENGINE, FORWARD
    for word, code in (SOUND | broken).items():
        engine, forward = engine.replace(word, code), forward.replace(word, code)
    tree = update_tree()
    tree["verl/workers/config/__init__.py"] += CONFIG
    tree |= {
        "verl/workers/engine/megatron/transformer_impl.py": engine,
        "verl/models/mcore/model_forward.py": forward,
        "verl/models/mcore/util.py": "",
        "verl/utils/megatron/tensor_parallel.py": "",
    }
    target = loads(FRAMEWORK, tree, {"omegaconf/__init__.py": OMEGACONF})
    found = [one for one in megatron_update.boundaries(target) if isinstance(one, Boundary)]
    return target, {one.stage: one for one in found}


def test_reads_back(loads: Loads) -> None:
    """Columns, settings and arguments survive the round trip."""
    target, found = _bound(loads)
    assert set(found) == {"policy-loss", "batch"}
    check_round_trips(target, found.values())


CASES: list[tuple[Law, str, dict[str, str]]] = [
    (REF001, "policy-loss", {"AHEAD": "0"}),  # the log-prob of the token after
    (PLC004, "batch", {"MASK": "torch.cat([trained[:n], ids.new_zeros(len(ids) - n)])"}),  # as if without a prompt
    (PLC004, "batch", {"SHIFT": "0"}),  # labels that are not rolled with the mask
    (TOK001, "batch", {"MASK": "torch.cat([ids.new_ones(len(ids) - n), trained[:n]])"}),  # prompts are trained
]


@pytest.mark.parametrize(("law", "stage", "broken"), CASES)
@pytest.mark.parametrize("packs", ["True", "False"])
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(  # noqa: PLR0913 - parametrised
    loads: Loads, law: Law, stage: str, broken: dict[str, str], packs: str, found: bool
) -> None:
    """What the heads train on covers the response alone, in packed and in padded sequences."""
    target, boundaries = _bound(loads, PACKS=packs, **(broken if found else {}))
    check_verdict(law, boundaries[stage], "packed", target, found=found)


def test_releases_without_heads(loads: Loads) -> None:
    """Have the update alone."""
    tree = {"get_megatron_mtp_loss": "other", "self.model_config.mtp.enable_train": "False"}
    _, found = _bound(loads, **tree)
    assert set(found) == {"policy-loss"}
