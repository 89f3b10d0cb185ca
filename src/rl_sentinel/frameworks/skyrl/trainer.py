"""SkyRL's trainer: advantages of single responses and of step-wise trajectories, and their scaling."""

import inspect
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims, value_of
from rl_sentinel.core.errors import Unbindable
from rl_sentinel.frameworks.skyrl.advantages import CLAIMS, REGISTRY, registered
from rl_sentinel.frameworks.skyrl.batches import (
    INPUT,
    MODULE,
    STEP_WISE,
    back,
    config,
    right,
    steps_in_order,
    trainer,
    training_input,
)
from rl_sentinel.frameworks.target import Target

PATH = "skyrl.train.trainer.RayPPOTrainer.compute_advantages_and_returns"
SCALE = "skyrl.train.trainer.RayPPOTrainer._normalize_advantages"
NORMALISE = f"{MODULE}.normalize_advantages_dict"

ESTIMATOR = "trainer.algorithm.advantage_estimator"

_STEPS = claims(
    "trainer.py, compute_advantages_and_returns: the last step's advantage is broadcast to all steps of a trajectory",
    trajectories="step-wise",
)
_NORMALISED = claims("config.py, AlgorithmConfig.advantage_batch_normalize", scope="batch")


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The method under each estimator, plain and step-wise; then the batch normalisation."""
    try:
        target.find(PATH)
        names = list(registered(target, REGISTRY))
    except Unbindable as why:
        yield Unbound(PATH, "advantage", str(why))
        return
    for name in names:
        yield from _guarded(target, name, name, {ESTIMATOR: name})
        if value_of(CLAIMS.get(name, Claims()).credit) == "outcome":
            yield from _guarded(target, f"step-wise {name}", name, {ESTIMATOR: name, STEP_WISE: True})
    if target.has(NORMALISE) or target.has(SCALE):
        yield _normalisation(target)


def _guarded(target: Target, label: str, name: str, settings: Settings) -> Iterator[Boundary | Unbound]:
    try:
        config(target, settings)
        yield _boundary(target, label, name, settings)
    except Unbindable as why:
        yield Unbound(PATH, "advantage", str(why))


def _boundary(target: Target, label: str, name: str, settings: Settings) -> Boundary:
    step_wise = STEP_WISE in settings
    reads = {"reward", "length", "mask", "group"} | ({"trajectory", "last_step"} if step_wise else set())
    reads |= {"gae": {"value", "token_reward"}, "reinforce++": {"token_reward"}}.get(name, set())

    def call(batch: Batch, knobs: Settings) -> Mapping[str, Tensor]:
        if step_wise:
            steps_in_order(batch)
        data = target.call(PATH, trainer(target, knobs), training_input(target, batch))
        return {"advantage": back(data["advantages"], batch), "returns": back(data["returns"], batch)}

    return Boundary(
        path=PATH,
        stage="advantage",
        call=call,
        reads=frozenset(reads),
        outputs={
            "advantage": Output("B T", "reward", "advantage"),
            "returns": Output("B T", "reward", "returns"),
        },
        settings={label: settings},
        claims=CLAIMS.get(name, Claims()) | (_STEPS if step_wise else Claims()),
        reach=", ".join(f"{k}={v}" for k, v in settings.items()),
    )


def _normalisation(target: Target) -> Boundary:
    path = NORMALISE if target.has(NORMALISE) else SCALE
    settings: Settings = {"trainer.algorithm.advantage_batch_normalize": True}
    if path == SCALE:  # the method scales for the reduction too
        settings = {**settings, "trainer.algorithm.loss_reduction": "token_mean"}

    def call(batch: Batch, knobs: Settings) -> Mapping[str, Tensor]:
        data = target.call(
            INPUT,
            {
                "advantages": right(batch, "advantage"),
                "response_mask": right(batch, "valid").to(torch.int64),
                "loss_mask": right(batch, "mask").to(torch.int64),
            },
        )
        if path == NORMALISE:
            data = target.call(path, data)
        else:
            given = {"mini_batch_boundaries": [(0, batch.rows)], "prompt_boundaries": None}
            takes = inspect.signature(target.find(path)).parameters
            own = {k: v for k, v in given.items() if k in takes}
            data = target.call(path, trainer(target, knobs), data, **own)
        return {"advantage": back(data["advantages"], batch)}

    return Boundary(
        path=path,
        stage="normalise",
        call=call,
        reads=frozenset({"advantage", "mask", "length"}),
        outputs={"advantage": Output("B T", "reward", "advantage")},
        settings={"default": settings},
        claims=_NORMALISED,
        reach="trainer.algorithm.advantage_batch_normalize=true",
    )
