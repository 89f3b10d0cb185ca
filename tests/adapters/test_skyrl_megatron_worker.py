"""SkyRL's policy worker on Megatron, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, answering, check_verdict
from adapters.kit.round_trip import check_round_trips
from adapters.skyrl_worker_specimen import FILES
from rl_sentinel.adapters.skyrl import FRAMEWORK, megatron_worker
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.context_split_changes_signal import LAW as SPL004
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.knob_with_side_effect import LAW as CFG002
from rl_sentinel.laws.metric_depends_on_split import LAW as MET005
from rl_sentinel.laws.metric_fits_no_definition import LAW as MET001
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001
from rl_sentinel.laws.rank_split_changes_loss import LAW as SPL002
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

WORKER = """
    import megatron.core.parallel_state as mpu
    import torch

    from skyrl.backends.skyrl_train.utils.replay_utils import clear_router_replay

    class MegatronPolicyWorkerBase:
        def forward_backward(self, data):
            self.model.train()
            CLEARS
            size, batches = self.cfg.micro_train_batch_size_per_gpu, []
            for own in data.chunk(size):
                width, trains = own.metadata["response_length"], bool(own["loss_mask"].any())
                batches.append({**own, "width": width, "trains": trains})
            for batch in batches:
                batch["count"] = sum(b["trains"] for b in batches) if COUNTS_TRAINED else len(batches)
                batch["all"] = len(batches)
            reports = self.model.forward_backward_mini_batch(batches)
            clear_router_replay()
            rows = [row for report in reports for row in report["rows"]]
            total, tokens = (sum(report[name] for report in reports) for name in ("entropy", "tokens"))
            loss = {"policy_loss": sum(report["loss"] for report in reports)}
            loss = self.strategy.all_reduce(loss, op="sum", group=mpu.get_data_parallel_group(GROUP))
            return {"policy_entropy": total / tokens.clamp(min=1), "loss_fn_outputs": rows, **loss}

        def optim_step(self):
            norm = self.strategy.optimizer_step(self.optimizer, self.model, self.scheduler, name="actor")
            AFTERWARDS
            return float(norm)
"""

UPDATE = """
    import torch
    from tqdm import tqdm

    class MegatronPolicyWorkerBase:
        def ppo_train(self, data):
            size = self.cfg.trainer.micro_train_batch_size_per_gpu
            for _ in range(self.cfg.trainer.update_epochs_per_batch):
                batches = []
                CLEARS
                for own in tqdm(data.chunk(size), disable=not self.strategy.is_rank_0()):
                    batches.append({**own, "width": own.metadata["response_length"]})
                assert len(batches) * size == self.policy_mini_batch_size_per_gpu
                for batch in batches:
                    batch["count"] = batch["all"] = len(batches)
                reports = self.model.forward_backward_mini_batch(batches)
                norm = self.strategy.optimizer_step(self.optimizer, self.model, self.scheduler, name="actor")
                assert isinstance(norm, float)  # the metrics are Python numbers
            torch.distributed.barrier()
            total, tokens = (sum(report[name] for report in reports) for name in ("entropy", "tokens"))
            output = type(data)()
            output.metadata = {"train_status": {"policy_entropy": total / (tokens + EXTRA).clamp(min=1)}}
            return output
"""

#: Clears the buffer of gradients, and clears the gradients of the parameters only.
CLEARS, FORGETS = "[own.zero_grad_buffer() for own in self.actor_module]", "self.optimizer.zero_grad()"

REPLAY = """
    def clear_router_replay():
        raise RuntimeError("there are no experts")
"""

PADDING = """
    import megatron.core.parallel_state as mpu

    def remove_left_padding(sequences, attention_mask):
        assert mpu.get_context_parallel_world_size() == 1
        return sequences[:, : attention_mask.sum(1).max()]
