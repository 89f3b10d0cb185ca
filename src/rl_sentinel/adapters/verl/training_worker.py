"""Boundary of verl's training worker: gradient and logged metrics of a mini-batch over data-parallel ranks."""

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from rl_sentinel.adapters.kit.binding import present, try_bind
from rl_sentinel.adapters.kit.rank_threads import gather_from_ranks, rank_count, rank_number, run_on_ranks
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.requirements import equal_parts, no_empty_response
from rl_sentinel.adapters.kit.result_forms import Total
from rl_sentinel.adapters.kit.value_codecs import Derived, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.engine import CUT, LOSS, MODULE, update_of_actor
from rl_sentinel.adapters.verl.fakes import EngineFake, cpu_device
from rl_sentinel.adapters.verl.training_run_fakes import Timer
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.call import Use

WORKERS = "verl.workers.engine_workers"
WORKER = f"{WORKERS}.TrainingWorker"
TRAIN = f"{WORKER}.train_mini_batch"
ENGINE = f"{MODULE}.FSDPEngine"
CHUNKS = "verl.utils.tensordict_utils.chunk_tensordict"

_PRODUCED = (
    "trainer/ppo/ray_trainer.py, _update_actor: mini-batch size, epochs, seed and shuffle; "
    "single_controller/base/decorator.py, dispatch_nd_compute_dataproto: one chunk of the rows per data-parallel rank"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the update of the actor on one mini-batch, in each aggregation mode."""
    if all(target.has(path) for path in (TRAIN, CHUNKS, LOSS, ENGINE)) and not target.fails(WORKER):
        yield from try_bind(target, TRAIN, "policy-loss", lambda: _updates(target))


def _updates(target: Target) -> Iterator[Boundary]:
    fakes = present(target, FAKES)
    yield from (_on_ranks(boundary, fakes) for boundary in update_of_actor(target))


def _on_ranks(of_engine: Boundary, fakes: Mapping[str, Callable[..., Any]]) -> Boundary:
    """The boundary of the engine's update, entered through the worker of each rank."""
    engine = next(step for step in of_engine.steps if step.name == "trained")
    arguments = {name: codec for name, codec in engine.arguments.items() if name != "self"}
    step = replace(
        engine,
        call=train_on_ranks,
        arguments={
            **functions(worker=WORKER, owner=ENGINE, chunk=CHUNKS),
            "model": engine.arguments["self"],
            **arguments,
            "ranks": Derived(lambda inputs: inputs.layout.ranks, frozenset({"ranks"})),
        },
        fakes={**engine.fakes, **fakes},
        produced_by={"data": f"{engine.produced_by['data']}; {_PRODUCED}"},
    )
    loss = replace(of_engine.outputs["loss"], at=Use("trained")["losses"], form=Total())
    return replace(
        of_engine,
        path=of_engine.path.replace(CUT, TRAIN),
        steps=tuple(step if one is engine else one for one in of_engine.steps),
        outputs={**of_engine.outputs, "loss": loss},
        requires=(no_empty_response, equal_parts),
    )


def train_on_ranks(  # noqa: PLR0913 - classes of the target, and what the trainer passes
    worker: Any,  # noqa: ANN401 - a class of the target
    owner: Any,  # noqa: ANN401 - as above
    chunk: Callable[..., list[Any]],
    model: EngineFake,
    data: Any,  # noqa: ANN401 - a TensorDict
    loss_function: Callable[..., Any],
    ranks: int,
) -> dict[str, Any]:
    """Train on one mini-batch; return the losses divided by the number of ranks, and rank 0's metrics."""
    tensors = chunk.__globals__
    rows = data.batch_size[0]
    size = tensors["get_non_tensor_data"](data, "micro_batch_size_per_gpu", None) // ranks
    prepare_mini_batch(tensors, data, model, mini_batch_size=rows, micro_batch_size_per_gpu=size)
    parts = chunk(data, ranks)
    models = [EngineFake(_copies(model.answers), model.lengths) for _ in range(ranks)]

    def work(rank: int) -> Any:  # noqa: ANN401 - a TensorDict
        engine = bare_instance(engine_class(owner), model=models[rank])
        return worker_of(worker, engine, loss_function).train_mini_batch(copy.copy(parts[rank]))

    with replaced_globals(vars(dist), **COLLECTIVES):
        outputs = run_on_ranks(ranks, work)
    for name, column in model.answers.items():
        _average_gradients(column, [one.answers[name] for one in models])
    losses = [loss / ranks for one in models for loss in one.losses]
    return {"losses": losses, "metrics": tensors["get"](outputs[0], "metrics")}


def prepare_mini_batch(tensors: Mapping[str, Any], data: Any, model: EngineFake, **sizes: int) -> None:  # noqa: ANN401
    """Add the values that the trainer passes with an update, and the tokens that the worker counts."""
    about = {"epochs": 1, "seed": 42, "dataloader_kwargs": {"shuffle": False}}
    tensors["assign_non_tensor"](data, **{**about, **sizes})
    sequences = [torch.zeros(1 + length, dtype=torch.int64) for length in model.lengths]
    data["input_ids"] = torch.nested.as_nested_tensor(sequences, layout=torch.jagged)


def _copies(answers: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies of the model's outputs, each with a separate gradient."""
    return {name: column.detach().clone().requires_grad_(column.requires_grad) for name, column in answers.items()}


def _average_gradients(column: Tensor, on_ranks: list[Tensor]) -> None:
    """Set the gradient of a column to the mean over ranks, like FSDP."""
    gradients = [one.grad for one in on_ranks if one.grad is not None]
    if gradients:
        torch.autograd.backward([column], [torch.stack(gradients).sum(0) / len(on_ranks)])


def worker_of(kind: Any, engine: Any, loss_function: Callable[..., Any]) -> Any:  # noqa: ANN401 - of the target
    """A worker of the target's class around an engine, without its constructor."""
    return bare_instance(
        kind,
        engine=engine,
        loss_fn=loss_function,
        model_config=_Options(use_remove_padding=False, use_fused_kernels=False),
        engine_config=SimpleNamespace(
            forward_only=False,
            use_dynamic_bsz=False,
            use_fused_kernels=False,
            **dict.fromkeys(_SIZES),
        ),
        flops_counter=Idle,
        profiler=inspect.unwrap(kind.train_mini_batch).__globals__["DistProfiler"](0, None),
        device_name=cpu_device(),
    )


#: Sizes of micro-batches that the data has, so that those of the engine are not read.
_SIZES = tuple(f"{when}{size}_per_gpu" for when in ("", "infer_") for size in ("max_token_len", "micro_batch_size"))


class _Options(SimpleNamespace):
    """A section of the configuration; releases read fields as attributes or with ``get``."""

    def get(self, name: str, default: object = None) -> Any:  # noqa: ANN401 - any option
        """The option, or ``default`` if it is not set."""
        return vars(self).get(name, default)


class SimulatedRank:
    """A mixin for an engine: simulated ranks in place of process groups, and no modes, devices or optimizer steps."""

    scaler = None

    def get_data_parallel_group(self) -> object:
        """A placeholder for the group of all ranks."""
        return "data-parallel ranks"

    def get_data_parallel_size(self) -> int:
        """The number of ranks."""
        return rank_count()

    def get_data_parallel_rank(self) -> int:
        """The current rank."""
        return rank_number()

    def is_mp_src_rank_with_outputs(self) -> bool:
        """True: each rank has a whole model, so it has outputs."""
        return True

    def train_mode(self, **_about: object) -> AbstractContextManager[None]:
        """A context manager that loads nothing to a device."""
        return nullcontext()

    _gradient_sync_context = eval_mode = train_mode

    def optimizer_zero_grad(self) -> None:
        """Do nothing: each call of the boundary has new tensors."""

    def optimizer_step(self) -> float:
        """Do not apply the gradient; return 0 as its norm."""
        return 0.0

    lr_scheduler_step = optimizer_step


class _OnRank(SimulatedRank):
    """The forward step of an engine that runs on a simulated rank without a model."""

    model: EngineFake
    ulysses_sequence_parallel_size = 1

    def forward_step(self, micro_batch: Any, loss_function: Any, **about: object) -> Any:  # noqa: ANN401 - of the target
        """The loss of a micro-batch."""
        return self.model.forward_step(micro_batch, loss_function, **about)


@cache
def engine_class(kind: type) -> type:
    """A subclass of the target's engine on a simulated rank."""
    return type("Engine", (_OnRank, kind), {})


class Idle:
    """A fake of the accelerator and psutil; it reports no memory use and no computation."""

    @staticmethod
    def current_device() -> str:
        """The device of the batch, where it stays."""
        return "cpu"

    @staticmethod
    def virtual_memory() -> SimpleNamespace:
        """The memory of the machine in use."""
        return SimpleNamespace(used=0)

    @staticmethod
    def max_memory_allocated() -> int:
        """The memory of the accelerator in use, in bytes."""
        return 0

    max_memory_reserved = max_memory_allocated

    @staticmethod
    def empty_cache() -> None:
        """Do nothing: there is no cache."""

    @staticmethod
    def estimate_flops(*_about: object, **_options: object) -> tuple[float, float]:
        """Achieved and peak operations per second of the accelerator."""
        return 0.0, 1.0


def _all_reduce(tensor: Tensor, op: Any = dist.ReduceOp.SUM, **_group: object) -> None:  # noqa: ANN401 - torch's
    """Replace the tensor of each rank with the sum, the mean or the maximum over the ranks."""
    values = torch.stack(gather_from_ranks(tensor.detach().clone()))
    total = values.amax(0) if op == dist.ReduceOp.MAX else values.sum(0)
    tensor.copy_(total / len(values) if op == dist.ReduceOp.AVG else total)


def _all_gather_object(gathered: list[Any], item: object, group: object = None) -> None:  # noqa: ARG001 - there is one
    """Write the objects of all ranks to the list ``gathered``."""
    gathered[:] = gather_from_ranks(copy.deepcopy(item))


def _all_gather_into_tensor(output_tensor: Tensor, input_tensor: Tensor, group: object = None) -> None:  # noqa: ARG001
    """Write the tensors of all ranks, one after the other, to ``output_tensor``."""
    output_tensor.copy_(torch.cat(gather_from_ranks(input_tensor.detach().clone())))


def _barrier(group: object = None) -> None:  # noqa: ARG001 - there is one group
    """Wait for the other ranks."""
    gather_from_ranks(None)


def _world_size(group: object = None) -> int:  # noqa: ARG001 - there is one group
    """The number of ranks."""
    return rank_count()


COLLECTIVES: Mapping[str, Callable[..., Any]] = {
    "all_reduce": _all_reduce,
    "all_gather_object": _all_gather_object,
    "all_gather_into_tensor": _all_gather_into_tensor,
    "barrier": _barrier,
    "get_world_size": _world_size,
}

FAKES: Mapping[str, Callable[..., Any]] = {
    f"{WORKERS}.Timer": Timer,
    f"{WORKERS}.psutil": Idle,
    f"{WORKERS}.get_torch_device": Idle,
}
