"""Build the boundary of a user's function (``module:name`` and its stage) from its parameter names."""

import inspect
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from rl_sentinel.adapters.framework import Framework
from rl_sentinel.adapters.installation import Installation
from rl_sentinel.adapters.kit.argument_messages import lookup_hint
from rl_sentinel.adapters.kit.bind_text import WORDS
from rl_sentinel.adapters.kit.evident_columns import notes_on
from rl_sentinel.adapters.kit.function_arguments import Arguments
from rl_sentinel.adapters.kit.ids_as_keys import with_ids_as_keys
from rl_sentinel.adapters.kit.layout_fit import layout_of_formula
from rl_sentinel.adapters.kit.layout_trial import (
    has_gradient,
    rebind,
)
from rl_sentinel.adapters.kit.logit_losses import with_logit_layout
from rl_sentinel.adapters.kit.missing_arguments import refuse_missing
from rl_sentinel.adapters.kit.model_losses import with_entropy_of_model, with_left_padded_prompts
from rl_sentinel.adapters.kit.number_fit import with_fitted_numbers
from rl_sentinel.adapters.kit.numbers import DISCOUNTS, OPTIONAL_PARTS, visible_numbers
from rl_sentinel.adapters.kit.numbers_in_code import named_numbers, set_numbers
from rl_sentinel.adapters.kit.parameter_uses import is_read
from rl_sentinel.adapters.kit.prompt_groups import FixedGroups
from rl_sentinel.adapters.kit.refused_layouts import (
    flat_columns,
    refuse_one_per_response,
    refuse_shared_columns,
    refuse_without_reward,
)
from rl_sentinel.adapters.kit.result_items import with_result_item, with_time_first, without_lists
from rl_sentinel.adapters.kit.returned_names import returned_items, returned_names, with_item, with_returns
from rl_sentinel.adapters.kit.roles import parameters_of
from rl_sentinel.adapters.kit.unstated_choices import with_rows_that_train, with_unstated_choice
from rl_sentinel.adapters.kit.user_arguments import arguments_of
from rl_sentinel.adapters.kit.weighted_kl import with_kl_of_gradient
from rl_sentinel.adapters.kit.written_results import with_written_result, written_argument
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.user_boundary import DEFINED, STAGES, user_boundary
from rl_sentinel.adapters.user_branches import with_branches
from rl_sentinel.adapters.user_claims import claims_from_options
from rl_sentinel.adapters.user_groups import stated_groups, with_group_size
from rl_sentinel.adapters.user_names import evident_bindings, unknown_names
from rl_sentinel.adapters.user_numbers import KnownNumbers, known_numbers
from rl_sentinel.adapters.user_ratio import notes_on_ratio, with_stated_ratio
from rl_sentinel.adapters.user_reference import without_unread_reference
from rl_sentinel.core.boundary import Boundary, Stage, Unbound
from rl_sentinel.core.case import Scalar
from rl_sentinel.core.claims import Claims, value_of
from rl_sentinel.core.claims import claims as said
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import SentinelError, Unbindable
from rl_sentinel.core.phrasing import shortened
from rl_sentinel.formulas.temporal import TEMPORAL

#: Hint for a stage that is not a single function.
_ADAPTED = "metrics, batches, configurations and steps are audited by an adapter (CONTRIBUTING.md, Add a framework)"


def stage_claims(stage: str, claims: tuple[str, ...], algorithm: str = "") -> Claims:
    """The claims that a user states about a function of this stage, and those that its algorithm implies.

    Raises:
        SentinelError: if the stage is unknown, or a claim or the algorithm is wrong.
    """
    if stage not in STAGES:
        hint = _ADAPTED if stage in get_args(Stage) else "choose what your function computes"
        given = f"is {stage!r}" if stage else "is missing"
        message = f"--stage {given}, expected one of {', '.join(STAGES)}: {hint}"
        raise SentinelError(message)
    return claims_from_options(STAGES[stage].stage, algorithm, claims)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A user's statements about a function: stage, claims, parameter bindings, and numbers of its formula."""

    stage: str
    claims: Claims = field(default_factory=Claims)
    bind: Mapping[str, Any] = field(default_factory=dict)
    numbers: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def stated_axes(self) -> list[str]:
        """The parameters, and keys such as ``batch.rewards``, whose axes the bindings state."""
        bound = self.bind.items()
        return [path for path, binding in bound if not isinstance(binding, str) or "[" in binding or binding in WORDS]

    @property
    def output(self) -> int | str | None:
        """The position or key of the output in the result, which ``bind`` states under the name ``return``.

        Raises:
            Unbindable: if the value is neither a position nor a key.
        """
        stated = self.bind.get("return")
        if stated is not None and (not isinstance(stated, int | str) or isinstance(stated, bool)):
            raise Unbindable(
                f'bind[return] is {shortened(stated)}, expected a position or a key, as in bind={{"return": 1}}'
            )
        return stated


