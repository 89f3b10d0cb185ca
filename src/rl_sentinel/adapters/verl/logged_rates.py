"""Learning rates that verl's workers log: each update must log the rate that it used."""

import copy
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch.distributed as dist

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.learning_rates import KINDS, PEAK, MegatronSchedule, rate_boundary
from rl_sentinel.adapters.kit.rank_threads import run_on_ranks
from rl_sentinel.adapters.kit.replacement import bare_instance, nothing, replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.fakes import EngineFake
from rl_sentinel.adapters.verl.logged_norms import steps_of_training_worker
from rl_sentinel.adapters.verl.training_run_fakes import Timer
from rl_sentinel.adapters.verl.training_worker import (
    CHUNKS,
    COLLECTIVES,
    ENGINE,
    TRAIN,
    WORKER,
    Idle,
    engine_class,
    prepare_mini_batch,
    worker_of,
)
from rl_sentinel.adapters.verl.worker_batch import accelerator_fakes
from rl_sentinel.core.boundary import Boundary, Step, Unbound
from rl_sentinel.core.case import Settings, number_of
from rl_sentinel.core.claims import claims
from rl_sentinel.core.errors import NotApplicable

#: Updates of workers before 0.8 -> the metric that has the rate.
UPDATES: Mapping[str, str] = {
    f"verl.workers.{kind}_workers.{update}": metric
    for kind in ("fsdp", "megatron")
    for update, metric in (
        ("ActorRolloutRefWorker.update_actor", "actor/lr"),
        ("CriticWorker.update_critic", "critic/lr"),
    )
}

_ALGORITHM, _FAMILIES = KINDS["constant"]
_WARM_UP = _FAMILIES["warm-up"]

_CLAIMS = claims(
    "ray_trainer.py, fit: an update's metrics are logged at its step; the schedule steps once per update, after it",
    algorithm=_ALGORITHM,
)
_REACH = "every run with a warm-up or a decay of the learning rate"


class WarmUp(MegatronSchedule):
    """A fake schedule and its optimizer: the schedule of torch, and that of Megatron."""

    def __init__(self) -> None:
        """Start at the rate 0, which rises to the peak over the warm-up."""
        rates = {"init_lr": 0.0, "max_lr": PEAK, "min_lr": 0.0}
        super().__init__(
            SimpleNamespace(param_groups=[{"lr": 0.0}]),
            **rates,
            lr_warmup_steps=number_of(_WARM_UP, "warm_up"),
            lr_decay_steps=10**6,
            lr_decay_style="constant",
        )

    def step(self, increment: int = 1) -> None:
        """Advance, and set the rate of the next update."""
        super().step(increment)

    def get_last_lr(self) -> list[float]:
        """The rate of the next update."""
        return [group["lr"] for group in self.optimizer.param_groups]


class _Batch:
    """A fake batch on any device."""

    def __init__(self) -> None:
        """Store what the workers read: the number of tokens of each sequence."""
        self.batch, self.non_tensor_batch = self, dict[str, Any]()
        self.meta_info: dict[str, Any] = {"global_token_num": [1]}

    def to(self, *_device: object, **_options: object) -> "_Batch":
        """The same batch."""
        return self


class _Sharding(nullcontext[None]):
    """A fake manager that divides nothing."""

    @staticmethod
    def preprocess_data(data: Any) -> Any:  # noqa: ANN401 - of the target
        """The data."""
        return data

    postprocess_data = preprocess_data


def rates_of_worker(method: Callable[..., Any], owner: type, metric: str, count: int) -> list[float]:
    """Run ``count`` updates of a worker with a known schedule; return the rates that they log."""
    schedule = WarmUp()
    trained = SimpleNamespace(
        make_minibatch_iterator=lambda *_data, **_named: [],
        **dict.fromkeys(("update_policy", "update_critic"), lambda *_data, **_named: {}),
    )
    names = (f"{role}_{name}" for role in ("actor", "critic") for name in ("lr_scheduler", "optimizer_scheduler"))
    worker = SimpleNamespace(
        **dict.fromkeys(names, schedule),
        **dict.fromkeys(("actor", "critic"), trained),
        **dict.fromkeys(("actor_optimizer", "critic_optimizer"), schedule.optimizer),
        **dict.fromkeys(("_is_offload_param", "_is_offload_optimizer", "_is_lora"), False),
        _is_actor=True,
        world_size=1,
        flops_counter=Idle,
        tokenizer=SimpleNamespace(pad_token_id=0),
        ulysses_sharding_manager=_Sharding(),
        config=SimpleNamespace(
            ppo_epochs=1,
            ppo_micro_batch_size_per_gpu=1,
            actor=SimpleNamespace(ppo_epochs=1, ppo_micro_batch_size_per_gpu=1),
        ),
    )
    function = inspect.unwrap(method)
    memory = dict.fromkeys(("log_gpu_memory_usage", "aggressive_empty_cache"), nothing)
    fakes = {"Timer": Timer, "psutil": Idle, "get_torch_device": Idle, **memory}
    with replaced_globals(vars(sys.modules[owner.__module__]), **fakes), redirect_stdout(None):
        logged = [function(worker, _Batch()).meta_info["metrics"][metric] for _ in range(count)]
    return [float(rate) / PEAK for rate in logged]


