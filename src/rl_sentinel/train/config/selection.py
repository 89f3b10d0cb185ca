"""Resolve the names of a recipe to an estimator, a loss, an environment and an engine, and validate them together."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

import rl_sentinel.signal.advantage
import rl_sentinel.signal.loss
import rl_sentinel.train.rollout.engine
import rl_sentinel.train.rollout.environment
from rl_sentinel.core.errors import InputError, SentinelError
from rl_sentinel.core.modules import defined
from rl_sentinel.core.phrasing import nearest
from rl_sentinel.signal import covariance
from rl_sentinel.signal import kl as kl_estimators
from rl_sentinel.signal.choices import Choices, is_outcome
from rl_sentinel.signal.correction import bounds, rejection, weights
from rl_sentinel.signal.minibatches import aggregation
from rl_sentinel.signal.normalization import Normalization
from rl_sentinel.signal.path import loss_ready
from rl_sentinel.signal.ready import Ready
from rl_sentinel.signal.reduce import Aggregation
from rl_sentinel.train.config.dry_run import LossForm, dry_run
from rl_sentinel.train.config.name_resolution import (
    bind_parameters,
    required_parameters,
    resolve_in_module,
    resolve_in_package,
)
from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.config.settings import Component, NormalizationSettings, RewardSettings
from rl_sentinel.train.config.stated_claims import stated_claims
from rl_sentinel.train.config.user_code import (
    as_loss,
    call_user_code,
    check_advantages,
    check_loss,
    check_ready,
    describe,
    import_object,
    table_in_errors,
    wrap_function,
)
from rl_sentinel.train.config.validation import require_weights, validate_recipe
from rl_sentinel.train.rollout.checked_environment import try_environment, wrap_environment
from rl_sentinel.train.rollout.interfaces import Engine, Environment

#: Columns that the trainer passes to a function; the recipe may set the other parameters.
ESTIMATOR_COLUMNS = frozenset({"reward", "group", "live", "length", "mask", "token_reward", "logprob", "value"})
ESTIMATOR_COLUMNS |= {"old_logprob", "reward_baseline", "reward_parts", "pi_squared", "turn"}
LOSS_COLUMNS = frozenset({"logprob", "old_logprob", "advantage", "mask", "turn", "chosen", "aggregation"})
CORRECTION_COLUMNS = frozenset({"logprob", "rollout_logprob", "mask", "weight"})
TOKEN_CHOICE_COLUMNS = frozenset({"covariance", "mask", "generator"})
KL_COLUMNS = frozenset({"logprob", "ref_logprob", "rollout_logprob", "mask"})


@dataclass(frozen=True, slots=True)
class Selection:
    """The components of a recipe, with their parameters bound.

    Attributes:
        choices: the functions for the stages of the signal's path.
        loss: the loss.
        environment: the environment for training.
        lazy: whether rows with advantage 0 have gradient 0, so that they can be skipped; never with a user's loss,
            which may have terms that a dry run misses.
        needs_old_logprob: whether a correction compares the sampling policy with the policy before the update.
        engine: builds the rollout engine.
        reads: the required parameters of the estimator and the loss.
        choose_tokens: selects the tokens that the loss treats differently; None if it treats all tokens alike.
        path: the signal's path, or the user's function instead of it.
        held_out: the environment for evaluations; None without evaluations.
        additive: whether the gradients of parts of a mini-batch add up.
        claims: the ``CLAIMS`` of the estimator's and of the loss's module, empty for user code without them.
    """

    choices: Choices
    loss: Callable[..., Tensor]
    environment: Environment
    lazy: bool
    needs_old_logprob: bool
    engine: Callable[..., Engine]
    reads: frozenset[str] = frozenset()
    choose_tokens: Callable[..., Tensor] | None = None
    path: Callable[..., Ready] = loss_ready
    held_out: Environment | None = None
    additive: bool = True
    claims: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {})

    def aggregation(self, recipe: Recipe, mask: Tensor, group: Tensor) -> Aggregation:
        """The loss's aggregation, with the denominator of a whole mini-batch."""
        return aggregation(recipe.loss.aggregation, mask=mask, length=recipe.loss.length, group=group)


