"""The trainer as one recipe composes it: from trajectories to its advantages, and its loss in parts and over ranks."""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.own_functions import batch_step, by_name
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trainer_episodes import TRAIN, episodes_of
from rl_sentinel.core.batch import COLUMNS, Batch, with_columns
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims_from_text
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.layout import Axis

BUILD_BATCH = f"{TRAIN}.update.training_batch.build_training_batch"
GRADIENT = f"{TRAIN}.update.minibatch_gradient"
ROWS, LOSS = f"{GRADIENT}.rows_with_gradient", f"{GRADIENT}.compute_loss"

#: The setting of every boundary.
SETTING = "recipe"

#: What the tables of a recipe lack here: no model, no task and no folder are needed.
_ELSEWHERE: Mapping[str, Any] = {"out": "nowhere", "steps": 1, "environment": {"name": "none"}}

#: Claims on the estimator that hold no more once rewards or advantages are changed before or behind it, or if it has a
#: list of numbers, such as weights, which the formulas lack.
_OF_FORMULA = ("algorithm", "definition:", "standardised", "deviation", "knob:")

#: What modules state beside claims (of a lone response), and of values at masked positions, which the trainer computes.
_UNHEARD = frozenset({"lone", "masked-slots"})

#: KL estimators of which the formula of a loss has a term.
_KLS = ("k1", "abs", "k2", "k3")


@dataclass(frozen=True, slots=True)
class Composition:
    """A recipe with its components, and the tables that it was made of."""

    target: Target
    tables: Mapping[str, Any]
    parts: tuple[str, ...]
    recipe: Any
    selection: Any

    def with_numbers(self, table: str, numbers: Settings) -> "Composition":
        """The same with these numbers of the estimator or of the loss changed; made once for each."""
        if not numbers:
            return self
        tables = {**self.tables, table: {**self.tables[table], **numbers}}
        made: Composition = self.target.kept(repr(tables), lambda: compose(self.target, tables, self.parts))
        return made


def compose(target: Target, tables: Mapping[str, Any], parts: tuple[str, ...]) -> Composition:
    """Select what a recipe names, without its environment, of whose reward ``parts`` are the names."""
    recipe = target.call(f"{TRAIN}.config.recipe.parse_recipe", {**tables, **_ELSEWHERE}, where="recipe")
    environment = SimpleNamespace(parts=parts)
    selection = target.call(f"{TRAIN}.config.selection.select_components", recipe, environment)
    return Composition(target, tables, parts, recipe, selection)


def boundaries(target: Target, tables: Mapping[str, Any], parts: tuple[str, ...] = ()) -> Iterator[Boundary]:
    """The advantages and the loss of a recipe.

    Args:
        target: the tree that has the trainer.
        tables: of the recipe, those that say how the signal is computed.
        parts: the names of the parts of the environment's reward.

    Raises:
        SentinelError: if a user's module states a claim that does not exist.
    """
    without_kl = {name: table for name, table in tables.items() if name != "kl"}
    priced = bool((tables.get("kl") or {}).get("reward"))
    yield _advantages(compose(target, tables if priced else without_kl, parts))
    yield _loss(compose(target, tables, parts))