def rates_of_training_worker(  # noqa: PLR0913 - classes of the target, and what the trainer passes
    worker: Any,  # noqa: ANN401 - a class of the target
    owner: Any,  # noqa: ANN401 - as above
    chunk: Callable[..., list[Any]],
    model: EngineFake,
    data: Any,  # noqa: ANN401 - a TensorDict
    loss_function: Callable[..., Any],
    count: int,
) -> list[float]:
    """Like :func:`rates_of_worker`, for the worker around an engine.

    Raises:
        NotApplicable: if the worker logs no rate.
    """
    tensors, rows, schedule = chunk.__globals__, data.batch_size[0], WarmUp()
    kind = type("Engine", (engine_class(owner),), {"lr_scheduler_step": owner.lr_scheduler_step})
    engine = bare_instance(kind, model=model, lr_scheduler=schedule, optimizer=schedule.optimizer)
    made = worker_of(worker, engine, loss_function)
    prepare_mini_batch(tensors, data, model, mini_batch_size=rows, micro_batch_size_per_gpu=rows)

    def update(_rank: int) -> Any:  # noqa: ANN401 - a number, or several
        engine.model = EngineFake(model.answers, model.lengths)
        return tensors["get"](made.train_mini_batch(copy.copy(data)), "metrics").get("lr")

    with replaced_globals(vars(dist), **COLLECTIVES):
        logged = [run_on_ranks(1, update)[0] for _ in range(count)]
    if None in logged:
        raise NotApplicable("the worker logs no rate")
    return [float(rate[0] if isinstance(rate, list) else rate) / PEAK for rate in logged]


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the updates of workers before 0.8, and of the worker around an engine."""
    for path, metric in UPDATES.items():
        owner = path.rpartition(".")[0]
        if target.has(path) and not target.fails(owner) and f'"{metric}"' in inspect.getsource(target.find(owner)):
            yield from try_bind(target, path, "batch", partial(_of_worker, target, path, owner, metric))
    needed = (TRAIN, CHUNKS, f"{ENGINE}.lr_scheduler_step")
    if all(target.has(path) for path in needed) and not target.fails(WORKER):
        yield from try_bind(target, TRAIN, "batch", lambda: [_of_training_worker(target)])


_COUNT = Derived(lambda inputs: inputs.batch.rows)


def _of_worker(target: Target, path: str, owner: str, metric: str) -> Iterator[Boundary]:
    step = Step(
        call=rates_of_worker,
        name="rates",
        fakes=accelerator_fakes(target, owner.rpartition(".")[0], inspect.getsource(target.find(owner))),
        arguments={**functions(method=path, owner=owner), "metric": Constant(metric), "count": _COUNT},
        produced_by={"count": "ray_trainer.py, fit: one call per step"},
    )
    yield _logged(path, (step,), {})


def _of_training_worker(target: Target) -> Boundary:
    steps, numbers = steps_of_training_worker(target, rates_of_training_worker, count=_COUNT)
    made = _logged(TRAIN, steps, numbers)
    return replace(made, requires=(no_empty_response, *made.requires))


def _logged(path: str, steps: tuple[Step, ...], numbers: Settings) -> Boundary:
    """The boundary of a run with a warm-up, whose last step returns the rates."""
    made = rate_boundary(path, steps[-1], {"warm-up": {**numbers, **_WARM_UP}}, _CLAIMS, _REACH)
    return replace(made, steps=steps, outputs={"logged learning rate": made.outputs["learning rate"]})
