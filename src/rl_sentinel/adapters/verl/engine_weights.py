"""verl's transfer of weights to the engine that samples: which weights it has after a step, also with LoRA."""

import asyncio
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.containers import EachRow
from rl_sentinel.adapters.kit.replacement import bare_instance, nothing, replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.row_outputs import row_outputs
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.config_files import default_config
from rl_sentinel.adapters.verl.weight_fakes import (
    Policy,
    SamplingEngine,
    Shard,
    Unit,
    WholeParameters,
    adapter_weights,
    peft_installed,
)
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

UTILITIES = "verl.utils.fsdp_utils"
ENGINE = "verl.workers.engine.fsdp.transformer_impl.FSDPEngine"

#: Methods of workers that send the weights, newest first: of those that train with an engine, and of the earlier ones.
WITH_ENGINE = tuple(
    f"verl.workers.engine_workers.ActorRolloutRefWorker.{name}" for name in ("update_weights", "wake_up")
)
EARLIER = "verl.workers.fsdp_workers.ActorRolloutRefWorker.rollout_mode"

_LORA, _SEPARATE = "actor_rollout_ref.model.lora_rank above 0", "rollout.checkpoint_engine.backend=nccl"
_MERGED, _LAYERED = "actor_rollout_ref.model.lora.merge=True", "actor_rollout_ref.rollout.layered_summon=True"

#: Setting -> what it is made of, and the options that reach it.
FAMILIES: Mapping[str, tuple[Settings, str]] = {
    "weights": ({}, "actor.strategy=fsdp2"),
    "weights, adapters": ({"adapted": True}, f"actor.strategy=fsdp2, {_LORA}"),
    "weights, adapters by layer": ({"adapted": True, "layered": True}, f"actor.strategy=fsdp2, {_LORA}, {_LAYERED}"),
    "weights, merged adapters": ({"adapted": True, "merged": True}, f"actor.strategy=fsdp2, {_LORA}, {_MERGED}"),
    "weights, separate engines": ({"separate": True}, f"actor.strategy=fsdp2, {_SEPARATE}"),
    "weights, adapters, separate engines": (
        {"adapted": True, "separate": True},
        f"actor.strategy=fsdp2, {_LORA}, {_SEPARATE}",
    ),
    "weights, merged adapters, separate engines": (
        {"adapted": True, "merged": True, "separate": True},
        f"actor.strategy=fsdp2, {_LORA}, {_MERGED}, {_SEPARATE}",
    ),
}

#: Part of a setting -> the text in the source of the classes that support it.
_SUPPORT = {
    "adapted": "peft_config",
    "layered": "layered_summon",
    "merged": 'lora.get("merge"',
    "separate": "checkpoint_engine.send_weights",
}