def _advantages(composed: Composition) -> Boundary:
    choices, reads, numbers = (
        composed.selection.choices,
        _read(composed),
        _numbers(composed.selection.choices.estimator),
    )

    def compute(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        own = composed.with_numbers("estimator", _changed(numbers, settings))
        recomputes = "rollout_logprob" in reads or "pi_squared" in reads or _several_steps(own.recipe)
        sampled = "rollout_logprob" if recomputes else "old_logprob"
        episodes, rows = episodes_of(composed.target, batch, reads, sampled=sampled, parts=len(composed.parts))
        ready = own.target.call(
            BUILD_BATCH,
            own.recipe,
            own.selection,
            _models(own, batch, rows, reads),
            episodes,
            step=0,
            kl_coefficient=choices.kl_coefficient,
            critic=_critic(batch, rows) if "value" in reads else None,
        )[0]
        advantage = torch.zeros(batch.mask.shape, dtype=ready.advantage.dtype)
        advantage[torch.tensor(rows), : ready.advantage.shape[1]] = ready.advantage
        return {"advantage": advantage}

    doubles = {
        f"{TRAIN}.update.training_batch.response_logprobs": _column("logprob"),
        f"{TRAIN}.update.training_batch.squared_probabilities": _column("pi_squared"),
    }
    return Boundary(
        path=BUILD_BATCH,
        stage="advantage",
        steps=(replace(batch_step(compute, reads), doubles=doubles, explain=_as_raised),),
        outputs=by_name({"advantage": Output("B T", "reward", "advantage")}),
        settings={SETTING: numbers or {"estimator": composed.recipe.estimator.name}},
        claims=_claimed("estimator", composed, _said_of_advantages(composed, reads, numbers)),
        domain=_whole_responses if composed.recipe.rollout.turns == 1 else None,
    )


def _as_raised(error: Exception, _passed: Mapping[str, Any]) -> Exception:
    """The refusal or the error of a function that the trainer turned into a message of its own."""
    return error.__cause__ if isinstance(error.__cause__, Exception) else error


def _whole_responses(batch: Batch) -> Batch:
    """All tokens of a response of one turn train, or none; the batch itself if it is so."""
    mask = batch.valid & batch.live.unsqueeze(1)
    return batch if torch.equal(mask, batch.mask) else with_columns(batch, mask=mask)


def _read(composed: Composition) -> frozenset[str]:
    """The columns of which the advantages of a recipe are made."""
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


def _said_of_advantages(composed: Composition, reads: frozenset[str], numbers: Settings) -> dict[str, str]:
    """The claims of the estimator's module that the whole path keeps, and those that the path itself makes."""
    choices, estimator = composed.selection.choices, composed.selection.choices.estimator
    shaped = composed.recipe.reward != type(composed.recipe.reward)()
    said = _settable(composed.selection.claims[0], numbers)
    if "standardise" in numbers and said:
        said["standardised"] = "yes" if numbers["standardise"] else "no"
    if said.get("standardised") == "no":
        said.pop("knob:epsilon", None)  # nothing is divided by a deviation
    listed = any(isinstance(value, list | tuple) for value in composed.tables["estimator"].values())
    if listed or shaped or choices.weight is not None or choices.rejections or choices.kl_coefficient:
        said = {key: text for key, text in said.items() if not key.startswith(_OF_FORMULA)}
    if choices.weight is not None or math.isfinite(choices.least) or math.isfinite(choices.most):
        said.pop("baseline", None)
    if choices.normalisation is not None and "scope" in said:
        over = {choices.normalisation.mean, choices.normalisation.deviation}
        said["scope"] = "batch" if "batch" in over else said["scope"] if said["scope"] == "batch" else "group"
    parameters = inspect.signature(estimator).parameters
    if "length" in parameters and composed.recipe.rollout.turns > 1:
        said.pop("algorithm", None)  # the trainer counts trained tokens, the formula all tokens of a response
    if "mask" not in parameters:
        said["credit"] = "outcome"
    if choices.weight is not None:
        said.pop("credit", None)
    said |= {"suppresses": "unscored"} if "scored" in reads else {}
    said |= {"trajectories": "step-wise"} if "trajectory" in reads else {}
    return said | {"masked": "yes"}


def _column(name: str) -> Callable[..., Tensor]:
    """What a policy computes for some rows, in place of its forward pass."""

    def values(policy: Any, _laid: object, rows: Tensor, *, temperature: float) -> Tensor:  # noqa: ANN401, ARG001
        column: Tensor = policy.columns[name]
        return column[rows]

    return values


def _models(composed: Composition, batch: Batch, rows: list[int], reads: frozenset[str]) -> Any:  # noqa: ANN401
    """Policies of known log-probs: the one before the update, and the reference."""
    old = {"logprob": _laid(batch, "old_logprob", rows), "pi_squared": _laid(batch, "pi_squared", rows)}
    policy = SimpleNamespace(padding=0, columns=old)
    reference = SimpleNamespace(padding=0, columns={"logprob": _laid(batch, "ref_logprob", rows)})
    shown = reference if "ref_logprob" in reads else None
    return composed.target.call(f"{TRAIN}.model.policy.Models", policy, policy, shown)


def _critic(batch: Batch, rows: list[int]) -> SimpleNamespace:
    return SimpleNamespace(predict=lambda _laid_rows, size: _laid(batch, "value", rows))  # noqa: ARG005 - its signature


def _laid(batch: Batch, column: str, rows: list[int]) -> Tensor:
    """A column as a model computes it for laid out rows: float32, and 0 after a response."""
    values = torch.where(batch.valid, getattr(batch, column), 0.0).float()
    return values[torch.tensor(rows), : int(batch.length.max())]


def _loss(composed: Composition) -> Boundary:
    recipe, selection = composed.recipe, composed.selection
    mode, kl, parameters = recipe.loss.aggregation, recipe.kl, inspect.signature(selection.loss).parameters
    numbers = _numbers(selection.loss)
    coefficient = kl.loss if kl is not None else 0.0
    reads = {"logprob", "advantage", "mask", *({"old_logprob", "turn"} & set(parameters))}
    reads |= ({"ref_logprob"} if coefficient else set()) | ({"group"} if mode == "prompt-mean" else set())
    cut: frozenset[Axis] = frozenset({"micro_batches", "ranks"} if selection.additive else ())

    def compute(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        own = composed.with_numbers("loss", _changed(numbers, settings))
        return {"loss": _in_parts(own, batch, settings, coefficient)}

    settings = dict(numbers) | ({"length": recipe.loss.length} if recipe.loss.length else {})
    settings |= {"kl_loss_coef": coefficient} if coefficient else {}
    counts = bool(selection.claims[1].get("mean")) and mode != "token-sum" and recipe.loss.chosen is None
    return Boundary(
        path=f"{ROWS} -> {LOSS}",
        stage="policy-loss",
        steps=(replace(batch_step(compute, frozenset(reads), cut), explain=_as_raised),),
        outputs=by_name({"loss": Output("", "", "loss", over="live" if counts else "")}),
        settings={SETTING: settings or {"aggregation": mode}},
        claims=_claimed("loss", composed, _said_of_loss(composed, numbers)),
    )


def _in_parts(composed: Composition, batch: Batch, settings: Settings, coefficient: float) -> Tensor:
    """The loss of a mini-batch, summed over its parts and over ranks."""
    target, selection, every = composed.target, composed.selection, torch.arange(batch.rows)
    laid = SimpleNamespace(
        prompt_length=batch.prompt_length,
        length=batch.length,
        rollout=SimpleNamespace(group=batch.group, turn=batch.turn),
    )
    columns = {n: getattr(batch, n) for n in ("mask", "advantage", "old_logprob", "ref_logprob")}
    made = target.call(
        f"{TRAIN}.update.training_batch.TrainingBatch", laid=laid, **columns, chosen=_chosen(composed, batch)
    )
    whole = selection.aggregation(composed.recipe, batch.mask, batch.group)
    rows = target.call(ROWS, made, every, lazy=selection.lazy)
    ranks, parts = int(settings.get("ranks") or 1), int(settings.get("micro_batches") or 1)
    size = max(1, -(-len(rows) // (ranks * parts)))
    total = (batch.logprob * 0).nan_to_num().sum()
    for rank in range(ranks):
        process = target.call(f"{TRAIN}.run.distributed.Ranks", rank, ranks)
        for part in process.own_parts(rows, size=size, lengths=laid.prompt_length + laid.length):
            if len(part):
                more = {"selection": selection, "aggregation": whole.of_rows(part), "coefficient": coefficient}
                total = total + target.call(LOSS, batch.logprob[part], made, part, **more)
    return total


def _chosen(composed: Composition, batch: Batch) -> Tensor | None:
    """The tokens that the loss treats differently, as ``minibatch_gradient.choose_tokens`` selects them."""
    choose = composed.selection.choose_tokens
    if choose is None:
        return None
    columns = (batch.logprob.detach(), batch.advantage)
    covariance = composed.target.call("rl_sentinel.signal.covariance.covariances", *columns, mask=batch.mask)
    chosen: Tensor = choose(covariance, mask=batch.mask, generator=torch.Generator().manual_seed(0))
    return chosen


def _said_of_loss(composed: Composition, numbers: Settings) -> dict[str, str]:
    recipe, kl = composed.recipe, composed.recipe.kl
    said = _settable(composed.selection.claims[1], numbers)
    if said and recipe.loss.aggregation != "token-sum":  # its formula divides by all rows, the library by live ones
        said |= {"aggregation": recipe.loss.aggregation, "rows": "live"}
    said |= {"denominator": "given"} if composed.selection.additive else {}
    if recipe.loss.chosen is not None:  # a share of the tokens, perhaps drawn: another batch has others
        said = {key: text for key, text in said.items() if key not in ("algorithm", "mean")}
        choose = composed.target.find(f"rl_sentinel.signal.covariance.{recipe.loss.chosen.name}")
        said |= {"row-order": "yes"} if "generator" in inspect.signature(choose).parameters else {}
    if kl is not None and kl.loss:
        said |= {"kl": kl.estimator} if kl.estimator in _KLS else {}
        said = said if kl.estimator in _KLS else {key: text for key, text in said.items() if key != "algorithm"}
    return said


def _settable(claims: Mapping[str, str], numbers: Settings) -> dict[str, str]:
    """Claims without those on settings that the function lacks, and on values that the trainer never passes."""
    kept = {key: text for key, text in claims.items() if key not in _UNHEARD}
    return {key: text for key, text in kept.items() if not key.startswith("knob:") or key.partition(":")[2] in numbers}


def _numbers(function: Callable[..., object]) -> dict[str, Any]:
    """The numbers that a recipe sets of a function, or leaves at their defaults."""
    parameters = inspect.signature(function).parameters.items()
    return {n: p.default for n, p in parameters if isinstance(p.default, bool | int | float) and n not in COLUMNS}


def _changed(numbers: Settings, settings: Settings) -> Settings:
    return {name: settings[name] for name, number in numbers.items() if settings[name] != number}


def _claimed(table: str, composed: Composition, texts: Mapping[str, str]) -> Claims:
    name = composed.tables[table]["name"]
    try:
        return claims_from_text(texts, f"{table} {name}: CLAIMS")
    except ValueError as error:
        raise SentinelError(f"{table} {name!r} has wrong CLAIMS ({error}): fix them in its module") from error
