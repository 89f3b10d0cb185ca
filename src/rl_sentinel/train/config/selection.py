"""Names of a recipe become functions of the signal library, with their numbers filled in and tried once."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

import rl_sentinel.signal.advantage
import rl_sentinel.signal.loss
import rl_sentinel.train.rollout.engine
import rl_sentinel.train.rollout.environment
from rl_sentinel.core.errors import InputError, SentinelError
from rl_sentinel.core.modules import defined
from rl_sentinel.signal import covariance
from rl_sentinel.signal import kl as divergences
from rl_sentinel.signal.correction import bounds, rejection, weights
from rl_sentinel.signal.minibatches import aggregation
from rl_sentinel.signal.normalisation import Normalisation
from rl_sentinel.signal.path import Choices, is_outcome, loss_ready
from rl_sentinel.signal.ready import Ready
from rl_sentinel.signal.reduce import Aggregation
from rl_sentinel.train.config.dry_run import Rehearsed, rehearsed
from rl_sentinel.train.config.name_resolution import filled, found_in, function_of, read_by
from rl_sentinel.train.config.recipe import Named, Normalising, Recipe, Reward, nearest
from rl_sentinel.train.config.user_code import called, got, imported, is_loss, is_ready, is_tensor, looked_at, placed
from rl_sentinel.train.config.validation import require_limits
from rl_sentinel.train.rollout.checked_environment import rehearse, world
from rl_sentinel.train.rollout.engine.http import addressed
from rl_sentinel.train.rollout.interfaces import Engine, Environment

#: What the path hands to an estimator, and the trainer to a loss; every other parameter is a number of the recipe.
COLUMNS = frozenset({"reward", "group", "live", "length", "mask", "token_reward", "logprob", "value", "old_logprob"})
COLUMNS |= {"reward_baseline", "reward_parts", "pi_squared", "turn"}
OF_LOSS = frozenset({"logprob", "old_logprob", "advantage", "mask", "turn", "chosen", "aggregation"})
OF_CORRECTION = frozenset({"logprob", "rollout_logprob", "mask", "weight"})
OF_CHOICE = frozenset({"covariance", "mask", "generator"})
OF_KL = frozenset({"logprob", "ref_logprob", "rollout_logprob", "mask"})


@dataclass(frozen=True, slots=True)
class Selection:
    """What a recipe chose: the stages of the path, the loss, and the environment.

    ``lazy`` is True where rows without an advantage add nothing to the gradient, so that they need not be computed;
    ``compares`` where the policy that sampled is compared with the one before the update. ``reads`` has the columns
    that the estimator and the loss want, by name; ``chosen`` says which tokens the loss treats apart, by their
    covariance. ``path`` is the whole path.
    """

    choices: Choices
    loss: Callable[..., Tensor]
    environment: Environment
    lazy: bool
    compares: bool
    engine: Callable[..., Engine]
    reads: frozenset[str] = frozenset()
    chosen: Callable[..., Tensor] | None = None
    path: Callable[..., Ready] = loss_ready

    def aggregation(self, recipe: Recipe, mask: Tensor, group: Tensor) -> Aggregation:
        """The recipe's aggregation with the denominator of a whole mini-batch."""
        return aggregation(recipe.loss.aggregation, mask=mask, length=recipe.loss.length, group=group)