_DOCS = (
    "docs/advance/ppo_lora.rst: LoRA with fsdp2 and vLLM, load_format safetensors, adapters merged or transferred; "
    "engine_workers.py, update_weights: update weights from trainer to rollout"
)
_PRODUCED = (
    "ray_trainer.py, fit: checkpoint_manager.update_weights after each step; engine_workers.py and fsdp_workers.py, "
    "init_model: base_sync_done and layered_summon from the configuration"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of two transfers with a step of training between them, by each kind of worker of the release."""
    newest = next((path for path in WITH_ENGINE if target.has(path)), "")
    for path in (newest, EARLIER):
        if path and target.has(path) and target.has(UTILITIES) and not target.fails(path.rpartition(".")[0]):
            yield from try_bind(target, path, "batch", partial(_transfers, target, path))


def weights_after_a_step(  # noqa: PLR0913 - classes of the target, the weights, and the settings
    method: Callable[..., Any],
    owner: type,
    engine: type | None,
    config: Any,  # noqa: ANN401 - a section of the trainer's configuration
    rows: list[list[float]],
    *,
    adapted: bool,
    merged: bool,
    separate: bool,
) -> dict[str, list[Tensor]]:
    """Send the weights of a policy, train, and send them again; return the weights that the engine has, by layer.

    The policy has one layer per row. Numbers that differ by the rounding of bfloat16 count as equal.
    """
    layers = [torch.tensor(row) for row in rows]
    policy = Policy(layers, adapted=adapted)
    as_adapter = adapted and not merged
    # vLLM keeps its weights during sleep if it serves an adapter; under earlier workers, if this is sent by layer.
    layered = config.rollout.get("layered_summon", False)
    keeps = as_adapter and (engine is not None or layered)
    # In September 2025 init_model asks for all weights at each transfer to an engine that discards them.
    reloads = "self.force_reload" in inspect.getsource(owner) and not layered
    rollout = SamplingEngine(policy.start if as_adapter else {}, 1 if keeps else 2)
    worker = bare_instance(
        owner,
        config=config,
        rollout=rollout,
        checkpoint_engine=rollout,
        base_sync_done="dummy" not in config.rollout.load_format and not reloads,
        force_reload=reloads,
        layered_summon=layered,
        peft_merge=merged,
        actor=SimpleNamespace(engine=None if engine is None else _engine(engine, policy.module, merged=merged)),
        actor_module_fsdp=policy.module,
        **dict.fromkeys(("_is_offload_param", "_qat_enabled"), False),
        **dict.fromkeys(("torch_random_states", "gen_random_states")),
    )
    send = inspect.unwrap(method)
    modules = [send.__globals__, vars(sys.modules[UTILITIES]), vars(torch.distributed)]
    modules += [] if engine is None else [vars(sys.modules[engine.__module__])]

    async def run() -> None:
        for step in (1, 2):
            if step > 1:
                policy.train()
            if not separate:
                await rollout.release()
            known = inspect.signature(send).parameters
            await send(worker, **({"global_steps": step} if "global_steps" in known else {}))

    with peft_installed(), replaced_globals(*modules, **_fakes()):
        asyncio.run(run())
    return {"logprobs": [_rounded(rollout.weight(n, layer), layer) for n, layer in enumerate(layers)]}


def _engine(kind: type, module: Unit, *, merged: bool) -> Any:  # noqa: ANN401 - of the target
    """An engine of the target around the policy, on a device that needs no offload."""
    return bare_instance(
        kind,
        module=module,
        model_config=SimpleNamespace(lora={"merge": merged}, hf_config=SimpleNamespace(model_type="qwen2")),
        engine_config=SimpleNamespace(mixed_precision=None),
        to=nothing,
        **dict.fromkeys(("_is_offload_param", "_uses_fsdp2_cpu_offload_policy", "_qat_enabled"), False),
    )


def _fakes() -> dict[str, Any]:
    """Name in a module -> its fake: no device, one rank, and the classes of FSDP and peft."""
    calls = ("empty_cache", "synchronize", "get_rng_state", "set_rng_state")
    device = SimpleNamespace(**dict.fromkeys(calls, nothing))
    idle = ("set_expandable_segments", "aggressive_empty_cache", "log_gpu_memory_usage")
    moved = ("load_fsdp_model_to_gpu", "offload_fsdp_model_to_cpu")
    return {
        **dict.fromkeys((*idle, *moved, "barrier"), nothing),
        "get_torch_device": lambda: device,
        "get_device_id": lambda: "cpu",
        "get_device_name": lambda: "cpu",
        "DTensor": Shard,
        "FSDP": WholeParameters,
        "FSDPModule": Unit,
        "get_peft_model_state_dict": adapter_weights,
    }


def _rounded(found: Tensor, expected: Tensor) -> Tensor:
    """The numbers in ``found``, or the expected numbers where the two differ by no more than bfloat16 rounds."""
    return torch.where(torch.isclose(found, expected, rtol=2**-7, atol=0.0), expected, found)


def _transfers(target: Target, path: str) -> Iterator[Boundary]:
    engine = ENGINE if path != EARLIER and target.has(ENGINE) else None
    owners = [path.rpartition(".")[0], *([engine] if engine else [])]
    source = "\n".join(inspect.getsource(target.find(owner)) for owner in owners)
    for name, (settings, reach) in FAMILIES.items():
        if all(_SUPPORT[part] in source for part in settings):
            yield _boundary(target, path, engine, name, settings, reach)


def _boundary(  # noqa: PLR0913 - the parts in which they differ
    target: Target, path: str, engine: str | None, name: str, settings: Settings, reach: str
) -> Boundary:
    as_adapter = settings.get("adapted") and not settings.get("merged")
    fields = {
        "rollout.name": Constant("vllm"),
        "rollout.load_format": Constant("safetensors" if as_adapter else "dummy"),
        "rollout.layered_summon": Knob("layered", default=False),
        "rollout.checkpoint_engine.backend": Constant("nccl" if settings.get("separate") else "naive"),
    }
    return one_call(
        path=path,
        stage="batch",
        call=weights_after_a_step,
        name="weights",
        arguments={
            **functions(method=path, owner=path.rpartition(".")[0]),
            "engine": Constant(None if engine is None else Function(engine)),
            "config": default_config(target, "actor_rollout_ref", fields),
            "rows": EachRow(RowTokens("rollout_logprob")),
            **{part: Knob(part, default=False) for part in ("adapted", "merged", "separate")},
        },
        produced_by={"rows": _PRODUCED},
        remembered=True,
        outputs=row_outputs(Use("weights"), "rollout_logprob"),
        settings={name: settings},
        claims=claims(_DOCS, conserves=True),
        reach=reach,
        requires=(no_empty_response,),
    )