"""

WRAPPER = """
    from functools import partial

    import megatron.core.parallel_state as mpu
    import torch
    from megatron.core.pipeline_parallel import get_forward_backward_func

    from skyrl.backends.skyrl_train.distributed.megatron.megatron_utils import remove_left_padding

    def from_parallel_logits_to_logprobs(outputs, tokens):
        raise RuntimeError("there is no vocabulary")

    vocab_parallel_entropy = from_parallel_logits_to_logprobs

    def get_model_config(model):
        raise RuntimeError("there is no model")

    class MegatronModelWrapper:
        def __init__(self, config, actor_module, actor_optimizer=None, policy_loss_fn=None):
            self.cfg, self.actor_module = config, actor_module
            section = get_model_config(actor_module[0])
            if actor_optimizer is not None:
                section.grad_scale_func = LOSS_SCALE

        def forward_backward_mini_batch(self, batches):
            def compute_loss(outputs, data):
                mask, width = data["loss_mask"], data["width"]
                logprob = from_parallel_logits_to_logprobs(outputs, data["sequences"])[:, -width:]
                entropy = torch.where(mask > 0, vocab_parallel_entropy(outputs[:, -width - 1 : -1]), 0.0)
                loss = self.policy_loss_fn(logprob, data["action_log_probs"], data["advantages"], mask)
                logged, loss = loss.detach(), loss * data["all"] * RANKS
                if self.cfg.algorithm.use_kl_loss:
                    gap = torch.where(mask > 0, data["base_action_log_probs"] - logprob, 0.0)
                    gap = ((KL).exp() - 1 - KL).sum(1) / mask.sum(1).clamp(min=1)
                    loss = loss + self.cfg.algorithm.kl_loss_coef * gap.mean() * data["all"] / data["count"]
                lengths = data["response_mask"].sum(1).tolist()
                rows = [{"logprobs": row[len(row) - count :].tolist()} for row, count in zip(logprob, lengths)]
                return loss, {"loss": logged, "rows": rows, "entropy": entropy.sum().detach(), "tokens": mask.sum()}

            def step(iterator, model):
                data = next(iterator)
                tokens = remove_left_padding(data["sequences"].to(torch.cuda.current_device()), data["attention_mask"])
                return model(tokens), partial(compute_loss, data=data)

            schedule = get_forward_backward_func()
            return schedule(
                forward_step_func=step,
                data_iterator=iter(batches),
                model=self.actor_module,
                num_microbatches=len(batches),
                forward_only=False,
            )
