"""The update of verl's actor on Megatron, on a specimen of it in words of our own."""

from typing import Any

import pytest
import torch

from adapters.checks import Loads, by_setting, check_verdict
from adapters.kit.round_trip import check_round_trips
from adapters.verl.worker_specimen import CONFIG, update_files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, megatron
from rl_sentinel.audit.engine.executor import Asker
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.case import Case
from rl_sentinel.core.law import Law
from rl_sentinel.core.layout import Layout
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.gradient_off_mask import LAW as PLC002
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001

ACTOR = """
    from functools import partial

    from megatron.core.pipeline_parallel import get_forward_backward_func
    from megatron.vocabulary import vocab_parallel_entropy, vocab_parallel_log_probs_from_logits
    from verl import DataProto
    from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY, agg_loss

    def parts_of(data, size):
        for start in range(0, len(data), size):
            part = {name: column[start : start + size] for name, column in data.batch.items()}
            yield DataProto.from_dict(part, meta_info=data.meta_info)

    class MegatronPPOActor:
        def __init__(self, config, actor_module, actor_optimizer):
            raise RuntimeError("a cluster is asked for")

        def make_minibatch_iterator(self, data):
            for _ in range(self.config.ppo_epochs):
                yield from parts_of(data, self.config.ppo_mini_batch_size)

        def forward_step(self, parts, model, number):
            from verl.models.mcore import get_mcore_forward_fn

            part = next(parts)
            rows = {name: part.batch[name] for name in ("input_ids", "attention_mask", "position_ids")}
            responses = part.batch["responses"]
            label = rows["position_ids"].clone()
            label[:, -responses.shape[1] - 1 : -1] = responses

            def answered(logits, label):
                logits.div_(HEAT)
                if EARLY:
                    entropy = vocab_parallel_entropy(logits)
                log_probs = vocab_parallel_log_probs_from_logits(logits, label)
                return {"log_probs": log_probs, "entropy": entropy if EARLY else vocab_parallel_entropy(logits)}

            forward, more = get_mcore_forward_fn(self.hf_config), {"label": label}
            output = forward(model=model, **rows, logits_processor=answered, logits_processor_args=more)
            return output, partial(self.loss, part.batch, number)

        def loss(self, part, number, output):
            config, width = self.config, part["responses"].shape[1]
            log_prob, entropy = (output[name][:, -width - SHIFT : -SHIFT or None] for name in ("log_probs", "entropy"))
            mask, mode, old = part["MASK"][:, -width:], config.loss_agg_mode, part["old_log_probs"]
            chosen = POLICY_LOSS_REGISTRY[config.policy_loss.loss_mode]
            loss, _ = chosen(old, log_prob, part["advantages"], mask, mode, config)
            gap = part["ref_log_prob"] - log_prob
            kl = agg_loss(gap.exp() - gap - 1, mask, mode)
            loss = loss - config.entropy_coeff * agg_loss(entropy, mask, mode) + config.kl_loss_coef * kl
            return loss * SHARE, [{"actor/kl_loss": kl.item()}, None]

        def update_policy(self, dataloader):
            logged = {"actor/kl_loss": []}
            for data in dataloader:
                self.actor_optimizer.zero_grad()
                for chunk in self.actor_module:
                    chunk.zero_grad_buffer()
                parts = list(parts_of(data, self.config.ppo_micro_batch_size_per_gpu))
                measured = get_forward_backward_func()(
                    forward_step_func=lambda iterator, model: self.forward_step(iterator, model, len(parts)),
                    data_iterator=iter(parts),
                    model=self.actor_module,
                    num_microbatches=len(parts),
                    forward_only=False,
                )
                for numbers, _ in measured:
                    logged["actor/kl_loss"].append(numbers["actor/kl_loss"])
                if not self.actor_optimizer.step()[0]:
                    raise RuntimeError("no step was made")
            return logged
"""

SECTIONS = """
    @dataclass
    class McoreEngineConfig:
        context_parallel_size: int = 1

    @dataclass
    class OptimizerConfig:
        lr: object = "???"

        def __post_init__(self):
            if self.lr == "???":
                raise ValueError("the learning rate is not set")

    @dataclass
    class McoreActorConfig(FSDPActorConfig):
        shuffle: bool = False
        optim: OptimizerConfig = field(default_factory=OptimizerConfig)
        megatron: McoreEngineConfig = field(default_factory=McoreEngineConfig)
"""

