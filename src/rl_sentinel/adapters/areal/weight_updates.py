"""Boundaries of AReaL's weight update of the inference engines: the weights that sample a request during the update."""

import inspect
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.engines_at_update import Engines, columns
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_outputs import row_fields, row_outputs
from rl_sentinel.adapters.kit.value_codecs import functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims

_METHOD = "_update_weights_from_distributed"
#: The training engines; and the inference engine's method that they call, in releases whose trainer does not pause.
ENGINES = ("areal.engine.fsdp_engine.FSDPEngine", "areal.engine.megatron_engine.MegatronEngine")
PAUSE = "areal.api.engine_api.InferenceEngine.pause_generation"

_CLAIMS = claims(
    "engine_api.py, pause_generation: pause the generation of the inference engine, used during updating weights",
    conserves=True,
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the update over the network, for each training engine that can be imported."""
    for owner in ENGINES:
        path = f"{owner}.{_METHOD}"
        if target.has(PAUSE) and target.has(path) and not target.fails(path):
            yield from bindable(target, _boundary(owner))


class RemoteEngines:
    """A fake client of :class:`Engines`."""

    def __init__(self, engines: Engines) -> None:
        """Store the engines."""
        self.engines = engines

    def pause_generation(self) -> None:
        """Stop running and new requests."""
        self.engines.paused = True

    def continue_generation(self) -> None:
        """Continue requests."""
        self.engines.paused = False


def updated(method: Callable[..., Any], owner: type, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Update the weights of the engines once per row, while the engines have a request.

    Returns the log-probs of each row's response, and the version of the weights of each token. The model has two
    parameters, in separate buckets; the function that sends a bucket is a fake.
    """
    weights = [(f"layers.{number}.weight", torch.zeros(1 << 20)) for number in range(2)]
    answers = []
    for row in rows:
        engines = Engines(row)

        def send(*_bucket: object, _engines: Engines = engines, **_options: object) -> None:
            _engines.receive()

        def collect(_meta: object, name: str, value: object, bucket: list[Any], size: int, _most: int) -> int:
            bucket.append((name, value))
            return size

        engine = bare_instance(
            owner,
            rollout_engine=RemoteEngines(engines),
            config=SimpleNamespace(use_lora=False),
            tf_config=SimpleNamespace(num_moe_experts=None),
            mcore_config=SimpleNamespace(use_bridge_for_update_weights=False),
            bridge_cls="mbridge",
            quantization_config=None,
            is_pipeline_parallel_head=lambda: True,
            model=SimpleNamespace(named_parameters=lambda: iter(weights)),
            device=torch.device("cpu"),
            is_vision_model=False,
            **dict.fromkeys(("_initialized", "initialized", "process_group_initialized"), True),
            **dict.fromkeys(("_cpu_group", "cpu_group")),
            weight_update_group_names=["update"],
            weight_update_groups=[None],
            **dict.fromkeys(("weight_update_master_addr", "weight_update_group_name"), "update"),
            weight_update_master_port=0,
            _get_model_name_parameters=lambda *_meta: iter(weights),
            _get_full_tensor=lambda value: value,
            _cast_to_compute_dtype=lambda value: value,
            _impl_update_weight_from_distributed=collect,
            _update_bucket_weights_from_distributed=send,
            _update_bucket_weights_from_distributed_async=send,
            _wait_pending_weight_update_bucket=lambda _bucket: None,
        )
        fakes: dict[str, Any] = {
            "dist": SimpleNamespace(get_rank=lambda *_a: 0, barrier=lambda *_a, **_k: None),
            "current_platform": SimpleNamespace(device_type="cpu", synchronize=lambda: None),
            "get_named_parameters": lambda *_model: iter(weights),
        }
        update = inspect.unwrap(method)
        with replaced_globals(update.__globals__, **fakes):
            update(engine, SimpleNamespace(weight_chunked_mem_mb=1, version=0))
        answers.append(engines.finished())
    return columns(answers)


def _boundary(owner: str) -> Boundary:
    row = row_fields("logprobs", "versions")
    return one_call(
        path=f"{owner}.{_METHOD}",
        stage="batch",
        call=updated,
        name="updated",
        arguments={**functions(method=f"{owner}.{_METHOD}", owner=owner), "rows": EachRow(Table(row))},
        produced_by={"rows": "trainer/rl_trainer.py, train: actor.update_weights after each step; rollouts continue"},
        outputs=row_outputs(Use("updated"), "rollout_logprob", "version"),
        settings={"two buckets": {}},
        claims=_CLAIMS,
        reach="weight_update_mode of the engine that trains: over the network",
        requires=(no_empty_response,),
    )
