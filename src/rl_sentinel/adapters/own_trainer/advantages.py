"""Boundary of the trainer's advantages for one recipe: from trajectories to the training batch."""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.batch_steps import batch_step, by_name
from rl_sentinel.adapters.own_trainer.batch_episodes import TRAIN, episodes_of
from rl_sentinel.adapters.own_trainer.code_numbers import with_numbers_of_code
from rl_sentinel.adapters.own_trainer.composition import (
    SETTING,
    Composition,
    as_raised,
    changed_numbers,
    claims_of,
    formula_names,
    numbers_of,
    settable_claims,
    stated_claims,
)
from rl_sentinel.adapters.own_trainer.groups_by_position import with_groups
from rl_sentinel.core.batch import COLUMNS, Batch, with_columns
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.case import Settings

BUILD_BATCH = f"{TRAIN}.update.training_batch.build_training_batch"

#: Claims on the estimator that no longer hold if the recipe changes rewards before it or advantages after it, or sets a
#: list of numbers, such as weights, which the formulas do not have.
_OF_FORMULA = ("algorithm", "definition:", "standardized", "deviation", "knob:")


def advantages(composed: Composition) -> Boundary:
    """The boundary of ``build_training_batch``, from trajectories to advantages; only forward passes are replaced."""
    choices, reads, numbers = (
        composed.selection.choices,
        _columns_read(composed),
        numbers_of(composed.selection.choices.estimator),
    )

    own = ":" in composed.recipe.estimator.name
    names = formula_names(numbers, "advantage", own=own)
    of_rows = _whole_responses if composed.recipe.rollout.turns == 1 else None

    def compute(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        changed = composed.with_numbers(estimator=changed_numbers(numbers, names, settings))
        recomputes = "rollout_logprob" in reads or "pi_squared" in reads or _several_steps(changed.recipe)
        sampled = "rollout_logprob" if recomputes else "old_logprob"
        episodes, rows = episodes_of(composed.target, batch, reads, sampled=sampled, parts=len(composed.parts))
        ready = changed.target.call(
            BUILD_BATCH,
            changed.recipe,
            changed.selection,
            _models(changed, batch, rows, reads),
            episodes,
            step=0,
            kl_coefficient=choices.kl_coefficient,
            critic=_critic(batch, rows) if "value" in reads else None,
        )[0]
        advantage = torch.zeros(batch.mask.shape, dtype=ready.advantage.dtype)
        advantage[torch.tensor(rows), : ready.advantage.shape[1]] = ready.advantage
        return {"advantage": advantage}

    in_formulas = {name: numbers[of] for of, inside in names.items() for name in inside}
    fakes = {
        f"{TRAIN}.update.training_batch.response_logprobs": _column("logprob"),
        f"{TRAIN}.update.training_batch.squared_probabilities": _column("pi_squared"),
    }
    boundary = Boundary(
        path=BUILD_BATCH,
        stage="advantage",
        steps=(replace(batch_step(compute, reads), fakes=fakes, explain=as_raised),),
        outputs=by_name({"advantage": Output("B T", "reward", "advantage")}),
        settings={SETTING: in_formulas or {"estimator": composed.recipe.estimator.name}},
        claims=claims_of("estimator", composed, _advantage_claims(composed, reads, numbers, names)),
        domain=of_rows,
        own=own or bool(composed.recipe.path),
        has_dead_rows=composed.recipe.rollout.unended == "reject" or bool(choices.rejections),
    )
    if not own:
        return boundary
    return with_numbers_of_code(composed, with_groups(composed, boundary, numbers), choices.estimator)


def _whole_responses(batch: Batch) -> Batch:
    """Train all tokens of a live response, as the trainer does with one turn; unchanged if they already train."""
    mask = batch.valid & batch.live.unsqueeze(1)
    return batch if torch.equal(mask, batch.mask) else with_columns(batch, mask=mask)


def _mixes_rows(bound: Callable[..., Tensor]) -> bool:
    """Whether a bound on importance weights depends on other rows, as self-normalization does."""
    one, other = torch.tensor([[1.0], [1.0]]), torch.tensor([[1.0], [1.5]])
    mask = torch.ones_like(one, dtype=torch.bool)
    return not torch.equal(bound(one, mask=mask)[0], bound(other, mask=mask)[0])


def _columns_read(composed: Composition) -> frozenset[str]:
    """The columns that the advantages of a recipe depend on."""
    recipe, choices = composed.recipe, composed.selection.choices
    wanted = {n for n in inspect.signature(choices.estimator).parameters if n in COLUMNS}
    reads = {"reward", "group", "mask", "length", *(wanted & {"reward_baseline", "value", "pi_squared", "turn"})}
    if "reward_parts" in wanted:
        reads = (reads - {"reward"}) | {"reward_parts"}
    if choices.weight is not None or choices.rejections:
        reads |= {"old_logprob", "rollout_logprob"}
    if choices.kl_coefficient:
        reads |= {"old_logprob", "ref_logprob"}
    if wanted & {"logprob", "old_logprob"}:
        reads |= {"old_logprob"}
    if recipe.rollout.turns > 1 and not recipe.rollout.merged:
        reads |= {"trajectory", "last_step"}
    return frozenset(reads | ({"scored"} if recipe.rollout.unended == "suppress" else set()))


def _several_steps(recipe: Any) -> bool:  # noqa: ANN401 - a class of the tree under audit
    return bool(recipe.update.epochs > 1 or recipe.update.prompts < recipe.rollout.prompts)


def _advantage_claims(
    composed: Composition, reads: frozenset[str], numbers: Settings, names: Mapping[str, tuple[str, ...]]
) -> dict[str, str]:
    """The claims of the estimator's module that still hold for the whole path, and the claims of the path itself."""
    choices, estimator = composed.selection.choices, composed.selection.choices.estimator
    shaped = composed.recipe.reward != type(composed.recipe.reward)() or bool(composed.recipe.path)
    claims = settable_claims(stated_claims(composed, "estimator", "advantage"), names)
    if "standardize" in numbers and claims:
        claims["standardized"] = "yes" if numbers["standardize"] else "no"
    if claims.get("standardized") == "no":
        claims.pop("knob:epsilon", None)  # without division by a deviation, epsilon has no effect
    listed = any(isinstance(value, list | tuple) for value in composed.tables["estimator"].values())
    if listed or shaped or choices.weight is not None or choices.rejections or choices.kl_coefficient:
        claims = {key: text for key, text in claims.items() if not key.startswith(_OF_FORMULA)}
    if choices.weight is not None or math.isfinite(choices.least) or math.isfinite(choices.most):
        claims.pop("baseline", None)
    if choices.normalization is not None and "scope" in claims:
        over = {choices.normalization.mean, choices.normalization.deviation}
        claims["scope"] = "batch" if "batch" in over else claims["scope"] if claims["scope"] == "batch" else "group"
    if "scope" in claims and any(map(_mixes_rows, choices.bounds)):
        claims["scope"] = "batch"
    parameters = inspect.signature(estimator).parameters
    if "length" in parameters and composed.recipe.rollout.turns > 1:
        claims.pop("algorithm", None)  # the trainer counts trained tokens, the formula all tokens of a response
    if "mask" not in parameters:
        claims["credit"] = "outcome"
    if choices.weight is not None:
        claims.pop("credit", None)
    claims |= {"suppresses": "unscored"} if "scored" in reads else {}
    claims |= {"trajectories": "step-wise"} if "trajectory" in reads else {}
    return claims | {"masked": "yes"}


def _column(name: str) -> Callable[..., Tensor]:
    """A fake for a forward pass: it returns the rows of a known column."""

    def values(policy: Any, _laid: object, rows: Tensor, *, temperature: float) -> Tensor:  # noqa: ANN401, ARG001
        column: Tensor = policy.columns[name]
        return column[rows]

    return values


def _models(composed: Composition, batch: Batch, rows: list[int], reads: frozenset[str]) -> Any:  # noqa: ANN401
    """Policies with known log-probs: the policy before the update and, if the recipe reads it, the reference."""
    old = {"logprob": _model_output(batch, "old_logprob", rows), "pi_squared": _model_output(batch, "pi_squared", rows)}
    policy = SimpleNamespace(padding=0, columns=old)
    reference = SimpleNamespace(padding=0, columns={"logprob": _model_output(batch, "ref_logprob", rows)})
    used_reference = reference if "ref_logprob" in reads else None
    return composed.target.call(f"{TRAIN}.model.policy.Models", policy, policy, used_reference)


def _critic(batch: Batch, rows: list[int]) -> SimpleNamespace:
    return SimpleNamespace(predict=lambda _rows, update: _model_output(batch, "value", rows))  # noqa: ARG005 - its signature


def _model_output(batch: Batch, column: str, rows: list[int]) -> Tensor:
    """A column as a model returns it: float32, and 0 after each response."""
    values = torch.where(batch.valid, getattr(batch, column), 0.0).float()
    return values[torch.tensor(rows), : int(batch.length.max())]