#: The worker without Megatron of the same release; by its source the trainer has a mask of the trained tokens.
OTHER = """
    class DataParallelPPOActor:
        def update_policy(self, data):
            return data.batch["response_mask"]
"""


def _tree(
    mask: str = "response_mask",
    share: str = "1",
    shift: int = 1,
    early: str = "True",
    heat: str = 'part.meta_info["temperature"]',
) -> dict[str, str]:
    tree = update_files()
    tree[CONFIG] += SECTIONS
    tree["verl/workers/config/__init__.py"] += "from verl.workers.config.actor import *\n"
    actor = ACTOR.replace('part["MASK"]', f'part["{mask}"]').replace("SHARE", share).replace("SHIFT", str(shift))
    actor = actor.replace("EARLY", early).replace("HEAT", heat)
    mcore = "def get_mcore_forward_fn(config): raise RuntimeError('a model is asked for')\n"
    sources = {"workers/actor/megatron_actor": actor, "workers/actor/dp_actor": OTHER, "models/mcore/__init__": mcore}
    return tree | {f"verl/{name}.py": source for name, source in sources.items()}


def _bound(loads: Loads, tree: dict[str, str]) -> tuple[Target, dict[str, Boundary]]:
    target = loads(FRAMEWORK, tree)
    return target, by_setting(megatron.boundaries(target))


def test_the_update_reads_back(loads: Loads) -> None:
    """Columns, settings and arguments survive the round trip in both modes."""
    target, mine = _bound(loads, _tree())
    assert set(mine) == {"token-mean", "token-mean, temperature", "seq-mean-token-mean"}
    check_round_trips(target, mine.values())


def test_loss_by_hand(loads: Loads) -> None:
    """Means of two micro-batches, halved: at a ratio of 1 the slope is minus the advantage over the tokens of a row."""
    target, mine = _bound(loads, _tree())
    mask = torch.tensor([[True, True], [True, False]])
    columns = {"advantage": [[3.0, 1.0], [5.0, 50.0]], "entropy": [[2.0, 4.0], [6.0, 50.0]]}
    batch = batch_of(mask, **{name: torch.tensor(rows) for name, rows in columns.items()})
    ask = Asker(mine["seq-mean-token-mean"], {}, gate=target)
    for parts in (1, 2):
        case = Case(batch, setting="seq-mean-token-mean", layout=Layout(micro_batches=parts))
        seen = ask(case, gradients=("logprob",))
        assert seen.values["loss"].item() == -(2 + 5) / 2 - 0.5 * (3 + 6) / 2
        assert seen.gradients["logprob"].tolist() == [[-0.75, -0.25], [-2.5, 0.0]]


CASES: list[tuple[Law, str, dict[str, Any]]] = [
    (REF001, "token-mean", {"mask": "attention_mask"}),
    (PLC002, "token-mean", {"mask": "attention_mask"}),
    (SPL001, "seq-mean-token-mean", {"share": "number"}),
    (REF001, "token-mean", {"shift": "0"}),
    (REF001, "token-mean", {"early": "False"}),
    (REF001, "token-mean, temperature", {"heat": "1.0"}),
]


@pytest.mark.parametrize(("law", "setting", "broken"), CASES)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(loads: Loads, law: Law, setting: str, broken: dict[str, Any], found: bool) -> None:
    """Untrained tokens; a sum over micro-batches; answers for the token before; overwritten logits; no temperature."""
    target, mine = _bound(loads, _tree(**(broken if found else {})))
    check_verdict(law, mine[setting], setting, target, found=found)


def test_model_that_is_absent(loads: Loads) -> None:
    """Without what makes the model's forward pass, the update is reported as missing."""
    tree = _tree()
    del tree["verl/models/mcore/__init__.py"]
    (missing,) = megatron.boundaries(loads(FRAMEWORK, tree))
    assert isinstance(missing, Unbound)
    assert "get_mcore_forward_fn" in missing.reason