"""


def _bound(  # noqa: PLR0913 - the parts of the specimen that differ
    loads: Loads,
    counts: str = "False",
    ranks: str = "mpu.get_data_parallel_world_size()",
    sliced: str = "len(row) - count :",
    kl: str = "gap",
    scale: str = "actor_optimizer.scale_loss",
    group: str = "with_context_parallel=False",
    clears: str = "pass",
    afterwards: str = CLEARS,
) -> tuple[Target, dict[tuple[str, str], Boundary]]:
    place = "skyrl/backends/skyrl_train"
    wrapper = WRAPPER.replace("RANKS", ranks).replace("len(row) - count :", sliced).replace("KL", kl)
    wrapper = wrapper.replace("LOSS_SCALE", scale)
    worker = WORKER.replace("COUNTS_TRAINED", counts).replace("GROUP", group).replace("CLEARS", clears)
    worker = worker.replace("AFTERWARDS", afterwards)
    files = {
        f"{place}/workers/megatron/megatron_worker.py": worker,
        f"{place}/workers/megatron/megatron_model_wrapper.py": wrapper,
        f"{place}/distributed/megatron/megatron_utils.py": PADDING,
        f"{place}/utils/replay_utils.py": REPLAY,
        "skyrl/backends/skyrl_train_backend.py": "SkyRLTrainBackend = None",
    }
    target = loads(FRAMEWORK, {**FILES, **files})
    made = [one for one in megatron_worker.boundaries(target) if isinstance(one, Boundary)]
    return target, {(one.stage, next(iter(one.settings))): one for one in made}


def test_all_boundaries_answer(loads: Loads) -> None:
    target, boundaries = _bound(loads)
    assert len(boundaries) == 9
    assert answering(boundaries, target) == []
    check_verdict(MET005, boundaries["metric", "metrics"], "metrics", target, found=False)


@pytest.mark.parametrize("found", [False, True])
@pytest.mark.parametrize(
    ("law", "stage", "setting", "broken"),
    [
        (MET001, "metric", "metrics", {"EXTRA": "1"}),
        (REF001, "policy-loss", "with KL, sequence_mean", {"KL": "-gap"}),
        (CFG002, "policy-loss", "second step, token_mean", {"CLEARS": FORGETS}),
    ],
)
def test_update_of_earlier_releases(  # noqa: PLR0913 - parametrised
    loads: Loads, law: Law, stage: str, setting: str, broken: dict[str, str], found: bool
) -> None:
    """A mean over a token too many, a KL's sign, gradients of the step before."""
    place = "skyrl/backends/skyrl_train"
    wrapper = WRAPPER.replace("MegatronModelWrapper", "MegatronPPOPolicy").replace("self.cfg.", "self.cfg.trainer.")
    files = {
        f"{place}/workers/megatron/megatron_worker.py": UPDATE,
        f"{place}/workers/megatron/megatron_policy.py": wrapper.replace("len(row) - count :", ":"),
        f"{place}/distributed/megatron/megatron_utils.py": PADDING,
    }
    words = {
        "LOSS_SCALE": "None",
        "EXTRA": "0",
        "CLEARS": CLEARS,
        "KL": "gap",
        "RANKS": "mpu.get_data_parallel_world_size()",
        **(broken if found else {}),
    }
    for name, text in words.items():
        files = {path: source.replace(name, text) for path, source in files.items()}
    target = loads(FRAMEWORK, {**FILES, **files})
    made = [one for one in megatron_worker.boundaries(target) if isinstance(one, Boundary)]
    boundaries: dict[tuple[str, str], Boundary] = {(one.stage, next(iter(one.settings))): one for one in made}
    assert len(boundaries) == 7
    assert answering(boundaries, target) == []
    check_verdict(law, boundaries[stage, setting], setting, target, found=found)


@pytest.mark.slow
def test_round_trips(loads: Loads) -> None:
    target, boundaries = _bound(loads)
    check_round_trips(target, boundaries.values())


_ALL_RANKS = "mpu.get_data_parallel_world_size(with_context_parallel=True)"

CASES: list[tuple[Law, str, str, dict[str, str]]] = [
    (SPL001, "policy-loss", "with KL, sequence_mean", {"counts": "True"}),
    (SPL002, "policy-loss", "alone, token_mean", {"ranks": "1"}),
    (PLC004, "batch", "outputs", {"sliced": ": count"}),
    (REF001, "policy-loss", "with KL, sequence_mean", {"kl": "-gap"}),
    (SPL004, "parallel", "alone, token_mean, context parallel", {"group": "with_context_parallel=True"}),
    (SPL004, "parallel", "with KL, sequence_mean, context parallel", {"ranks": _ALL_RANKS}),
    (CFG002, "policy-loss", "with loss scale, token_mean", {"scale": "None"}),
    (
        SPL001,
        "policy-loss",
        "requests, token_mean",
        {"clears": CLEARS},
    ),
    (CFG002, "policy-loss", "second step, token_mean", {"afterwards": FORGETS}),
]


@pytest.mark.parametrize(("law", "stage", "setting", "broken"), CASES)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(  # noqa: PLR0913 - parametrised
    loads: Loads, law: Law, stage: str, setting: str, broken: dict[str, str], found: bool
) -> None:
    """A KL over the micro-batches that train, a loss that ranks average, a response cut at its end, signs, scales.

    A logged loss added up over the ranks that share a sequence, a loss multiplied by their number, and gradients of
    earlier requests that are cleared, or of earlier steps that are not.
    """
    target, boundaries = _bound(loads, **(broken if found else {}))
    check_verdict(law, boundaries[stage, setting], setting, target, found=found)
