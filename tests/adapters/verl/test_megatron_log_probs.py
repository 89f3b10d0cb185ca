"""The log-probs of verl's actor on Megatron, on a specimen of it in words of our own."""

import pytest

from adapters.checks import Loads, by_setting, check_verdict, rewritten
from adapters.kit.round_trip import check_round_trips
from adapters.verl.test_megatron import OTHER, SECTIONS
from adapters.verl.worker_specimen import CONFIG, update_files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, megatron_log_probs
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.differs_from_reference import LAW as REF001

ACTOR = """
    import torch
    from megatron.core.pipeline_parallel import get_forward_backward_func
    from megatron.vocabulary import vocab_parallel_log_probs_from_logits

    def vocab_parallel_entropy(logits):
        log_probs = logits.log_softmax(-1)
        return -(log_probs.exp() * log_probs).sum(-1)

    class MegatronPPOActor:
        def step(self, parts, model):
            from verl.models.mcore import get_mcore_forward_fn

            part, temperature = next(parts)
            rows = {name: part[name] for name in ("input_ids", "attention_mask", "position_ids")}
            width = part["responses"].shape[1]
            label = rows["position_ids"].clone()
            label[:, -width - AHEAD : -AHEAD or None] = part["responses"]

            def answered(logits, label):
                logits.div_(HEAT)
                entropy = vocab_parallel_entropy(logits)
                log_probs = vocab_parallel_log_probs_from_logits(logits, label)
                return {"log_probs": log_probs, "entropy": ENTROPY}

            more = {"logits_processor": answered, "logits_processor_args": {"label": label}}
            output = get_mcore_forward_fn(self.hf_config)(model=model, **rows, **more)
            return output, lambda output: (torch.tensor(1.0), {n: x[:, -width - 1 : -1] for n, x in output.items()})

        def compute_log_prob(self, data, calculate_entropy):
            for chunk in self.actor_module:
                MODE
            about, rows = data.meta_info, data.batch
            order = torch.arange(len(data))
            if about["use_dynamic_bsz"]:
                order = rows["attention_mask"].sum(1).argsort(descending=True)
            size = 1 if about["use_dynamic_bsz"] else about["micro_batch_size"]
            cut = [order[first : first + size] for first in range(0, len(data), size)]
            parts = [({name: column[own] for name, column in rows.items()}, about["temperature"]) for own in cut]
            with torch.no_grad():
                made = get_forward_backward_func()(
                    forward_step_func=self.step, data_iterator=iter(parts), model=self.actor_module,
                    num_microbatches=len(parts), forward_only=True,
                )
            log_probs, entropys = (torch.cat([one[n] for one in made])[BACK] for n in ("log_probs", "entropy"))
            return log_probs, entropys
"""

SOUND = {
    "HEAT": "temperature",
    "AHEAD": "1",
    "ENTROPY": "entropy",
    "BACK": "order.argsort()",
    "MODE": "chunk.eval()",
}


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    source, tree = ACTOR, update_files()
    source = rewritten(source, SOUND | broken)
    tree[CONFIG] += SECTIONS
    tree["verl/workers/config/__init__.py"] += "from verl.workers.config.actor import *\n"
    tree |= {
        "verl/workers/actor/megatron_actor.py": source,
        "verl/workers/actor/dp_actor.py": OTHER,
        "verl/models/mcore/__init__.py": "def get_mcore_forward_fn(config): raise RuntimeError('a model is asked for')",
    }
    target = loads(FRAMEWORK, tree)
    return target, by_setting(megatron_log_probs.boundaries(target))


def test_reads_back(loads: Loads) -> None:
    """Columns, settings and arguments survive the round trip."""
    target, mine = _bound(loads)
    assert set(mine) == {"default", "other temperature", "dynamic batch size"}
    check_round_trips(target, mine.values())


@pytest.mark.parametrize(
    ("setting", "broken"),
    [
        ("other temperature", {}),
        ("dynamic batch size", {}),
        ("other temperature", {"HEAT": "1.0"}),
        ("default", {"AHEAD": "0"}),  # labels of the token before
        ("default", {"ENTROPY": "vocab_parallel_entropy(logits)"}),  # of logits that are overwritten
        ("dynamic batch size", {"BACK": "order"}),
        ("default", {"MODE": "chunk.train()"}),  # with dropout
    ],
)
def test_faults(loads: Loads, setting: str, broken: dict[str, str]) -> None:
    target, mine = _bound(loads, **broken)
    assert ("models with dropout" in mine[setting].reach) == ("MODE" in broken)
    check_verdict(REF001, mine[setting], setting, target, found=bool(broken))


def test_releases_without_entropy(loads: Loads) -> None:
    """Are not bound."""
    assert not _bound(loads, **{"return log_probs, entropys": "return log_probs"})[1]
