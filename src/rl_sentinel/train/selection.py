"""Names of a recipe become functions of the signal library, with their numbers filled in and tried once."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

import rl_sentinel.signal.advantage
import rl_sentinel.signal.loss
import rl_sentinel.train.engine
import rl_sentinel.train.environment
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.modules import defined
from rl_sentinel.signal import kl as divergences
from rl_sentinel.signal.correction import bounds, rejection, weights
from rl_sentinel.signal.minibatches import aggregation
from rl_sentinel.signal.normalisation import Normalisation
from rl_sentinel.signal.path import Choices, is_outcome, loss_ready
from rl_sentinel.signal.ready import Ready
from rl_sentinel.signal.reduce import Aggregation
from rl_sentinel.signal.rollout import Rollout
from rl_sentinel.train.recipe import Named, Normalising, Recipe, nearest
from rl_sentinel.train.sampling import Engine
from rl_sentinel.train.task import Environment

#: What the path hands to an estimator, and the trainer to a loss; every other parameter is a number of the recipe.
COLUMNS = frozenset({"reward", "group", "live", "length", "mask", "token_reward", "logprob", "value", "old_logprob"})
OF_LOSS = frozenset({"logprob", "old_logprob", "advantage", "mask", "aggregation"})
OF_CORRECTION = frozenset({"logprob", "rollout_logprob", "mask", "weight"})


@dataclass(frozen=True, slots=True)
class Selection:
    """What a recipe chose: the stages of the path, the loss, and the environment.

    ``lazy`` is True where rows without an advantage add nothing to the gradient, so that they need not be computed;
    ``compares`` where the policy that sampled is compared with the one before the update. ``path`` is the whole path.
    """

    choices: Choices
    loss: Callable[..., Tensor]
    environment: Environment
    lazy: bool
    compares: bool
    engine: Callable[..., Engine]
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
    estimator = _found("estimator", recipe.estimator, rl_sentinel.signal.advantage, "advantages", COLUMNS)
    loss = _found("loss", recipe.loss, rl_sentinel.signal.loss, "loss", OF_LOSS)
    environment = _environment(recipe.environment)
    correction = recipe.correction
    if recipe.rollout.engine not in (engines := defined(rl_sentinel.train.engine, "engine")):
        raise SentinelError(
            f"rollout.engine {recipe.rollout.engine!r} is unknown{nearest(recipe.rollout.engine, list(engines))}"
        )
    choices = Choices(
        estimator=estimator,
        rejections=tuple(_of("correction.reject", n, rejection, OF_CORRECTION) for n in correction.reject),
        weight=_of("correction.weight", Named(name=correction.weight), weights, OF_CORRECTION)
        if correction.weight
        else None,
        bounds=tuple(_of("correction.bounds", n, bounds, OF_CORRECTION) for n in correction.bounds),
        kl=None if recipe.kl is None else _of("kl.estimator", Named(name=recipe.kl.estimator), divergences, _KL),
        kl_coefficient=0.0 if recipe.kl is None else recipe.kl.reward,
        normalisation=None if recipe.reward.normalisation is None else _normalisation(recipe.reward.normalisation),
        **recipe.reward.model_dump(exclude={"normalisation"}),
    )
    _require_pairs(recipe, choices)
    lazy, split = _rehearsed(recipe, choices, loss)
    largest = recipe.update.prompts * recipe.rollout.responses * (1 if recipe.rollout.merged else recipe.rollout.turns)
    if not split and recipe.update.rows < largest:
        raise SentinelError(
            f"update.rows is {recipe.update.rows}, expected at least {largest} with loss {recipe.loss.name}: it "
            "looks at its mini-batch as a whole"
        )
    priced = recipe.kl is not None and recipe.kl.loss > 0
    path = imported("path", recipe.path) if recipe.path else loss_ready
    return Selection(
        choices=choices,
        loss=loss,
        environment=environment,
        lazy=lazy and not priced,
        compares=choices.weight is not None or bool(choices.rejections),
        engine=engines[recipe.rollout.engine],
        path=path,
    )


_KL = frozenset({"logprob", "ref_logprob", "rollout_logprob", "mask"})


def _normalisation(told: Normalising) -> Normalisation:
    return Normalisation(**told.model_dump())


def _require_pairs(recipe: Recipe, choices: Choices) -> None:
    """Refuse what does not go together."""
    kl, rollout, update = recipe.kl, recipe.rollout, recipe.update
    claims = choices.estimator.func.__globals__.get("CLAIMS", {})  # type: ignore[attr-defined]  # numbers filled in
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
    _require_critic(recipe, choices)
    if claims.get("baseline") == "relative" and rollout.responses == 1:
        raise SentinelError(
            f"rollout.responses is 1, expected 2 or more with estimator {recipe.estimator.name}: "
            "a lone response has nobody to be compared with"
        )
    if rollout.staleness and choices.weight is None and not choices.rejections:
        raise SentinelError(
            f"rollout.staleness is {rollout.staleness}, expected a correction with it: name correction.weight or reject"
        )
    if bool(rollout.url) != (rollout.engine == "http"):
        raise SentinelError(
            f"rollout.url is {rollout.url!r} with engine {rollout.engine}: the address is of engine http"
        )
    if update.prompts > rollout.prompts:
        raise SentinelError(f"update.prompts is {update.prompts}, expected at most rollout.prompts, {rollout.prompts}")
    if recipe.policy.hidden % (2 * recipe.policy.heads):
        raise SentinelError(f"policy.hidden is {recipe.policy.hidden}, expected a multiple of 2 x policy.heads")


def _require_critic(recipe: Recipe, choices: Choices) -> None:
    """A critic where the estimator reads values, and nowhere else."""
    values = "value" in inspect.signature(choices.estimator).parameters
    if values != (recipe.critic is not None):
        way = "needs a critic: add [critic] with its rate" if values else "reads no critic: leave [critic] out"
        raise SentinelError(f"estimator {recipe.estimator.name} {way}")
    if recipe.policy.load and recipe.critic is not None:
        raise SentinelError("critic is given with policy.load, expected none: it is made of a model from scratch")


def _rehearsed(recipe: Recipe, choices: Choices, loss: Callable[..., Tensor]) -> tuple[bool, bool]:
    """Carry four rows through the path and the loss: what is impossible is refused here.

    Returns:
        Whether rows without an advantage add nothing to the gradient, and whether parts of a mini-batch add up.
    """
    mask = torch.tensor([[True, True, True], [True, False, False], [True, True, False], [True, True, True]])
    apart = torch.tensor([[0.01, -0.3, 0.2], [0.1, 0.0, 0.0], [-0.02, 0.4, 0.0], [-0.2, 0.05, 0.3]])
    old = torch.full((4, 3), -1.0)
    every = {"old_logprob": old, "rollout_logprob": old.clone(), "ref_logprob": old + apart, "value": apart}
    reward, group = torch.tensor([1.0, 0.0, 1.0, 0.0]), torch.tensor([0, 0, 1, 1])
    ready = loss_ready(Rollout(reward=reward, group=group, mask=mask, **every), by=replace(choices))
    wanted = set(inspect.signature(loss).parameters)

    def gradient(advantage: Tensor, rows: Tensor) -> Tensor:
        now = (old + apart).requires_grad_()
        told = {"old_logprob": old[rows], "advantage": advantage[rows], "mask": mask[rows]}
        by = aggregation(recipe.loss.aggregation, mask=mask, length=recipe.loss.length, group=group).of_rows(rows)
        found = loss(now[rows], **{k: v for k, v in told.items() if k in wanted}, aggregation=by)
        return torch.autograd.grad(found, now, allow_unused=True)[0] if found.requires_grad else torch.zeros_like(now)

    advantage = torch.where(mask, ready.token_advantage() + 0.5, 0.0)
    first, second, every_row = torch.tensor([0, 1]), torch.tensor([2, 3]), torch.arange(4)
    half = torch.where(torch.tensor([[True], [True], [False], [False]]), advantage, 0.0)
    lazy = torch.allclose(gradient(half, every_row), gradient(half, first))
    split = torch.allclose(gradient(advantage, every_row), gradient(advantage, first) + gradient(advantage, second))
    return lazy, split


def _found(table: str, named: Named, package: ModuleType, attribute: str, given: frozenset[str]) -> Callable[..., Any]:
    known = defined(package, attribute)
    if ":" not in named.name and named.name not in known:
        raise SentinelError(f"{table}.name {named.name!r} is unknown{nearest(named.name, list(known))}")
    function = imported(f"{table}.name", named.name) if ":" in named.name else known[named.name]
    return filled(table, function, named.numbers, given)


def _of(table: str, named: Named, module: ModuleType, given: frozenset[str]) -> Callable[..., Any]:
    known = {n: f for n, f in vars(module).items() if inspect.isfunction(f) and f.__module__ == module.__name__}
    known = {n: f for n, f in known.items() if not n.startswith("_")}
    if named.name not in known:
        raise SentinelError(f"{table} {named.name!r} is unknown{nearest(named.name, list(known))}")
    return filled(table, known[named.name], named.numbers, given)


def _environment(named: Named) -> Environment:
    """One of ours by its name, or a class of one's own."""
    known = defined(rl_sentinel.train.environment, "Environment")
    if ":" not in named.name and named.name not in known:
        raise SentinelError(f"environment.name {named.name!r} is unknown{nearest(named.name, list(known))}")
    kind = imported("environment.name", named.name) if ":" in named.name else known[named.name]
    return filled("environment", kind, named.numbers, frozenset())()  # type: ignore[no-any-return]  # found by name


