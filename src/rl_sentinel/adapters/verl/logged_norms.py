"""Boundaries of verl's workers: the gradient norms that an update in two mini-batches logs."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from types import MappingProxyType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from rl_sentinel.adapters.kit.binding import present, try_bind
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.rank_threads import run_on_ranks
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, constants, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import critic, data_parallel
from rl_sentinel.adapters.verl.actor import actor
from rl_sentinel.adapters.verl.arguments import MASK_PRODUCER, POLICY_TENSORS
from rl_sentinel.adapters.verl.config_files import default_config
from rl_sentinel.adapters.verl.engine import LOSS, update_of_actor
from rl_sentinel.adapters.verl.fakes import EngineFake, ModelFake, data_parallel_actor, worker_with_fake
from rl_sentinel.adapters.verl.training_worker import (
    CHUNKS,
    COLLECTIVES,
    ENGINE,
    FAKES,
    TRAIN,
    WORKER,
    engine_class,
    prepare_mini_batch,
    worker_of,
)
from rl_sentinel.adapters.verl.worker_batch import PADDED, accelerator_fakes, update_sizes, worker_data, worker_object
from rl_sentinel.core.batch import Batch, take_rows
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs
from rl_sentinel.core.errors import NotApplicable

#: Mini-batches of an update, and the name of the result of an update.
PARTS, USED = 2, "used"

_EACH = (
    "dp_actor.py and dp_critic.py, update: append_to_dict collects what each mini-batch logs; ray_trainer.py, "
    "reduce_metrics: the mean of all that is collected"
)


@dataclass(frozen=True, slots=True)
class Role:
    """A worker and the gradient norm that it logs.

    Attributes:
        update: the path of the method that updates the model.
        metric: the logged name of the norm.
        make: creates the worker.
        config: makes the worker's configuration for a target, with the given fields.
        columns: the columns of the batch.
        outputs: the outputs of the model.
        at: where a live worker has its class and its model (see :func:`worker_object`).
    """

    update: str
    metric: str
    make: Callable[..., Any]
    config: Callable[[Target, dict[str, Codec]], Codec]
    columns: Mapping[str, Codec]
    outputs: Mapping[str, Codec]
    at: Mapping[str, str]


class NormsFake(ModelFake):
    """A fake model and optimizer; the gradient norm of a step is the step number."""

    taken = 0

    def parameters(self) -> list[Tensor]:
        """One parameter, whose gradient is the number of this step."""
        parameter = torch.zeros((), requires_grad=True)
        parameter.grad = torch.tensor(float(self.taken + 1))
        return [parameter]

    def step(self) -> Tensor:
        """Store the gradient, and count the step."""
        self.taken += 1
        return super().step()


def logged_norms(update: Callable[..., Mapping[str, Any]], worker: Any, data: Any, metric: str) -> list[float]:  # noqa: ANN401 - of the target
    """Run an update in mini-batches of equal size; return how often the norm of each row's mini-batch is logged."""
    fake = next(getattr(worker, name) for name in ("actor_optimizer", "critic_optimizer") if hasattr(worker, name))
    fake.__class__ = NormsFake
    return _uses(update(worker, data).get(metric, []), data.batch.batch_size[0])


def norms_of_training_worker(  # noqa: PLR0913 - classes of the target, and what the trainer passes
    worker: Any,  # noqa: ANN401 - a class of the target
    owner: Any,  # noqa: ANN401 - as above
    chunk: Callable[..., list[Any]],
    model: EngineFake,
    data: Any,  # noqa: ANN401 - a TensorDict
    loss_function: Callable[..., Any],
) -> list[float]:
    """Like :func:`logged_norms`, for the worker around an engine; the norm of an optimizer step is its number.

    Raises:
        NotApplicable: if the worker logs no norm.
    """
    tensors, steps = chunk.__globals__, count(1)
    own = EngineFake(model.answers, model.lengths)
    engine = bare_instance(engine_class(owner), model=own, optimizer_step=lambda: float(next(steps)))
    made = train_in_two_parts(worker_of(worker, engine, loss_function), tensors, data)
    norms = [logged for name, logged in tensors["get"](made, "metrics").items() if name.endswith("grad_norm")]
    if not norms:
        raise NotApplicable("the worker logs no gradient norm (no metric that ends with grad_norm)")
    return _uses(norms[0], data.batch_size[0])


