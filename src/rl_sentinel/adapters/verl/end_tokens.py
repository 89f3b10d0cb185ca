"""Boundary of verl's workers before 0.8: where a sampled response ends, for any of its end tokens."""

import inspect
import sys
from collections.abc import Callable, Iterator
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
from rl_sentinel.adapters.kit.scripted_sampling import fit_to_length
from rl_sentinel.adapters.kit.value_codecs import functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.agent_script import untimed
from rl_sentinel.adapters.verl.batch_sizes import FSDP, MEGATRON
from rl_sentinel.adapters.verl.fakes import cpu_device
from rl_sentinel.adapters.verl.worker_batch import accelerator_fakes
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims

WORKERS = tuple(f"{module}.ActorRolloutRefWorker" for module in (FSDP, MEGATRON))

#: Functions with which the rollouts find the end of a response, newest first.
MASKS = tuple(f"verl.utils.torch_functional.{name}" for name in ("get_response_mask", "get_eos_mask"))

#: The padding token, the tokenizer's end token, the model's second end token, and the offset of all other tokens.
PAD, END, OTHER_END, SHIFT = 0, 1, 2, 3

_DOCS = claims(
    "vLLM, SamplingParams.update_from_generation_config: a response stops at each end token of the model's generation "
    "configuration; vllm_rollout.py, generate_sequences: the mask of the response ends with the end token in meta_info",
    conserves=True,
)
_PRODUCED = "fsdp_workers.py, generate_sequences: the end tokens in meta_info; the engine pads a response after its end"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the responses of each worker that contains a rollout."""
    mask = next((path for path in MASKS if target.has(path)), "")
    for worker in WORKERS if mask else ():
        if target.has(f"{worker}.generate_sequences") and not target.fails(worker):
            yield from try_bind(target, worker, "batch", partial(_responses, target, worker, mask))


class Rows:
    """A fake of the trainer's batch and of its ``batch`` attribute; ``to`` does not copy it."""

    def __init__(self, **tensors: Tensor) -> None:
        """Store the tensors."""
        self.tensors, self.meta_info = tensors, dict[str, Any]()
        self.batch: Any = self

    def to(self, *_device: object) -> "Rows":
        """The same batch."""
        return self

    cuda = to


class NoSharding:
    """A fake of the manager that switches between training and sampling."""

    timing: dict[str, float] = {}  # noqa: RUF012 - as the attribute of a manager

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, *_error: object) -> None:
        """Do nothing."""

    def preprocess_data(self, data: Rows) -> Rows:
        """The same batch."""
        return data

    postprocess_data = preprocess_data


class AwakeEngine:
    """A fake of an engine that is awake."""

    @staticmethod
    def wake_up(tags: list[str] | None = None) -> None:
        """Do nothing."""


def responses(kind: Any, mask: Callable[..., Tensor], rows: list[list[int]]) -> dict[str, list[Tensor]]:  # noqa: ANN401
    """Generate responses, and return the tokens that the mask counts in each response, without its end token.

    Every second response has the other end token. If the mask is too long or too short, the result has wrong tokens.
    """

    def generate_sequences(prompts: Rows) -> Rows:
        end = prompts.meta_info["eos_token_id"]
        return Rows(mask=mask(sampled, end, dtype=torch.int64))

    width = 2 + max(map(len, rows))
    ids = [[token + SHIFT for token in row] + [OTHER_END if n % 2 else END] for n, row in enumerate(rows)]
    sampled = torch.tensor([row + [PAD] * (width - len(row)) for row in ids])
    model = SimpleNamespace(
        tokenizer=SimpleNamespace(eos_token_id=END, pad_token_id=PAD),
        generation_config=SimpleNamespace(eos_token_id=[END, OTHER_END], pad_token_id=PAD),
    )
    worker = bare_instance(
        kind,
        model_config=model,
        **vars(model),
        rollout=SimpleNamespace(generate_sequences=generate_sequences, inference_engine=AwakeEngine),
        config=SimpleNamespace(rollout=SimpleNamespace(name="vllm")),
        rollout_sharding_manager=NoSharding(),
        sharding_manager=NoSharding(),
        _is_rollout=True,
        **dict.fromkeys(("_is_actor", "_is_lora", "_is_offload_param", "_is_offload_optimizer"), False),
    )
    with replaced_globals(vars(sys.modules[kind.__module__]), **_FAKES):
        found = inspect.unwrap(kind.generate_sequences)(worker, Rows()).tensors["mask"]
    counted = [row[own.bool()][:-1] - SHIFT for row, own in zip(sampled, found, strict=True)]
    return {"tokens": [fit_to_length(own.tolist(), len(row), -1) for own, row in zip(counted, rows, strict=True)]}


_FAKES: dict[str, Any] = {
    **dict.fromkeys(("log_gpu_memory_usage", "aggressive_empty_cache"), nothing),
    **dict.fromkeys(("get_device_id", "get_device_name"), cpu_device),
    **dict.fromkeys(("simple_timer", "_timer"), untimed),
    "get_torch_device": lambda: SimpleNamespace(empty_cache=nothing, current_device=cpu_device),
    "reduce_timing": lambda timing: timing,
    "topk_reduce_ratio_min_max": lambda _time: (0.0, 0.0, 0.0),
}


def _responses(target: Target, worker: str, mask: str) -> Iterator[Boundary]:
    module, device = worker.rpartition(".")[0], "torch.cuda.current_device"
    source = inspect.getsource(inspect.unwrap(target.find(worker).generate_sequences))
    fakes = accelerator_fakes(target, module, "") | ({f"{module}.{device}": cpu_device} if device in source else {})
    yield one_call(
        path=f"{worker}.generate_sequences",
        stage="batch",
        call=responses,
        name="responses",
        arguments={**functions(kind=worker, mask=mask), "rows": EachRow(RowTokens("token", "int"))},
        fakes=fakes,
        produced_by={"rows": _PRODUCED},
        reads=frozenset({"token", "length"}),
        outputs=row_outputs(Use("responses"), "token"),
        settings={"two end tokens": {}},
        claims=_DOCS,
        reach="every rollout of a model whose generation configuration has several end tokens",
        requires=(no_empty_response,),
    )
