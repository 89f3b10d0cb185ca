"""verl's transfer of weights to vLLM's workers in buckets: which weights the model or the adapter has afterwards."""

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.containers import EachRow
from rl_sentinel.adapters.kit.replacement import bare_instance, installed_modules, nothing, replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.row_outputs import row_outputs
from rl_sentinel.adapters.kit.value_codecs import functions, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.bucket_fakes import ClosedError, Link, LoraWorker, Memory, Model, named
from rl_sentinel.adapters.verl.engine_imports import engine_installed
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

_FOLDER = "verl.workers.rollout.vllm_rollout"
OWNER = f"{_FOLDER}.utils.vLLMColocateWorkerExtension"
PATH = f"{OWNER}.update_weights_from_ipc"
SENDER = f"{_FOLDER}.bucketed_weight_transfer.BucketedWeightSender"

#: Bytes of a bucket that has room for all weights of a case, and of one that has room for few; some weights are larger.
WIDE, NARROW = 1 << 16, 12

_VLLM = "rollout.name=vllm, rollout.checkpoint_engine.backend=naive"
_MORE = "more weights than rollout.checkpoint_engine.update_weights_bucket_megabytes"
_LORA = "actor_rollout_ref.model.lora_rank above 0, actor_rollout_ref.model.lora.merge=False"

#: Setting -> the weights that are sent, and the options that reach it.
FAMILIES: Mapping[str, tuple[Settings, str]] = {
    "weights": ({"adapter": False, "buffers": False, "bucket": NARROW}, f"{_VLLM}, {_MORE}"),
    "weights and buffers": (
        {"adapter": False, "buffers": True, "bucket": NARROW},
        f"{_VLLM}, {_MORE}, a model with buffers that training changes",
    ),
    "adapter": ({"adapter": True, "buffers": False, "bucket": WIDE}, f"{_VLLM}, {_LORA}"),
    "adapter in buckets": ({"adapter": True, "buffers": False, "bucket": NARROW}, f"{_VLLM}, {_LORA}, {_MORE}"),
}

_CLAIMS = claims(
    "bucketed_weight_transfer.py, BucketedWeightSender: packs weight tensors into a fixed-size communication buffer, "
    "sends them in buckets to the receiver; utils.py, update_weights_from_ipc: update the weights of the rollout model",
    conserves=True,
)
_PRODUCED = (
    "vllm_rollout.py, update_weights: the worker's update_weights_from_ipc, then a BucketedWeightSender of "
    "checkpoint_engine.update_weights_bucket_megabytes; transformer_impl.py of FSDP, get_per_tensor_param: the state "
    "dict, with buffers; vLLM's LRUCacheWorkerLoRAManager.add_adapter: an id that is served already is not loaded "
    "again; it keeps the tensors of the request"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of one transfer, in releases that have the sender in buckets."""
    with engine_installed("vllm"):
        complete = all(target.has(path) and not target.fails(path) for path in (PATH, SENDER))
    if complete:
        yield from try_bind(target, PATH, "batch", lambda: map(_boundary, FAMILIES))


def weights_after_transfer(  # noqa: PLR0913 - functions of the target, and the weights
    method: Callable[..., Any],
    owner: type,
    sender: type,
    rows: list[list[float]],
    *,
    adapter: bool,
    buffers: bool,
    bucket: int,
) -> dict[str, list[Tensor]]:
    """Send one weight per row to a worker, in buckets of ``bucket`` bytes.

    Returns the weights that the worker has after the sender's memory is used for other tensors.
    """
    layers = [torch.tensor(row) for row in rows]
    model = Model([layer.shape for layer in layers], buffers=buffers)
    lora, memory, link = LoraWorker(), Memory(), Link()
    runner = SimpleNamespace(model=model, vllm_config=SimpleNamespace(speculative_config=None, model_config=None))
    receiver = bare_instance(
        owner,
        model_runner=runner,
        device=torch.device("cpu"),
        local_rank=0,
        _is_qat_model=False,
        _is_modelopt_qat=False,
        remove_lora=lora.remove_lora,
        add_lora=lora.add_lora,
    )
    options = {"peft_config": {"r": 1}, "base_sync_done": True} if adapter else {}
    modules = [method.__globals__, vars(sys.modules[sender.__module__])]
    with _vllm_installed(), replaced_globals(*modules, **_fakes(memory, link)), ThreadPoolExecutor(1) as pool:
        sending = pool.submit(_send, sender, bucket, named(layers, adapter=adapter))
        try:
            method(receiver, **options)
        except ClosedError:
            sending.result()  # raises what ended the sender
            raise
        finally:
            link.close()  # a sender must not wait for a receiver that failed
        sending.result()
    memory.reuse()
    if adapter:
        return {"logprobs": [lora.weight(number, layer) for number, layer in enumerate(layers)]}
    return {"logprobs": [weight.detach() for weight in model.weights.values()]}


def _send(kind: Callable[..., Any], bucket: int, weights: Iterator[tuple[str, Tensor]]) -> None:
    sender = kind(zmq_handle="ipc:///weights", bucket_size_mb=1)
    sender.bucket_size = bucket
    asyncio.run(sender.async_send_weights(weights))


def _fakes(memory: Memory, link: Link) -> dict[str, Any]:
    """Name in a module -> its fake: sockets, shared memory, no device, no quantization."""
    device = SimpleNamespace(**dict.fromkeys(("synchronize", "ipc_collect", "empty_cache"), nothing))
    return {
        "gc": SimpleNamespace(collect=nothing),
        "zmq": link,
        "reduce_tensor": memory.share,
        "get_torch_device": lambda: device,
        "get_device_name": lambda: "cpu",
        "get_device_id": lambda: 0,
        "is_support_ipc": lambda: True,
        **dict.fromkeys(("is_fp8_model", "is_quantized_model"), lambda _config: False),
        "patch_vllm_moe_model_weight_loader": nothing,
        "TensorLoRARequest": SimpleNamespace,
    }


@contextmanager
def _vllm_installed() -> Iterator[None]:
    """A context with the modules of vLLM that the method imports when it runs; other imports stay afterwards."""
    contents: dict[str, dict[str, Any]] = {
        "vllm.platforms": {"current_platform": SimpleNamespace(device_type="cuda", get_device_uuid=str)},
        "vllm.model_executor": {},
        "vllm.model_executor.model_loader": {},
        "vllm.model_executor.model_loader.utils": {"process_weights_after_loading": nothing},
    }
    modules = {name: ModuleType(name) for name in contents}
    for name, module in modules.items():
        vars(module).update(contents[name])
    with installed_modules(modules):
        yield


def _boundary(name: str) -> Boundary:
    settings, reach = FAMILIES[name]
    return one_call(
        path=PATH,
        stage="batch",
        call=weights_after_transfer,
        name="weights",
        arguments={
            **functions(method=PATH, owner=OWNER, sender=SENDER),
            "rows": EachRow(RowTokens("rollout_logprob")),
            **knobs("adapter", "buffers", "bucket"),
        },
        produced_by={"rows": _PRODUCED},
        outputs=row_outputs(Use("weights"), "rollout_logprob"),
        settings={name: settings},
        claims=_CLAIMS,
        reach=reach,
        requires=(no_empty_response,),
    )
