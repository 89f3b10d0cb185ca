"""Weights that verl sends to vLLM's workers in buckets, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, by_setting, judged_at, rewritten
from adapters.kit.round_trip import check_calls
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, bucketed_weights
from rl_sentinel.adapters.verl.bucket_fakes import ClosedError, Link
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

TRANSFER = """
    import torch
    import zmq
    from torch.multiprocessing.reductions import reduce_tensor
    from verl.utils.device import get_torch_device

    class BucketedWeightSender:
        def __init__(self, zmq_handle, bucket_size_mb=512, use_shm=False):
            self.handle, self.bucket_size, self.context = zmq_handle, bucket_size_mb << 20, zmq.Context.instance()

        async def async_send_weights(self, weights):
            link = self.context.socket(zmq.REQ)
            link.bind(self.handle)
            memory, parts, end = torch.empty(self.bucket_size, dtype=torch.uint8), [], 0
            try:
                self.ask(link, reduce_tensor(memory))
                for name, weight in weights:
                    size = weight.nbytes
                    if end + size > self.bucket_size and parts:
                        self.ask(link, {"parts": parts, "last": False})
                        parts, end = [], 0
                    if size > self.bucket_size:
                        self.ask(link, {"parts": [(name, weight.shape, 0, reduce_tensor(weight))], "last": False})
                        continue
                    memory[end : end + size] = weight.view(torch.uint8)
                    parts.append((name, weight.shape, end, None))
                    end = LATER
                self.ask(link, {"parts": parts, "last": True})
            finally:
                link.close()

        def ask(self, link, message):
            get_torch_device().synchronize()
            link.send_pyobj(message)
            link.recv()

    class BucketedWeightReceiver:
        def __init__(self, zmq_handle, device, use_shm=False):
            self.handle, self.context = zmq_handle, zmq.Context.instance()

        def receive_weights(self, take):
            link = self.context.socket(zmq.REP)
            link.connect(self.handle)
            try:
                whole, args = link.recv_pyobj()
                memory, last = whole(*args), False
                link.send(b"")
                while not last:
                    message = link.recv_pyobj()
                    last, bucket = message["last"], []
                    for name, shape, start, handle in message["parts"]:
                        part = memory[start : start + 4 * shape.numel()].view(torch.float32) if handle is None else None
                        bucket.append((name, handle[0](*handle[1]) if part is None else part.view(shape)))
                    take(bucket, last)
                    link.send(b"")
            finally:
                link.close()
"""

WORKER = """
    from verl.utils.vllm import TensorLoRARequest, is_fp8_model
    from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver

    class vLLMColocateWorkerExtension:
        def update_weights_from_ipc(self, peft_config=None, base_sync_done=False, use_shm=False):
            adapter, every = peft_config and base_sync_done, {}
            if is_fp8_model(self.model_runner.vllm_config):
                raise NotImplementedError
            if adapter:
                self.remove_lora(5)

            def take(bucket, last):
                every.update((name, OWN) for name, weight in bucket)
                if not adapter:
                    buffers = dict(self.model_runner.model.named_buffers())
                    self.model_runner.model.load_weights(bucket)
                    for name, weight in bucket:
                        if name in COPIED:
                            buffers[name].copy_(weight)
                elif WHEN:
                    self.add_lora(TensorLoRARequest(lora_int_id=5, lora_tensors=dict(every)))

            BucketedWeightReceiver(zmq_handle="ipc:///one", device=self.device).receive_weights(take)
"""

DEVICE = """
    def get_torch_device():
        raise RuntimeError("no device")
"""
VLLM = """
    def is_fp8_model(config):
        return True

    TensorLoRARequest = None
"""

SOUND = {"LATER": "end + size", "OWN": "weight.clone()", "WHEN": "last", "COPIED": "buffers"}


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    folder = "verl/workers/rollout/vllm_rollout"
    files = {
        f"{folder}/bucketed_weight_transfer.py": TRANSFER,
        f"{folder}/utils.py": WORKER,
        "verl/utils/device.py": DEVICE,
        "verl/utils/vllm/__init__.py": VLLM,
    }
    files = {path: rewritten(source, SOUND | broken) for path, source in files.items()}
    target = loads(FRAMEWORK, files)
    return target, by_setting(bucketed_weights.boundaries(target))


def test_answers_and_reads_back(loads: Loads) -> None:
    target, every = _bound(loads)
    assert list(every) == list(bucketed_weights.FAMILIES)
    check_calls(target, every.values())


@pytest.mark.parametrize(
    ("broken", "where"),
    [
        ({}, set()),
        ({"LATER": "0"}, set(bucketed_weights.FAMILIES)),
        ({"OWN": "weight"}, {"adapter", "adapter in buckets"}),
        ({"WHEN": "True"}, {"adapter in buckets"}),
        ({"COPIED": "()"}, {"weights and buffers"}),
    ],
)
def test_found_where_broken_alone(loads: Loads, broken: dict[str, str], where: set[str]) -> None:
    """Weights on top of each other, an adapter in reused memory, one bucket of it alone, and no buffers."""
    target, every = _bound(loads, **broken)
    judgements = {setting: judged_at(PLC004, one, setting, target) for setting, one in every.items()}
    assert all(judgement.tried for judgement in judgements.values())
    assert {setting for setting, judgement in judgements.items() if judgement.found is not None} == where


def test_a_side_fails_if_the_other_has_closed() -> None:
    link = Link()
    asking, answering_ = link.socket(link.REQ), link.socket(link.REP)
    asking.send_pyobj(1)
    asking.close()
    assert answering_.recv_pyobj() == 1
    with pytest.raises(ClosedError):
        answering_.recv_pyobj()