def describe(target: Target, path: str, statement: Statement) -> list[Boundary | Unbound]:
    """Build the boundary of a user's function, for the command line and for ``rl_sentinel.check``.

    The list has another boundary for each layout in which the code takes another branch. If the function cannot be
    bound, the list has one :class:`Unbound` with the reason.

    Args:
        target: where the function is looked up.
        path: dotted path of the function.
        statement: what the user states about it.
    """

    def of_layout(bind: Mapping[str, str]) -> Boundary | Unbound:
        return _described(target, path, replace(statement, bind={**statement.bind, **bind}))

    return with_branches(target, _described(target, path, statement), statement.bind, of_layout)


def _described(target: Target, path: str, statement: Statement) -> Boundary | Unbound:
    """Build the boundary of a user's function.

    Axes that are not stated are found by calls on a small batch (``kit.layout_trial``) and reported in ``notes``.

    Args:
        target: where the function is looked up.
        path: dotted path of the function.
        statement: what the user states about it.
    """
    kind = STAGES[statement.stage]
    try:
        function = _function(target, path)
        arguments = _arguments_of(function, kind.stage, statement)
        evident = _unstated(evident_bindings(function, statement.claims, arguments), statement.bind)
        if evident:
            whole = _described(target, path, replace(statement, bind={**statement.bind, **evident}))
            return replace(whole, notes=(*whole.notes, *notes_on(evident))) if isinstance(whole, Boundary) else whole
        flat = _settle_layouts(function, statement, arguments)
    except Unbindable as why:
        return Unbound(path, kind.stage, f"{why}{lookup_hint(target, path, why)}")
    name = path.rpartition(".")[2]
    if arguments.unknown:
        return Unbound(path, kind.stage, unknown_names(name, function, arguments))
    numbers = known_numbers(function, arguments, statement.numbers, statement.bind)
    places = returned_names(function) if kind.stage == "advantage" else {}
    written = written_argument(function, kind.word, arguments.codecs, arguments.written)

    def of_item(item: int | str | None) -> Boundary:
        def of_size(groups: FixedGroups | None, codecs: Mapping[str, Codec]) -> Boundary:
            built = user_boundary(path, statement.stage, statement.claims, numbers.settings, groups, codecs)
            return with_written_result(with_item(built, item), written)

        def fitted(some: Arguments) -> Boundary:
            return _fitted(target, of_size, some, numbers, statement, flat)

        return with_logit_layout(target, arguments, statement.bind, fitted)

    try:
        item = statement.output if statement.output is not None else places.get("advantage")
        others = returned_items(function) if item is None and not written else []
        chosen = with_result_item(target, of_item(item), of_item, others, kind.word)
        refuse_missing(target, chosen, parameters_of(function), arguments.codecs)
    except Unbindable as why:
        return Unbound(path, kind.stage, str(why))
    chosen = with_returns(target, chosen, places)
    if statement.stage in DEFINED:
        chosen = _with_gradient(target, chosen)
    chosen = with_unstated_choice(target, with_stated_ratio(chosen), arguments.codecs, statement.stated_axes)
    return with_rows_that_train(target, chosen)


def _with_gradient(target: Target, boundary: Boundary) -> Boundary:
    """The boundary of log-probs or an entropy, with the claim of a gradient, or a note that it has no gradient."""
    if has_gradient(target, boundary):
        return replace(boundary, claims=boundary.claims | said("its result has a gradient", gradient="own"))
    return replace(
        boundary,
        notes=(*boundary.notes, "the result of the function has no gradient, as for an old policy or a metric"),
    )


def _function(target: Target, path: str) -> Callable[..., Any]:
    """Find the function at a path.

    Raises:
        Unbindable: if the object at the path is not callable.
    """
    function: object = target.find(path)
    if not callable(function):
        raise Unbindable(f"{path} is of type {type(function).__name__}, expected a function")
    return function


