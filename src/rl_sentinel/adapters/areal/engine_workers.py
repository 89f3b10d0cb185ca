"""AReaL's extension of vLLM's workers: the weights of an adapter after an update from several pipeline stages."""

import inspect
import sys
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.areal.updates import MEGATRON
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow
from rl_sentinel.adapters.kit.forms import Ragged
from rl_sentinel.adapters.kit.replacement import bare_instance, nothing, replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.value_codecs import Knob, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

WORKER = "areal.engine.vllm_ext.vllm_worker_extension.VLLMWorkerExtension"
PATH = f"{WORKER}.areal_update_weight_lora_xccl"

#: The number and the name of the adapter, and the names of its weights at the trainer and at vLLM.
_NUMBER, _NAME = 1, "adapter"
_SENT = "base_model.model.model.layers.{}.mlp.down_proj.lora_A.default.weight"
_READ = _SENT.replace("default.", "")

#: The settings; only Megatron's engine has several stages.
ONE = "one pipeline stage"
STAGES: Mapping[str, Settings] = {ONE: {"stages": 1}, "two pipeline stages": {"stages": 2}}

_CLAIMS = claims(
    "vllm_worker_extension.py, areal_update_weight_lora_xccl: receive all LoRA parameters, and replace the adapter",
    conserves=True,
)
_PRODUCED = (
    "areal/engine/megatron_engine.py: the first rank of each pipeline stage has a group with the servers, and sends "
    "the adapters of its layers; areal/engine/vllm_remote.py: for each group, a request with names and shapes, then "
    "the update"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the update from one and two stages, in releases whose engines send adapters to vLLM."""
    if target.has(PATH) and not target.fails(WORKER):
        several = target.has(MEGATRON) and "use_lora" in inspect.getsource(target.find(MEGATRON))
        yield from bindable(target, _boundary(STAGES if several else {ONE: STAGES[ONE]}))


class Manager:
    """A fake of vLLM's manager of adapters, and of the manager inside of it; an adapter replaces one with its number.

    vLLM, vllm/lora/model_manager.py.
    """

    def __init__(self, adapter: SimpleNamespace) -> None:
        """Start with an adapter."""
        self._registered_adapters = {adapter.id: adapter}
        self._adapter_manager = self
        self.lora_config = SimpleNamespace(lora_dtype=torch.float32, lora_extra_vocab_size=0)
        self.vocab_size = 1

    def list_adapters(self) -> set[int]:
        """The numbers of the adapters."""
        return set(self._registered_adapters)

    def remove_adapter(self, number: int) -> bool:
        """Remove an adapter."""
        return self._registered_adapters.pop(number, None) is not None

    def _add_adapter(self, adapter: SimpleNamespace) -> None:
        self._registered_adapters[adapter.id] = adapter

    def activate_adapter(self, number: int) -> bool:
        """Whether the adapter exists: requests use it from now on."""
        return number in self._registered_adapters

    def weights(self) -> dict[str, Tensor]:
        """The weights of the adapter by name."""
        return dict(self._registered_adapters[_NUMBER].loras)


def adapter_of(lora_model_id: int, tensors: dict[str, Tensor], **_options: object) -> SimpleNamespace:
    """A fake of vLLM's adapter, made from its weights."""
    return SimpleNamespace(id=lora_model_id, loras=dict(tensors))


def adapted(owner: type, rows: list[list[float]], stages: int) -> list[Tensor]:
    """Update the adapter of a worker once; return its weights, infinite where they are missing.

    Each row is the weight of a layer. The stages have the layers in equal parts, and send them in turn.
    """
    weights = [torch.tensor(row) for row in rows]
    manager = Manager(adapter_of(_NUMBER, {_READ.format(n): weight - 1 for n, weight in enumerate(weights)}))
    runner = SimpleNamespace(device="cpu", lora_manager=manager, model=None, vllm_config=None)
    worker: Any = bare_instance(owner, rank=0, model_runner=runner, sync=nothing)
    sent: list[Tensor] = []
    fakes = {
        "logger": SimpleNamespace(**dict.fromkeys(("info", "warning", "error"), nothing)),
        "init_custom_process_group": lambda **about: about["group_name"],
        "LoRAModel": SimpleNamespace(from_lora_tensors=adapter_of),
        "set_current_vllm_config": lambda _config: nullcontext(),
        "PEFTHelper": SimpleNamespace(from_dict=lambda about: SimpleNamespace(**about)),
    }

    def broadcast(tensor: Tensor, **_about: object) -> None:
        tensor.copy_(sent.pop(0))

    names = vars(sys.modules[owner.__module__])
    with replaced_globals(names, **fakes), replaced_globals(vars(torch.distributed), broadcast=broadcast):
        groups = [f"stage {stage}" for stage in range(stages)]
        for group in groups:
            about = {"master_address": "", "master_port": "0", "rank_offset": 1, "world_size": 2, "backend": "gloo"}
            worker.areal_init_update_weight_group(group_name=group, **about)
        share = -(-len(weights) // stages)
        for stage, group in enumerate(groups):
            layers = range(len(weights))[stage * share :][:share]
            sent[:] = [weights[n] for n in layers]
            worker.areal_set_weight_meta_lora(
                names=[_SENT.format(n) for n in layers],
                dtypes=["float32"] * len(layers),
                shapes=[list(weights[n].shape) for n in layers],
                group_name=group,
                lora_name=_NAME,
                lora_int_id=_NUMBER,
                lora_target_modules=["down_proj"],
                lora_rank=1,
                lora_alpha=1,
                lora_bias="none",
                base_model_name="model",
            )
            done, why = worker.areal_update_weight_lora_xccl()
            if not done:
                raise RuntimeError(why)
    found = manager.weights()
    return [found.get(_READ.format(n), torch.full_like(own, torch.inf)) for n, own in enumerate(weights)]


def _boundary(settings: Mapping[str, Settings]) -> Boundary:
    return one_call(
        path=PATH,
        stage="batch",
        call=adapted,
        name="adapted",
        arguments={**functions(owner=WORKER), "rows": EachRow(RowTokens("rollout_logprob")), "stages": Knob("stages")},
        produced_by={"rows": _PRODUCED},
        outputs={
            "weights of the adapter": Output("B T", "nats", "rollout_logprob", at=Use("adapted"), form=Ragged()),
        },
        settings=settings,
        claims=_CLAIMS,
        reach="vLLM, use_lora=True with weight_update_mode='xccl', and Megatron with several pipeline stages",
        requires=(no_empty_response,),
    )
