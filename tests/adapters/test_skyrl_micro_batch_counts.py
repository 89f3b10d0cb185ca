"""The micro-batches that SkyRL's workers log, on a specimen of both in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict
from adapters.kit.round_trip import check_round_trip
from adapters.skyrl_worker_specimen import CONFIG, FILES
from adapters.test_skyrl_megatron_worker import PADDING, REPLAY
from rl_sentinel.adapters.skyrl import FRAMEWORK, micro_batch_counts
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

#: A split that gives each row above the budget a micro-batch of its own.
SPLIT = """
            budget, parts = self.cfg.max_tokens_per_microbatch, [[]]
            for row, size in enumerate(data["attention_mask"].sum(1).tolist()):
                if parts[-1] and size > budget:
                    parts.append([])
                parts[-1].append(row)
            own = [{k: None if v is None else v[rows] for k, v in data.items()} for rows in parts]
            counts = {"num_microbatches": len(own), "num_padding_microbatches": EMPTY}
"""

WORKER = f"""
    import torch

    class PolicyWorkerBase:
        def forward_backward(self, data):
            {SPLIT.strip()}
            width = data.metadata["response_length"]
            for batch in own:
                log_probs, _ = self.model(batch["sequences"].to(torch.cuda.current_device()), width)
                self.strategy.backward(log_probs.sum(), self.model)
            return counts
"""

MEGATRON = f"""
    import megatron.core.parallel_state as mpu
    import torch

    class MegatronPolicyWorkerBase:
        def forward_backward(self, data):
            {SPLIT.strip()}
            self.model.forward_backward_mini_batch(own)
            return counts
"""

WRAPPER = """
    import torch
    from megatron.core.pipeline_parallel import get_forward_backward_func

    from skyrl.backends.skyrl_train.distributed.megatron.megatron_utils import remove_left_padding

    class MegatronModelWrapper:
        def forward_backward_mini_batch(self, batches):
            def step(iterator, model):
                data = next(iterator)
                outputs = model(remove_left_padding(data["sequences"], data["attention_mask"]))
                return outputs, lambda rows: (rows.sum(), {})

            schedule = get_forward_backward_func()
            model, count = self.actor_module, len(batches)
            schedule(forward_step_func=step, data_iterator=iter(batches), model=model, num_microbatches=count)
"""


def _bound(loads: Loads, empty: str) -> tuple[Target, dict[str, Boundary]]:
    place = "skyrl/backends/skyrl_train"
    files = {
        "skyrl/train/config.py": CONFIG.replace("per_gpu=1", "per_gpu=1, max_tokens_per_microbatch=0"),
        f"{place}/workers/worker.py": WORKER.replace("EMPTY", empty),
        f"{place}/workers/megatron/megatron_worker.py": MEGATRON.replace("EMPTY", empty),
        f"{place}/workers/megatron/megatron_model_wrapper.py": WRAPPER,
        f"{place}/distributed/megatron/megatron_utils.py": PADDING,
        f"{place}/utils/replay_utils.py": REPLAY,
    }
    target = loads(FRAMEWORK, {**FILES, **files})
    bound = [one for one in micro_batch_counts.boundaries(target) if isinstance(one, Boundary)]
    return target, {one.path.split(".")[-2]: one for one in bound}


@pytest.mark.parametrize("worker", ["PolicyWorkerBase", "MegatronPolicyWorkerBase"])
@pytest.mark.parametrize(
    ("empty", "found"),
    [("0", False), ('sum(not bool(one["loss_mask"].any()) for one in own)', True)],
    ids=["padding alone", "rows without a trained token too"],
)
def test_micro_batches_that_count_as_padding(loads: Loads, worker: str, empty: str, *, found: bool) -> None:
    target, bound = _bound(loads, empty)
    check_round_trip(target, bound[worker])
    check_verdict(PLC004, bound[worker], "by tokens", target, found=found)


def test_a_release_that_logs_no_count(loads: Loads) -> None:
    worker = "class PolicyWorkerBase:\n    def forward_backward(self, data): ...\n"
    target = loads(FRAMEWORK, {**FILES, "skyrl/backends/skyrl_train/workers/worker.py": worker})
    assert list(micro_batch_counts.boundaries(target)) == []