def imported(key: str, place: str) -> Any:  # noqa: ANN401 - whatever stands there
    """What ``pkg.module:name`` or ``file.py:name`` names.

    Raises:
        SentinelError: if it cannot be imported; what its code raises when imported is told in its words.

    Example:
        >>> imported("path", "rl_sentinel.signal.path:loss_ready").__name__
        'loss_ready'
    """
    module, _, name = place.rpartition(":")
    try:
        if not module.endswith(".py"):
            return getattr(importlib.import_module(module), name)
        spec = importlib.util.spec_from_file_location(Path(module).stem, module)
        if spec is None or spec.loader is None:
            raise ImportError(f"no module at {module}")  # noqa: TRY301 - told with the others
        found = sys.modules.setdefault(spec.name, importlib.util.module_from_spec(spec))
        if not hasattr(found, name):
            spec.loader.exec_module(found)
        return getattr(found, name)
    except (ImportError, AttributeError, ValueError, OSError, SyntaxError, NameError) as error:
        way = "name pkg.module:name or file.py:name"
        raise SentinelError(f"{key} {place!r} cannot be imported ({error}): {way}") from error


def filled(
    table: str, function: Callable[..., Any], numbers: Mapping[str, Any], given: frozenset[str]
) -> Callable[..., Any]:
    """A function with a recipe's numbers filled in; ``given`` are the parameters that are no numbers.

    Raises:
        SentinelError: if a number is unknown, missing, or of another kind than the function says.

    Example:
        >>> def scaled(reward: float, *, factor: float) -> float:
        ...     return reward * factor
        >>> filled("estimator", scaled, {"factor": 2.0}, frozenset({"reward"}))(3.0)
        6.0
    """
    parameters = {n: p for n, p in inspect.signature(function).parameters.items() if n not in given}
    for name, value in numbers.items():
        if name not in parameters:
            way = nearest(name, list(parameters)) if parameters else ", expected no numbers"
            raise SentinelError(f"{table}.{name} is unknown{way}")
        _require_kind(f"{table}.{name}", value, parameters[name].annotation)
    lacking = [n for n, p in parameters.items() if n not in numbers and p.default is inspect.Parameter.empty]
    if lacking:
        kind = getattr(parameters[lacking[0]].annotation, "__name__", str(parameters[lacking[0]].annotation))
        if "Tensor" in kind or "Float" in kind:
            raise SentinelError(f"{table} wants {lacking[0]}, which this trainer does not make: choose another")
        raise SentinelError(f"{table}.{lacking[0]} is missing, expected a {kind}: it has no default")
    return partial(function, **numbers)


def _require_kind(key: str, value: object, kind: object) -> None:
    fits: Sequence[type] = {bool: (bool,), int: (int,), float: (float, int), str: (str,)}.get(kind, ())  # type: ignore[call-overload]
    if fits and (not isinstance(value, tuple(fits)) or (isinstance(value, bool) and kind is not bool)):
        raise SentinelError(f"{key} is {value!r}, expected a {kind.__name__}")  # type: ignore[attr-defined]  # of the four