def select_components(recipe: Recipe, environment: Environment | None = None) -> Selection:
    """Resolve the components of a recipe, and validate them together; no model is loaded.

    Args:
        recipe: the recipe.
        environment: used for training instead of the recipe's environment, without a trial.

    Raises:
        SentinelError: one line on a name or parameter that is unknown, missing or impossible, or on two settings that
            contradict each other.
    """
    estimator = resolve_in_package(
        "estimator",
        recipe.estimator,
        rl_sentinel.signal.advantage,
        "advantages",
        ESTIMATOR_COLUMNS,
        check=check_advantages,
    )
    loss = resolve_in_package("loss", recipe.loss, rl_sentinel.signal.loss, "loss", LOSS_COLUMNS, check=check_loss)
    loss = as_loss(recipe.loss.name, loss)
    of_recipe = environment is None
    environment = _environment(recipe.environment) if environment is None else environment
    engine = _engine(recipe.rollout.engine)
    with table_in_errors("reward", set(RewardSettings.model_fields)):
        choices = _path_choices(recipe, estimator)
    choose_tokens = None if recipe.loss.chosen is None else _token_choice(recipe.loss.chosen)
    reads = required_parameters(estimator) | required_parameters(loss)
    parts = getattr(environment, "parts", ())
    path = _path(recipe.path) if recipe.path else loss_ready
    claims = stated_claims("estimator", recipe.estimator.name, estimator)
    validate_recipe(recipe, claims=claims, outcome=is_outcome(estimator), reads=reads, parts=parts)
    if "reward_parts" in reads:
        require_weights(recipe, getattr(environment, "weights", ()))
    if of_recipe:
        try_environment(environment, recipe)
    form = _loss_form(recipe, choices, loss, choose_tokens, parts=len(parts))
    if not form.additive:
        _require_whole_mini_batches(recipe)
    return Selection(
        choices=choices,
        loss=loss,
        environment=environment,
        lazy=form.lazy and ":" not in recipe.loss.name and not (recipe.kl is not None and recipe.kl.loss > 0),
        needs_old_logprob=choices.weight is not None or bool(choices.rejections),
        engine=engine,
        reads=reads,
        choose_tokens=choose_tokens,
        path=path,
        held_out=_held_out(recipe, environment),
        additive=form.additive,
        claims=(claims, stated_claims("loss", recipe.loss.name, loss)),
    )


def _engine(name: str) -> Callable[..., Engine]:
    engines = defined(rl_sentinel.train.rollout.engine, "build_engine")
    if name not in engines:
        raise SentinelError(f"rollout.engine {name!r} is unknown, {nearest(name, list(engines))}")
    return engines[name]  # type: ignore[no-any-return]  # found by a package walk


def require_one_process(selection: Selection, recipe: Recipe, processes: int) -> None:
    """Require a single process for a loss whose parts do not add up.

    Raises:
        SentinelError: if several processes would each compute a part of a mini-batch.
    """
    if processes > 1 and not selection.additive:
        raise SentinelError(
            f"{processes} processes share each mini-batch, expected one with loss {recipe.loss.name}: this loss needs "
            "all rows of a mini-batch at once, so train with one process"
        )


def _require_whole_mini_batches(recipe: Recipe) -> None:
    """Require that no mini-batch is computed in parts, for a loss whose parts do not add up."""
    update, rollout = recipe.update, recipe.rollout
    reason = "this loss needs all rows of a mini-batch at once"
    if update.tokens is not None:
        fix = f"{reason}, so remove update.tokens"
        raise SentinelError(f"update.tokens is {update.tokens}, expected no value with loss {recipe.loss.name}: {fix}")
    largest = update.prompts * rollout.responses * (1 if rollout.merged else rollout.turns)
    if update.rows < largest:
        raise SentinelError(
            f"update.rows is {update.rows}, expected at least {largest} with loss {recipe.loss.name}: {reason}"
        )


def _loss_form(
    recipe: Recipe,
    choices: Choices,
    loss: Callable[..., Tensor],
    choose_tokens: Callable[..., Tensor] | None,
    *,
    parts: int,
) -> LossForm:
    """Do the dry run; its rewards are 0 and 1, so a reward that is not finite comes from the recipe."""
    try:
        with table_in_errors("loss", {"length"}):
            return dry_run(recipe, choices, loss, choose_tokens, parts=parts)
    except InputError as error:
        own = ":" in recipe.estimator.name
        if own and str(error).startswith(("advantage ", "advantage[")):
            returned = f"estimator {recipe.estimator.name!r} returned wrong advantages"
            raise SentinelError(f"{returned} ({error}): fix the function") from error
        if not str(error).startswith("reward["):
            raise
        fix = "lower reward.scale, reward.bias or kl.reward"
        wrong = str(error).partition(", expected")[0]
        raise SentinelError(f"reward shaping turns rewards 0 and 1 into invalid numbers ({wrong}): {fix}") from error