def selected(recipe: Recipe) -> Selection:
    """Everything that a recipe names, found and tried on four rows; nothing is loaded yet.

    Raises:
        SentinelError: one line on a name or number that is unknown, missing or impossible, or on two choices that do
            not go together.
    """
    estimator = found_in(
        "estimator", recipe.estimator, rl_sentinel.signal.advantage, "advantages", COLUMNS, fits=is_tensor
    )
    loss = found_in("loss", recipe.loss, rl_sentinel.signal.loss, "loss", OF_LOSS, fits=is_loss)
    environment = _environment(recipe.environment)
    if recipe.rollout.engine not in (engines := defined(rl_sentinel.train.rollout.engine, "engine")):
        raise SentinelError(
            f"rollout.engine {recipe.rollout.engine!r} is unknown{nearest(recipe.rollout.engine, list(engines))}"
        )
    with placed("reward", set(Reward.model_fields)):
        choices = _choices(recipe, estimator)
    chosen = None if recipe.loss.chosen is None else _choice(recipe.loss.chosen)
    reads, parts = read_by(estimator) | read_by(loss), getattr(environment, "parts", ())
    path = _path(recipe.path) if recipe.path else loss_ready
    _require_pairs(recipe, choices)
    require_limits(recipe, claims=_claims(estimator))
    _require_columns(recipe, reads, parts)
    rehearse(environment, recipe)
    lazy, split = _tried(recipe, choices, loss, chosen, parts=len(parts))
    largest = recipe.update.prompts * recipe.rollout.responses * (1 if recipe.rollout.merged else recipe.rollout.turns)
    if not split and recipe.update.rows < largest:
        raise SentinelError(
            f"update.rows is {recipe.update.rows}, expected at least {largest} with loss {recipe.loss.name}: it "
            "looks at its mini-batch as a whole"
        )
    priced = recipe.kl is not None and recipe.kl.loss > 0
    return Selection(
        choices=choices,
        loss=loss,
        environment=environment,
        lazy=lazy and not priced,
        compares=choices.weight is not None or bool(choices.rejections),
        engine=engines[recipe.rollout.engine],
        reads=reads,
        chosen=chosen,
        path=path,
    )


def _tried(
    recipe: Recipe, choices: Choices, loss: Callable[..., Tensor], chosen: Callable[..., Tensor] | None, *, parts: int
) -> Rehearsed:
    """The rehearsal; what it refuses of the recipe's own numbers is told as such."""
    try:
        with placed("loss", {"length"}):
            return rehearsed(recipe, choices, loss, chosen, parts=parts)
    except InputError as error:
        if not str(error).startswith("reward["):
            raise
        way = "lower reward.scale, reward.bias or kl.reward"
        raise SentinelError(f"reward makes of rewards 0 and 1 what is no number ({error}): {way}") from error


def _choices(recipe: Recipe, estimator: Callable[..., Tensor]) -> Choices:
    """The stages of the path."""
    correction = recipe.correction
    return Choices(
        estimator=estimator,
        rejections=tuple(function_of("correction.reject", n, rejection, OF_CORRECTION) for n in correction.reject),
        weight=function_of("correction.weight", Named(name=correction.weight), weights, OF_CORRECTION)
        if correction.weight
        else None,
        bounds=tuple(function_of("correction.bounds", n, bounds, OF_CORRECTION) for n in correction.bounds),
        kl=None
        if recipe.kl is None
        else function_of("kl.estimator", Named(name=recipe.kl.estimator), divergences, OF_KL),
        kl_coefficient=0.0 if recipe.kl is None else recipe.kl.reward,
        normalisation=None if recipe.reward.normalisation is None else _normalisation(recipe.reward.normalisation),
        **recipe.reward.model_dump(exclude={"normalisation"}),
    )


def _choice(named: Named) -> Callable[..., Tensor]:
    """Called with a generator, whether it draws or not."""
    found = function_of("loss.chosen", named, covariance, OF_CHOICE, reads="covariance")
    if "generator" in read_by(found):
        return found

    def undrawn(values: Tensor, *, mask: Tensor, generator: object) -> Tensor:  # noqa: ARG001 - asked with it
        return found(values, mask=mask)  # type: ignore[no-any-return]  # found by name

    return undrawn


def _normalisation(told: Normalising) -> Normalisation:
    with placed("reward.normalisation", set(Normalising.model_fields)):
        return Normalisation(**told.model_dump())


def _path(place: str) -> Callable[..., Ready]:
    """A path of one's own."""
    found = looked_at("path", place, imported("path", place), (), is_ready)
    try:
        inspect.signature(found).bind(None, by=None)
    except TypeError as error:
        raise SentinelError(
            f"path {place!r} cannot be called ({error}), expected (rollout, *, by): take that of signal.path.loss_ready"
        ) from error
    return found


def _claims(function: Callable[..., Tensor]) -> dict[str, str]:
    """What a function says of itself; nothing, for one of one's own that does not."""
    inner = inspect.unwrap(getattr(function, "func", function))
    found: dict[str, str] = getattr(inner, "__globals__", {}).get("CLAIMS", {})
    return found


