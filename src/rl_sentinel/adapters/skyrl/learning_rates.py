"""SkyRL's learning-rate decay: the number of optimizer steps that the trainer plans for the decay."""

import math
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.learning_rates import UPDATES, rate_boundary
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.value_codecs import Derived, Knob, functions
from rl_sentinel.adapters.skyrl.arguments import TRAINER, config
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Step, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.errors import Unbindable

BUILD = f"{TRAINER}.build_models"

#: Training batches of a run, which has :data:`UPDATES` optimizer steps in all.
_BATCHES = 4

#: A run without reference model, whose workers are not placed together.
_PLACES: Settings = {
    "trainer.placement.colocate_all": False,
    "trainer.placement.colocate_policy_ref": False,
    "trainer.algorithm.use_kl_loss": False,
    "trainer.algorithm.use_kl_in_reward": False,
    "trainer.critic.model.path": "critic",
    "trainer.train_batch_size": 8,
}

#: Model -> how a training batch is divided: into two mini-batches in two epochs, or four mini-batches in one.
_FAMILIES: Mapping[str, Settings] = {
    "policy": {
        "trainer.policy_mini_batch_size": 4,
        "trainer.critic_mini_batch_size": 8,
        "trainer.update_epochs_per_batch": 2,
    },
    "critic": {
        "trainer.policy_mini_batch_size": 8,
        "trainer.critic_mini_batch_size": 2,
        "trainer.update_epochs_per_batch": 1,
    },
}

_DOCS = (
    "configuration, trainer.policy.optimizer_config.scheduler: the type of transformers' learning-rate schedule; "
    "trainer.policy_mini_batch_size: an optimizer step for each mini-batch"
)
_ORDER = (
    "fsdp_strategy.py: get_scheduler(num_training_steps=...) of init_model; worker.py, optim_step: the schedule "
    "advances once per optimizer step"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the cosine schedule of each model that the trainer builds."""
    if not target.has(BUILD):
        return
    for model, settings in _FAMILIES.items():
        try:
            config({**_PLACES, **settings}).check(target)
        except Unbindable as why:
            yield Unbound.because(BUILD, "batch", why)
            return
        yield from bindable(target, _rates(model, settings))


def rates(build: Callable[..., Any], owner: type, cfg: Any, model: str, count: int) -> list[float]:  # noqa: ANN401 - the target's class
    """The learning rates of the first ``count`` optimizer steps of ``model``, as fractions of the peak.

    They are a cosine without warm-up, over the number of steps that the trainer plans when it builds its models.
    """
    planned: dict[str, int | None] = {}

    class Group:
        """A fake group of workers without models."""

        def __init__(self, _config: object, _nodes: object, _gpus: object, worker: str, **_options: object) -> None:
            self.worker = worker

        def async_init_model(self, _path: object, num_training_steps: int | None = None) -> list[Any]:
            planned[self.worker] = num_training_steps
            return []

        def __getattr__(self, _name: str) -> Callable[..., list[Any]]:
            return lambda *_arguments, **_options: []

    trainer = bare_instance(
        owner,
        cfg=cfg,
        total_training_steps=_BATCHES,
        tokenizer=SimpleNamespace(pad_token_id=0),
        colocate_all=False,
        colocate_pg=None,
        inference_engine_client=None,
    )
    fakes = {
        "PPORayActorGroup": Group,
        "ray": SimpleNamespace(get=lambda result: result),
        "WorkerDispatch": lambda *_arguments, **_options: None,
    }
    with replaced_globals(build.__globals__, **fakes):
        build(trainer, "policy", "critic", "reference")
    steps = int(planned[model] or 0)
    return [(1 + math.cos(math.pi * min(1.0, number / steps))) / 2 for number in range(count)]


def _rates(model: str, settings: Settings) -> Boundary:
    step = Step(
        call=rates,
        name="rates",
        arguments={
            **functions(build=BUILD, owner=TRAINER),
            "cfg": config({}, {**_PLACES, **settings}),
            "model": Knob("model"),
            "count": Derived(lambda inputs: inputs.batch.rows),
        },
        produced_by={"count": _ORDER},
    )
    families: dict[str, Settings] = {
        f"{model}, cosine": {"model": model, "updates": UPDATES, "warm_up": 0, "floor": 0.0}
    }
    claimed = claims(_DOCS, algorithm="cosine after warm-up")
    reach = f"trainer.{model}.optimizer_config.scheduler=cosine; several mini-batches or epochs per training batch"
    return rate_boundary(BUILD, step, families, claimed, reach)