def _path_choices(recipe: Recipe, estimator: Callable[..., Tensor]) -> Choices:
    """The recipe's functions for the stages of ``signal.path``."""
    correction, kl = recipe.correction, recipe.kl
    normalization = recipe.reward.normalization
    return Choices(
        estimator=estimator,
        rejections=tuple(
            resolve_in_module("correction.reject", c, rejection, CORRECTION_COLUMNS) for c in correction.reject
        ),
        weight=_weights(correction.weight) if correction.weight else None,
        bounds=tuple(resolve_in_module("correction.bounds", c, bounds, CORRECTION_COLUMNS) for c in correction.bounds),
        kl=None
        if kl is None
        else resolve_in_module("kl.estimator", Component(name=kl.estimator), kl_estimators, KL_COLUMNS),
        kl_coefficient=0.0 if kl is None else kl.reward,
        normalization=None if normalization is None else _normalization(normalization),
        **recipe.reward.model_dump(exclude={"normalization"}, exclude_none=True),
    )


def _weights(name: str) -> Callable[..., Tensor]:
    """A function of ``signal.correction.weights`` that returns weights, and not log-ratios."""
    component = Component(name=name)
    return resolve_in_module("correction.weight", component, weights, CORRECTION_COLUMNS, named="*_weights")


def _token_choice(component: Component) -> Callable[..., Tensor]:
    """A function of ``signal.covariance`` that accepts a generator, whether it draws or not."""
    function = resolve_in_module("loss.chosen", component, covariance, TOKEN_CHOICE_COLUMNS)
    if "generator" in required_parameters(function):
        return function

    def without_generator(values: Tensor, *, mask: Tensor, generator: object) -> Tensor:  # noqa: ARG001 - one signature for all
        return function(values, mask=mask)  # type: ignore[no-any-return]  # resolved by name

    return without_generator


def _normalization(settings: NormalizationSettings) -> Normalization:
    with table_in_errors("reward.normalization", set(NormalizationSettings.model_fields)):
        return Normalization(**settings.model_dump())


def _path(reference: str) -> Callable[..., Ready]:
    """A user's path, which replaces ``signal.path.loss_ready``."""
    path = wrap_function("path", reference, import_object("path", reference), (), check_ready)
    try:
        inspect.signature(path).bind(None, by=None)
    except TypeError as error:
        raise SentinelError(
            f"path {reference!r} cannot be called as path(rollout, by=choices) ({error}): "
            "give it the signature of signal.path.loss_ready"
        ) from error
    return path


def _held_out(recipe: Recipe, environment: Environment) -> Environment | None:
    """The recipe's environment with the keys of ``evaluation.environment``; None without evaluations."""
    if recipe.evaluation is None:
        return None
    changed = recipe.evaluation.environment
    if hasattr(environment, "size") and not any(recipe.environment.parameters.get(k) != v for k, v in changed.items()):
        value = f"has the training data ({', '.join(changed)})" if changed else "is missing"
        verb = "change" if changed else "set"
        raise SentinelError(
            f"evaluation.environment {value}, expected held-out data: {verb} a key that selects the data, such as "
            "evaluation.environment.file or evaluation.environment.split"
        )
    try:
        return _environment(Component.model_validate({**recipe.environment.model_dump(), **changed}))
    except SentinelError as error:
        raise SentinelError(f"evaluation.{error}" if str(error).startswith("environment.") else str(error)) from error


def _environment(component: Component) -> Environment:
    """A shipped environment, by the name of its module, or an instance of a user's class."""
    environments, name = defined(rl_sentinel.train.rollout.environment, "Environment"), component.name
    if ":" not in name and name not in environments:
        own = ", or file.py:Class" if "." in name else ""
        raise SentinelError(f"environment.name {name!r} is unknown, {nearest(name, list(environments))}{own}")
    if ":" not in name:
        build = bind_parameters("environment", environments[name], component.parameters, frozenset())
        return wrap_environment(build(), name)
    kind = import_object("environment.name", name)
    if not callable(kind):
        raise SentinelError(
            f"environment.name {name!r} is {describe(kind)}, expected a class: set environment.name to file.py:Class "
            "or pkg.module:Class"
        )
    build = bind_parameters("environment", kind, component.parameters, frozenset())
    return wrap_environment(call_user_code(f"environment.name {name!r}", build), name)