def _require_pairs(recipe: Recipe, choices: Choices) -> None:
    """Refuse what does not go together."""
    kl, rollout, update = recipe.kl, recipe.rollout, recipe.update
    outcome = is_outcome(choices.estimator)
    if kl is not None and kl.reward and kl.loss:
        raise SentinelError(
            f"kl.reward is {kl.reward} and kl.loss is {kl.loss}, expected one of them 0: one KL is paid once"
        )
    if kl is not None and (kl.target is None) != (kl.horizon is None):
        raise SentinelError(
            "kl.target and kl.horizon go together, expected both or neither: they steer the coefficient"
        )
    if not outcome and rollout.turns > 1 and not rollout.merged:
        raise SentinelError(
            f"estimator {recipe.estimator.name} carries credit along one row, rollout.merged is false with "
            f"{rollout.turns} turns: merge the steps, or take an outcome estimator"
        )
    if rollout.staleness and choices.weight is None and not choices.rejections:
        raise SentinelError(
            f"rollout.staleness is {rollout.staleness}, expected a correction with it: name correction.weight or reject"
        )
    if bool(rollout.url) != (rollout.engine != "process"):
        raise SentinelError(
            f"rollout.url is {rollout.url!r} with engine {rollout.engine}: the address is of engine http or vllm"
        )
    if rollout.url:
        addressed(rollout.url)
    if update.prompts > rollout.prompts:
        raise SentinelError(f"update.prompts is {update.prompts}, expected at most rollout.prompts, {rollout.prompts}")
    if recipe.policy.hidden % (2 * recipe.policy.heads):
        raise SentinelError(f"policy.hidden is {recipe.policy.hidden}, expected a multiple of 2 x policy.heads")


def _require_columns(recipe: Recipe, reads: frozenset[str], parts: tuple[str, ...]) -> None:
    """Refuse what reads a column that the rest of the recipe does not lead to, and what leads to one unread."""
    estimator, rollout, chosen = recipe.estimator.name, recipe.rollout, recipe.loss.chosen
    if ("value" in reads) != (recipe.critic is not None):
        needs = "value" in reads
        way = "needs a critic: add [critic] with its rate" if needs else "reads no critic: leave [critic] out"
        raise SentinelError(f"estimator {estimator} {way}")
    if recipe.policy.load and recipe.critic is not None:
        raise SentinelError("critic is given with policy.load, expected none: it is made of a model from scratch")
    if ("chosen" in reads) != (chosen is not None):
        way = "treats no token apart: leave loss.chosen out"
        if chosen is None:
            way = 'treats tokens apart: say which, as loss.chosen = { name = "largest", share = 2e-4 }'
        raise SentinelError(f"loss {recipe.loss.name} {way}")
    if "reward_parts" in reads and not parts:
        raise SentinelError(
            f"estimator {estimator} weighs parts of the reward, environment {recipe.environment.name} has none: take "
            "one with Environment.parts, or another estimator"
        )
    if "reward_baseline" in reads and recipe.reward != Reward():
        raise SentinelError(
            f"reward is changed with estimator {estimator}, expected no [reward]: it is compared with that of a greedy "
            "response, which stays as the environment gave it"
        )
    if "turn" in reads and rollout.turns > 1 and not rollout.merged:
        raise SentinelError(
            f"turn is read along one row, rollout.merged is false with {rollout.turns} turns: merge the steps"
        )


def _environment(named: Named) -> Environment:
    """One of ours by its name, or a class of one's own."""
    known = defined(rl_sentinel.train.rollout.environment, "Environment")
    if ":" not in named.name and named.name not in known:
        raise SentinelError(f"environment.name {named.name!r} is unknown{nearest(named.name, list(known))}")
    if ":" not in named.name:
        return world(filled("environment", known[named.name], named.numbers, frozenset())(), named.name)
    kind = imported("environment.name", named.name)
    if not callable(kind):
        raise SentinelError(f"environment.name {named.name!r} is {got(kind)}, expected a class: name one")
    made = filled("environment", kind, named.numbers, frozenset())
    return world(called(f"environment.name {named.name!r}", made), named.name)
