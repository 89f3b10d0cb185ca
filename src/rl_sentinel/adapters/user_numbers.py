"""Find the numbers of a user's function, and their names in formulas; replace numbers that would hide a fault."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rl_sentinel.adapters.kit.function_arguments import Arguments
from rl_sentinel.adapters.kit.layout_trial import all_codecs
from rl_sentinel.adapters.kit.model_losses import LEFT_PADDED, entropy_weights
from rl_sentinel.adapters.kit.numbers import OPTIONAL_PARTS, numbers_by_name, visible_numbers
from rl_sentinel.adapters.kit.numbers_in_code import Literals, literals, named_numbers, set_numbers
from rl_sentinel.adapters.kit.parameter_names import ROLES
from rl_sentinel.adapters.kit.parameter_uses import is_read
from rl_sentinel.adapters.kit.roles import parameters_of, role_of
from rl_sentinel.adapters.kit.sequence_model import PolicyModel
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.user_groups import GROUP_SIZES
from rl_sentinel.core.case import Scalar


@dataclass(frozen=True, slots=True)
class KnownNumbers:
    """The numbers of a function.

    Attributes:
        held: name in the code -> number, for numbers that are not parameters.
        settings: numbers by their names in formulas.
        literals: numbers in the code without a known name.
        notes: notes on changed numbers, and on numbers that the function does not read.
    """

    held: Mapping[str, float]
    settings: Mapping[str, Scalar]
    literals: Literals
    notes: tuple[str, ...]


def known_numbers(
    function: Callable[..., Any],
    arguments: Arguments,
    stated: Mapping[str, Scalar],
    bind: Mapping[str, Any],
) -> KnownNumbers:
    """Find the numbers of a function; in this process, change numbers with values that would hide their effect.

    Args:
        function: the function.
        arguments: its arguments; in these, the weight of an entropy of a model becomes 0.
        stated: the numbers that the user states.
        bind: what the user binds.
    """
    defaults = {name: p.default for name, p in parameters_of(function).items() if p.default is not p.empty}
    passed = {name: x for name, x in defaults.items() if name not in arguments.codecs}
    passed |= {name: codec.value for name, codec in arguments.codecs.items() if isinstance(codec, Constant)}
    accumulation = set_numbers(function, passed, dict.fromkeys(ROLES["accumulation"].names, 1))
    codecs = list(all_codecs(arguments.codecs.values()))
    columns = frozenset[str]().union(*(codec.columns for codec in codecs))
    modeled = any(codec.modeled for codec in codecs)
    unread = _weights_of_unread_columns(function)
    held = named_numbers(function, passed, unread)
    visible = visible_numbers(held, columns, stated, of_logits="logits" in columns or modeled)
    without = entropy_weights({**passed, **held}, {**stated, **bind}) if modeled else {}
    changed = set_numbers(function, passed, {**visible, **without})
    parameters = {name: x for name, x in without.items() if name in passed}
    arguments.pass_numbers(parameters)
    held = named_numbers(function, passed, unread)
    numbers = {name: x for name, x in stated.items() if name not in GROUP_SIZES}
    padded = any(isinstance(codec, PolicyModel) and codec.left_padded for codec in codecs)
    notes = (
        *(f"{name} is set to 1 in the check: one step holds the whole batch" for name in accumulation),
        *([LEFT_PADDED] if padded else []),
        *(_note(name, visible.get(name.lower())) for name in (*changed, *parameters)),
        *(f"the function does not read its parameter {name}" for name in arguments.ignored),
    )
    settings = {**numbers_by_name(held, arguments.stage), **arguments.numbers, **numbers}
    return KnownNumbers(held, settings, literals(function, passed), notes)


def _weights_of_unread_columns(function: Callable[..., Any]) -> list[str]:
    """The roles of weights whose columns are parameters that the function does not read."""
    unread = {role_of(name) for name in parameters_of(function) if not is_read(function, name)}
    return [role for role, column in OPTIONAL_PARTS.items() if column in unread and role.endswith("_weight")]


def _note(name: str, visible: float | None) -> str:
    """The note on a number that the check has changed, so that its effect is visible or the entropy weight is 0."""
    if visible is None:
        why = "the entropy of a model is not compared; check the function that computes it from logits separately"
        return f"{name} is set to 0 in the check: {why}"
    return f"{name} is set to {visible:g} in the check, so that its effect shows"