def _fitted(  # noqa: PLR0913 - the parts of a function
    target: Target,
    of_size: Callable[[FixedGroups | None, Mapping[str, Codec]], Boundary],
    arguments: Arguments,
    numbers: KnownNumbers,
    statement: Statement,
    flat: Collection[str],
) -> Boundary:
    """The boundary with the axes that the function accepts, and the numbers with which it computes its formula.

    Raises:
        Unbindable: if the user's statements do not fit together.
    """
    groups = stated_groups(statement.numbers, numbers.held, arguments)
    build, boundary, notes = with_group_size(target, of_size, groups, arguments, numbers.literals)
    arguments, of_keys = with_ids_as_keys(target, boundary, arguments)
    if of_keys:
        build, boundary, notes = with_group_size(target, of_size, groups, arguments, numbers.literals)
        notes = (*of_keys, *notes)
    boundary = without_unread_reference(target, with_time_first(target, boundary), arguments)
    notes = (*notes, *([f"{', '.join(flat)} were passed as the tokens of all responses, [N]"] if flat else []))
    boundary = replace(boundary, notes=(*boundary.notes, *notes, *numbers.notes, *_not_compared(boundary)))
    boundary = with_entropy_of_model(target, boundary)
    chosen = with_fitted_numbers(target, boundary, numbers.literals)
    chosen = with_kl_of_gradient(target, chosen)
    return without_lists(target, layout_of_formula(target, build, arguments, chosen, numbers.literals))


def _unstated(evident: Mapping[str, str], bind: Mapping[str, Any]) -> dict[str, str]:
    """The bindings of arguments that the user does not bind, directly or by a binding of the object that has them."""
    return {path: what for path, what in evident.items() if path not in bind and path.partition(".")[0] not in bind}


def _settle_layouts(function: Callable[..., Any], statement: Statement, arguments: Arguments) -> dict[str, str]:
    """Choose layouts that the names of the arguments leave open; return the columns of a flat mini-batch.

    Raises:
        Unbindable: if an argument cannot be passed, or its meaning is not clear.
    """
    flat = flat_columns(arguments.codecs, arguments.stage)
    unread = [name for name in arguments.codecs if not is_read(function, name)]
    arguments.codecs = with_left_padded_prompts(rebind(arguments.codecs, flat), unread)
    refuse_one_per_response(arguments.codecs, arguments.stage, statement.claims)
    refuse_shared_columns(arguments.codecs, statement.bind)
    if not arguments.unknown:
        refuse_without_reward(arguments.codecs, arguments.stage, statement.claims)
    return flat


def _arguments_of(function: Callable[..., Any], stage: Stage, statement: Statement) -> Arguments:
    """The arguments of a function, including those that it reads only if a weight is not 0."""
    bind = {name: x for name, x in statement.bind.items() if name != "return"}
    algorithm = value_of(statement.claims.algorithm)
    over_time = algorithm in (None, *TEMPORAL) or value_of(statement.claims.credit) == "temporal"
    # A discount of another algorithm keeps its default: with a smaller one, the function computes something else.
    kept = {*statement.numbers, *(() if over_time else DISCOUNTS)}
    if not inspect.isroutine(function):
        return arguments_of(function, stage, bind, kept)
    held = named_numbers(function)
    shown = visible_numbers(held, OPTIONAL_PARTS.values(), statement.numbers)
    set_numbers(function, {}, shown)
    try:
        return arguments_of(function, stage, bind, kept)
    finally:
        set_numbers(function, {}, {name: held[name] for name in shown})


def _not_compared(boundary: Boundary) -> tuple[str, ...]:
    """Notes on parts of the function that no law compares with a formula."""
    notes = []
    if boundary.stage == "advantage" and boundary.claims.algorithm and "ref_logprob" in boundary.reads:
        notes.append("the size of the KL in its rewards is not checked: check the function of the KL at stage kl")
    if boundary.stage == "reward" and not boundary.claims.algorithm and "ref_logprob" in boundary.reads:
        notes.append('its KL is not compared with a formula: state the estimator, as in claims={"kl": "k1"}')
    notes += notes_on_ratio(boundary)
    if boundary.stage == "kl" and boundary.claims.algorithm and boundary.claims.gradient is None:
        notes.append('its gradient is not compared: if a loss uses this KL, state claims={"gradient": "own"}')
    return tuple(notes)


def _boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    path, stage = os.environ["RL_SENTINEL_FUNCTION"], os.environ["RL_SENTINEL_STAGE"]
    bound = json.loads(os.environ.get("RL_SENTINEL_BIND") or "{}")
    claims = tuple(os.environ.get("RL_SENTINEL_CLAIMS", "").splitlines())
    claimed = stage_claims(stage, claims, bound.get("algorithm", ""))
    module, _, name = path.partition(":")
    statement = Statement(stage=stage, claims=claimed, bind=bound.get("bind", {}), numbers=bound.get("numbers", {}))
    yield from describe(target, f"{module}.{name}", statement)


def _installation(_version: str) -> Installation:
    return Installation(note="and what your code imports; run this in your project's folder", folders=("", "src"))


FRAMEWORK = Framework(name="own", package="", boundaries=_boundaries, installation=_installation)