def train_in_two_parts(worker: Any, tensors: Mapping[str, Any], data: Any, epochs: int = 1) -> Any:  # noqa: ANN401 - of the target
    """Let a worker train on the data in two mini-batches of equal size, and return its output."""
    size, model = data.batch_size[0] // PARTS, worker.engine.model
    prepare_mini_batch(tensors, data, model, mini_batch_size=size, micro_batch_size_per_gpu=size, epochs=epochs)
    with replaced_globals(vars(dist), **COLLECTIVES):
        return run_on_ranks(1, lambda _rank: worker.train_mini_batch(data))[0]


def _uses(logged: Any, rows: int) -> list[float]:  # noqa: ANN401 - a number or several
    """How often the norm of each row's mini-batch is logged."""
    norms = [round(float(norm), 3) for norm in (logged if isinstance(logged, list) else [logged])]
    return [float(norms.count(1.0 + row * PARTS // rows)) for row in range(rows)]


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the data-parallel actor and critic before 0.8, and the worker around an engine."""
    yield from bind_workers(target, _of_training_worker, _logged)


def bind_workers(
    target: Target,
    of_training_worker: Callable[[Target], Boundary],
    of_role: Callable[[Target, Role, str, str], Iterator[Boundary]],
) -> Iterator[Boundary | Unbound]:
    """Boundaries of the worker around an engine, then those of each role of the release.

    ``of_role`` gets the target, the role, the path of the role's class, and the source of its update.
    """
    needed = (TRAIN, CHUNKS, LOSS, ENGINE)
    if all(target.has(path) for path in needed) and not target.fails(WORKER):
        yield from try_bind(target, TRAIN, "batch", lambda: [of_training_worker(target)])
    for role in ROLES:
        owner, _, method = role.update.rpartition(".")
        if target.has(role.update) and not target.fails(owner):
            source = inspect.getsource(target.find(owner)).partition(f"def {method}")[2]
            yield from try_bind(target, role.update, "batch", partial(of_role, target, role, owner, source))


def _logged(target: Target, role: Role, owner: str, source: str) -> Iterator[Boundary]:
    if f'"{role.metric}"' in source or f"'{role.metric}'" in source:
        step = step_of_worker(target, role, owner, source, logged_norms, metric=Constant(role.metric))
        yield _boundary(role.update, step)


def step_of_worker(  # noqa: PLR0913 - an update, its worker, and the function that runs it
    target: Target,
    role: Role,
    owner: str,
    source: str,
    call: Callable[..., Any],
    options: Mapping[str, Codec] = MappingProxyType({}),
    **more: Codec,
) -> Step:
    """The step that runs the update of a worker in two mini-batches with ``call``; ``source`` is that of the update.

    ``options`` are further fields of the worker's configuration, and ``more`` further arguments of ``call``.
    """
    sizes = update_sizes(source)
    size = Derived(lambda inputs: inputs.batch.rows // PARTS)
    fields = {**sizes, **dict.fromkeys(sizes, size), "use_dynamic_bsz": Constant(value=False), **options}
    return Step(
        call=call,
        name=USED,
        fakes=accelerator_fakes(target, owner.rpartition(".")[0], source),
        arguments={
            "update": Constant(Function(role.update)),
            "worker": worker_object(role.make, owner, role.config(target, fields), role.outputs, **role.at),
            "data": worker_data(role.columns, **constants(temperature=1.0, multi_turn=True)),
            **more,
        },
        produced_by={"data": f"{MASK_PRODUCER}; ray_trainer.py, fit: the whole batch"},
    )


def _of_training_worker(target: Target) -> Boundary:
    steps, numbers = steps_of_training_worker(target, norms_of_training_worker)
    return _boundary(TRAIN, *steps, numbers=numbers)


def steps_of_training_worker(
    target: Target, call: Callable[..., Any], produced_by: Mapping[str, str] = MappingProxyType({}), **more: Codec
) -> tuple[tuple[Step, ...], Settings]:
    """Steps and settings of the worker around an engine, with the arguments of its whole update; ``call`` runs it."""
    whole = update_of_actor(target)[0]
    number, engine = next((number, step) for number, step in enumerate(whole.steps) if step.name == "trained")
    step = replace(
        engine,
        name=USED,
        call=call,
        arguments={
            **functions(worker=WORKER, owner=ENGINE, chunk=CHUNKS),
            "model": engine.arguments["self"],
            "data": engine.arguments["data"],
            "loss_function": engine.arguments["loss_function"],
            **more,
        },
        fakes={**engine.fakes, **present(target, FAKES)},
        produced_by={**engine.produced_by, **produced_by},
    )
    return (*whole.steps[:number], step), next(iter(whole.settings.values()))


def _boundary(path: str, *steps: Step, numbers: Settings | None = None) -> Boundary:
    reach = "data.train_batch_size twice the mini-batch size"
    settings = {"two mini-batches": numbers or {}}
    return uses_boundary(path, steps, "norms logged of the mini-batch", settings, _EACH, reach)


def uses_boundary(  # noqa: PLR0913 - the parts in which they differ
    path: str, steps: tuple[Step, ...], counted: str, settings: Mapping[str, Settings], cite: str, reach: str
) -> Boundary:
    """The boundary of an update in two mini-batches, whose output ``counted`` is a count per row."""
    return Boundary(
        path=path,
        stage="batch",
        steps=steps,
        reads=frozenset({"mask"}),
        outputs={counted: Output("B", "uses", "uses", at=Use(USED), form=PerRow("list"))},
        settings=settings,
        claims=claims(cite),
        reach=reach,
        requires=(no_empty_response, in_two_parts),
        domain=even,
    )


def in_two_parts(inputs: Inputs) -> str:
    """The reason to skip a batch whose rows do not form two mini-batches of equal size; empty otherwise."""
    rows = inputs.batch.rows
    return "" if rows % PARTS == 0 else f"{rows} rows do not fill {PARTS} mini-batches"


def even(batch: Batch) -> Batch:
    """The batch, without its last row if the number of rows is odd and above 1."""
    rows = batch.rows - batch.rows % PARTS
    return take_rows(batch, torch.arange(rows)) if 0 < rows < batch.rows else batch


def _of_actor(target: Target, sizes: dict[str, Codec]) -> Codec:
    return actor(target, "vanilla", {**constants(use_kl_loss=False, ppo_epochs=1, use_torch_compile=False), **sizes})


def _of_critic(target: Target, sizes: dict[str, Codec]) -> Codec:
    return default_config(target, "critic", {**constants(ppo_epochs=1, **PADDED), **sizes})


#: The data-parallel actor and critic.
ROLES = (
    Role(
        data_parallel.UPDATE,
        "actor/grad_norm",
        data_parallel_actor,
        _of_actor,
        POLICY_TENSORS,
        {"log_probs": Column("logprob", leaf=True), "entropy": Column("entropy")},
        {"kind": "__class__.__base__"},
    ),
    Role(
        critic.UPDATE,
        "critic/grad_norm",
        worker_with_fake,
        _of_critic,
        {"values": Column("old_value"), "returns": Column("returns")},
        {"values": Column("value", leaf=True)},
        {"model": "critic_optimizer"},
    ),
)
