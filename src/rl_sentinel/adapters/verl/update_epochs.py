"""Boundaries of verl's workers: how often an update of several epochs trains on each row."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.value_codecs import Knob, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.fakes import EngineFake, ModelFake
from rl_sentinel.adapters.verl.logged_norms import (
    Role,
    bind_workers,
    step_of_worker,
    steps_of_training_worker,
    train_in_two_parts,
    uses_boundary,
)
from rl_sentinel.adapters.verl.training_worker import (
    TRAIN,
    engine_class,
    worker_of,
)
from rl_sentinel.core.boundary import Boundary, Step, Unbound
from rl_sentinel.core.case import Settings

#: The setting, and the number of epochs by the name of a case's setting.
SETTING = "ppo_epochs"
EPOCHS = {"one epoch": 1, "two epochs": 2}

_DOCS = (
    "docs/examples/config.rst: actor.ppo_epochs and critic.ppo_epochs, the number of epochs of an update on one batch"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the data-parallel actor and critic before 0.8, and of the worker around an engine."""
    yield from bind_workers(target, _of_training_worker, _of_role)


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
    own = CountedEngine(model.answers, model.lengths)
    engine = bare_instance(engine_class(owner), model=own)
    train_in_two_parts(worker_of(worker, engine, loss_function), chunk.__globals__, data, epochs)
    return [own.passes[row] / epochs for row in range(data.batch_size[0])]


def _of_role(target: Target, role: Role, owner: str, source: str) -> Iterator[Boundary]:
    step = step_of_worker(target, role, owner, source, uses_of_rows, knobs(SETTING), epochs=Knob(SETTING))
    yield _boundary(role.update, step)


def _of_training_worker(target: Target) -> Boundary:
    produced_by = {"epochs": "trainer/ppo/ray_trainer.py, _update_actor and _update_critic: epochs=ppo_epochs"}
    steps, numbers = steps_of_training_worker(target, uses_of_training_worker, produced_by, epochs=Knob(SETTING))
    return _boundary(TRAIN, *steps, numbers=numbers)


def _boundary(path: str, *steps: Step, numbers: Settings | None = None) -> Boundary:
    settings = {name: {**(numbers or {}), SETTING: epochs} for name, epochs in EPOCHS.items()}
    reach = "actor.ppo_epochs, critic.ppo_epochs; data.train_batch_size twice the mini-batch size"
    return uses_boundary(path, steps, "passes per epoch", settings, _DOCS, reach)
