"""Audit of ``rl_sentinel.train``: advantages from trajectories, losses over micro-batches, the optimizer step."""

import json
import os
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.framework import Framework
from rl_sentinel.adapters.kit.batch_steps import batch_step, by_name
from rl_sentinel.adapters.kit.overflowing_steps import overflow_boundary
from rl_sentinel.adapters.own_trainer import composed_recipe
from rl_sentinel.adapters.own_trainer.advantages import BUILD_BATCH
from rl_sentinel.adapters.own_trainer.batch_episodes import TRAIN, episodes_of
from rl_sentinel.adapters.own_trainer.losses import LOSS, ROWS
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claim_text import claims_from_text

#: Environment variable with a recipe as JSON: its ``tables`` about the signal, and the ``parts`` of the reward.
RECIPE_VARIABLE = "RL_SENTINEL_RECIPE"

GRPO: Mapping[str, Any] = {"name": "grpo", "standardize": False, "epsilon": 0.0}
PPO: Mapping[str, Any] = {"name": "ppo", "clip_low": 0.2, "clip_high": 0.28}
MODES = ("token-mean", "sequence-mean-token-mean", "sequence-mean-token-sum")

STEP = f"{TRAIN}.update.optimizer_step.take_optimizer_step"

#: Loss -> its numbers, and pairs of values that must give different results.
LOSSES: Mapping[str, tuple[Mapping[str, float], Mapping[str, str]]] = {
    "ppo": ({"clip_low": 0.2, "clip_high": 0.28}, {"knob:clip_low": "0.1|0.4", "knob:clip_high": "0.1|0.4"}),
    "reinforce": ({}, {}),
}


def boundaries(target: Target) -> Iterator[Boundary]:
    """Boundaries of advantages for single turns, trajectories of several rows and unscored rewards; losses; the step.

    If the environment variable ``RL_SENTINEL_RECIPE`` is set, only the advantages and the loss of that recipe.
    """
    if recipe := json.loads(os.environ.get(RECIPE_VARIABLE) or "{}"):
        yield from composed_recipe.boundaries(target, recipe["tables"], tuple(recipe["parts"]))
        return
    yield _advantages(target, "single turns", ())
    yield _advantages(target, "a row per turn", ("trajectory", "last_step"))
    yield _advantages(target, "void rewards", ("scored",), unended="suppress")
    for name in LOSSES:
        for mode in MODES:
            yield _loss(target, name, mode)
    yield overflow_boundary(STEP, _take_step, "every update whose loss overflows", owner=STEP)


def _take_step(function: Any, _model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:  # noqa: ANN401 - the target's
    """Take an optimizer step, as the trainer does for the policy and for the critic."""
    function(optimizer, key="update.rate")


def _advantages(target: Target, name: str, columns: tuple[str, ...], **sampling: str) -> Boundary:
    def compute(batch: Batch, _settings: Settings) -> Mapping[str, Tensor]:
        rollout = {"prompts": 1, "responses": 2, "tokens": 1, "merged": False, **sampling}
        recipe, selection = _select(target, rollout=rollout)
        unused = SimpleNamespace(padding=0)
        models = target.call(f"{TRAIN}.model.policy.Models", unused, unused, None)
        episodes, rows = episodes_of(target, batch, frozenset(columns))
        built, _ready = target.call(BUILD_BATCH, recipe, selection, models, episodes, step=0, kl_coefficient=0.0)
        advantage = torch.zeros(batch.mask.shape, dtype=built.advantage.dtype)
        advantage[torch.tensor(rows), : built.advantage.shape[1]] = built.advantage
        return {"advantage": advantage}

    claims = {"algorithm": "grpo", "scope": "group", "grouping": "id", "credit": "outcome", "standardized": "no"}
    claims |= {"masked": "yes", "baseline": "relative"} | ({"suppresses": "unscored"} if "scored" in columns else {})
    claims |= {"trajectories": "step-wise"} if "trajectory" in columns else {}
    return Boundary(
        path=BUILD_BATCH,
        stage="advantage",
        steps=(batch_step(compute, frozenset({"reward", "group", "mask", "length", *columns})),),
        outputs=by_name({"advantage": Output("B T", "reward", "advantage")}),
        settings={name: {"rollout": name}},
        claims=claims_from_text(claims, "rl_sentinel/signal/advantage/grpo.py: CLAIMS"),
    )


def _loss(target: Target, name: str, mode: str) -> Boundary:
    numbers, knobs = LOSSES[name]
    old = {"old_logprob"} if name == "ppo" else set[str]()

    def compute(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        own_numbers = {n: settings[n] for n in numbers}
        recipe, selection = _select(target, loss={"name": name, "aggregation": mode, **own_numbers})
        laid = SimpleNamespace(prompt_length=batch.prompt_length, length=batch.length)
        columns = {"mask": batch.mask, "advantage": batch.advantage, "old_logprob": batch.old_logprob}
        training_batch = target.call(
            f"{TRAIN}.update.training_batch.TrainingBatch", laid=laid, **columns, ref_logprob=None
        )
        whole = selection.aggregation(recipe, batch.mask, batch.group)
        rows = target.call(ROWS, training_batch, torch.arange(batch.rows), lazy=selection.lazy)
        size = max(1, -(-len(rows) // int(settings["micro_batches"] or 1)))
        loss = (batch.logprob * 0).nan_to_num().sum()
        for part in torch.split(rows, size) if len(rows) else ():
            more = {"selection": selection, "aggregation": whole.of_rows(part), "coefficient": 0.0}
            loss = loss + target.call(LOSS, batch.logprob[part], training_batch, part, **more)
        return {"loss": loss}

    claims = {"algorithm": name, "denominator": "given", "mean": "yes", "aggregation": mode, **knobs}
    claims |= {"ratio": "yes"} if name == "ppo" else {}
    return Boundary(
        path=f"{ROWS} -> {LOSS}",
        stage="policy-loss",
        steps=(batch_step(compute, frozenset({"logprob", "advantage", "mask"} | old), frozenset({"micro_batches"})),),
        outputs=by_name({"loss": Output("", "", "loss", over="live")}),
        settings={f"{name}, {mode}": dict(numbers)},
        claims=claims_from_text(claims, f"rl_sentinel/signal/loss/{name}.py: CLAIMS"),
    )


#: The recipe of every boundary; a boundary overrides some tables.
RECIPE: dict[str, Any] = {
    "out": "nowhere",
    "steps": 1,
    "environment": {"name": "sort"},
    "rollout": {"prompts": 1, "responses": 2, "tokens": 1},
    "estimator": GRPO,
    "loss": {**PPO, "aggregation": "token-mean"},
    "update": {"prompts": 1, "rate": 1.0},
}


def _select(target: Target, **more: Mapping[str, object]) -> tuple[Any, Any]:
    """Parse a recipe and select its components; cached."""
    tables = RECIPE | more

    def parse() -> tuple[Any, Any]:
        recipe = target.call(f"{TRAIN}.config.recipe.parse_recipe", tables, where="audit")
        return recipe, target.call(f"{TRAIN}.config.selection.select_components", recipe)

    selected: tuple[Any, Any] = target.cached(("selection", repr(tables)), parse)
    return selected


FRAMEWORK = Framework(name="rl_sentinel.train", package="rl_sentinel", boundaries=boundaries)
