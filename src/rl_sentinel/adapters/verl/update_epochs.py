"""Boundaries of verl's workers: how often an update of several epochs trains on each row."""

import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch.distributed as dist
from torch import Tensor

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.rank_threads import run_on_ranks
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.engine import LOSS
from rl_sentinel.adapters.verl.fakes import EngineFake, ModelFake
from rl_sentinel.adapters.verl.logged_norms import (
    PARTS,
    ROLES,
    USED,
    Role,
    even,
    in_two_parts,
    step_of_worker,
    steps_of_training_worker,
)
from rl_sentinel.adapters.verl.training_worker import (
    CHUNKS,
    COLLECTIVES,
    ENGINE,
    TRAIN,
    WORKER,
    engine_class,
    prepare_mini_batch,
    worker_of,
)
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

#: The setting, and the number of epochs by the name of a case's setting.
SETTING = "ppo_epochs"
EPOCHS = {"one epoch": 1, "two epochs": 2}

_DOCS = (
    "docs/examples/config.rst: actor.ppo_epochs and critic.ppo_epochs, the number of epochs of an update on one batch"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the data-parallel actor and critic before 0.8, and of the worker around an engine."""
    needed = (TRAIN, CHUNKS, LOSS, ENGINE)
    if all(target.has(path) for path in needed) and not target.fails(WORKER):
        yield from try_bind(target, TRAIN, "batch", lambda: [_of_training_worker(target)])
    for role in ROLES:
        owner = role.update.rpartition(".")[0]
        if target.has(role.update) and not target.fails(owner):
            yield from try_bind(target, role.update, "batch", partial(_of_worker, target, role, owner))


class CountedModel(ModelFake):
    """A fake model and optimizer that count the passes of each row; a row's first token is its number."""

    passes: Counter[int]

    def __call__(self, input_ids: Tensor, **about: Any) -> Any:  # noqa: ANN401 - as the base class
        """The outputs of the base class."""
        self.passes.update(input_ids[:, 0].tolist())
        return super().__call__(input_ids, **about)

    def forward(self, micro_batch: Any) -> tuple[Tensor, Tensor]:  # noqa: ANN401 - a dict of tensors
        """The outputs of the base class."""
        self.passes.update(micro_batch["input_ids"][:, 0].tolist())
        return super().forward(micro_batch)


class CountedEngine(EngineFake):
    """A fake model of an engine that counts the passes of each row."""

    def __init__(self, answers: dict[str, Tensor], lengths: list[int]) -> None:
        """Start without a pass."""
        super().__init__(answers, lengths)
        self.passes = Counter[int]()

    def forward_step(self, micro_batch: Any, loss_function: Any, **about: object) -> Any:  # noqa: ANN401 - of the target
        """The loss of the base class."""
        self.passes.update(micro_batch["row"].tolist())
        return super().forward_step(micro_batch, loss_function, **about)


def uses_of_rows(update: Callable[..., Any], worker: Any, data: Any, epochs: int) -> list[float]:  # noqa: ANN401 - of the target
    """Run an update in mini-batches of equal size; return the passes of each row, divided by the number of epochs."""
    fake = next(getattr(worker, name) for name in ("actor_optimizer", "critic_optimizer") if hasattr(worker, name))
    fake.__class__, fake.passes = CountedModel, Counter()
    update(worker, data)
    return [fake.passes[row] / epochs for row in range(data.batch.batch_size[0])]


def uses_of_training_worker(  # noqa: PLR0913 - classes of the target, and what the trainer passes
    worker: Any,  # noqa: ANN401 - a class of the target
    owner: Any,  # noqa: ANN401 - as above
    chunk: Callable[..., list[Any]],
    model: EngineFake,
    data: Any,  # noqa: ANN401 - a TensorDict
    loss_function: Callable[..., Any],
    epochs: int,
) -> list[float]:
    """Like :func:`uses_of_rows`, for the worker around an engine."""
    tensors, rows = chunk.__globals__, data.batch_size[0]
    size = rows // PARTS
    prepare_mini_batch(tensors, data, model, mini_batch_size=size, micro_batch_size_per_gpu=size)
    tensors["assign_non_tensor"](data, epochs=epochs)
    own = CountedEngine(model.answers, model.lengths)
    engine = bare_instance(engine_class(owner), model=own)
    with replaced_globals(vars(dist), **COLLECTIVES):
        run_on_ranks(1, lambda _rank: worker_of(worker, engine, loss_function).train_mini_batch(data))
    return [own.passes[row] / epochs for row in range(rows)]


def _of_worker(target: Target, role: Role, owner: str) -> Iterator[Boundary]:
    source = inspect.getsource(target.find(owner)).partition(f"def {role.update.rpartition('.')[2]}")[2]
    options = {SETTING: Knob(SETTING)}
    yield _boundary(
        role.update, step_of_worker(target, role, owner, source, uses_of_rows, options, epochs=Knob(SETTING))
    )


def _of_training_worker(target: Target) -> Boundary:
    produced_by = {"epochs": "trainer/ppo/ray_trainer.py, _update_actor and _update_critic: epochs=ppo_epochs"}
    steps, numbers = steps_of_training_worker(target, uses_of_training_worker, produced_by, epochs=Knob(SETTING))
    return _boundary(TRAIN, *steps, numbers=numbers)


def _boundary(path: str, *steps: Step, numbers: Settings | None = None) -> Boundary:
    return Boundary(
        path=path,
        stage="batch",
        steps=steps,
        reads=frozenset({"mask"}),
        outputs={"passes per epoch": Output("B", "uses", "uses", at=Use(USED), form=PerRow("list"))},
        settings={name: {**(numbers or {}), SETTING: epochs} for name, epochs in EPOCHS.items()},
        claims=claims(_DOCS),
        reach="actor.ppo_epochs, critic.ppo_epochs; data.train_batch_size twice the mini-batch size",
        requires=(no_empty_response, in_two_parts),
        domain=even,
    )
