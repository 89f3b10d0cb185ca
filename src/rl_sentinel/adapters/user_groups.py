"""Find the number of responses per prompt that a user's function expects, if no argument states it."""

from collections.abc import Callable, Mapping
from functools import partial

import torch

from rl_sentinel.adapters.kit.function_arguments import Arguments
from rl_sentinel.adapters.kit.layout_trial import accepts, all_codecs, choose_binding, outputs_on
from rl_sentinel.adapters.kit.number_fit import with_fitted_numbers
from rl_sentinel.adapters.kit.number_trial import fits_formula
from rl_sentinel.adapters.kit.numbers import GROUP_SIZE, STRIDED_GROUP_SIZE
from rl_sentinel.adapters.kit.numbers_in_code import Literals
from rl_sentinel.adapters.kit.prompt_groups import FixedGroups
from rl_sentinel.adapters.kit.roles import role_of
from rl_sentinel.adapters.kit.user_arguments import probe_batch
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import take_rows
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Scalar
from rl_sentinel.core.claims import value_of
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import Unbindable
from rl_sentinel.core.phrasing import shortened

#: Name of the number of responses per prompt -> whether the responses of a prompt are strided: as many rows apart as
#: there are prompts.
GROUP_SIZES = {GROUP_SIZE: False, STRIDED_GROUP_SIZE: True}

#: A larger integer in the code is not tried as the number of responses of a prompt.
_MOST_RESPONSES = 16


def with_group_size(
    target: Target,
    of_size: Callable[..., Boundary],
    groups: FixedGroups | None,
    arguments: Arguments,
    constants: Literals,
) -> tuple[Callable[[Mapping[str, Codec]], Boundary], Boundary, tuple[str, ...]]:
    """Three values: how to build the boundary, the boundary with the axes that the function accepts, and notes.

    If no argument says which responses belong to a prompt, an integer in the code may be their number: a number without
    which the function fails, or does not compute its formula.
    """
    build = partial(of_size, groups)
    boundary, notes = choose_binding(target, build, arguments)
    accepted = accepts(target, boundary)
    over_time = value_of(boundary.claims.credit) == "temporal"
    if groups or over_time or not _may_hold_group_size(arguments):
        return build, boundary, notes
    if accepted and _computes(target, boundary, constants) and _accepts_pairs(target, boundary):
        return build, boundary, notes
    for number in [n for n in constants.sizes if n <= _MOST_RESPONSES]:
        build_other = partial(of_size, FixedGroups(number))
        other, found = choose_binding(target, build_other, arguments)
        if accepts(target, other) and not (accepted and not _computes(target, other, constants)):
            note = (
                f"every prompt has {number} adjacent responses, a number that the code holds; "
                f'state it with numbers={{"{GROUP_SIZE}": {number}}}'
            )
            return build_other, other, (*found, note)
    return build, boundary, notes


def _accepts_pairs(target: Target, boundary: Boundary) -> bool:
    """Whether the function also runs with two responses per prompt; the probe batch has three."""
    pairs = take_rows(probe_batch(), torch.tensor([0, 1, 3, 4], device="cpu"))
    try:
        outputs_on(target, boundary, pairs if boundary.domain is None else boundary.domain(pairs))
    except Exception:  # noqa: BLE001 - any exception means that it does not
        return False
    return True


def _computes(target: Target, boundary: Boundary, constants: Literals) -> bool:
    """Whether the function computes the formula that it claims, with numbers that its code holds."""
    return fits_formula(target, with_fitted_numbers(target, boundary, constants))


def stated_groups(
    stated: Mapping[str, Scalar], outside: Mapping[str, float], arguments: Arguments
) -> FixedGroups | None:
    """Groups with the number of responses per prompt that the user states, or that the function holds; else None.

    A number that the function holds counts only if the function has rewards, and no argument identifies the prompt.

    Raises:
        Unbindable: if the stated number is not a whole number from 2 to ``_MOST_RESPONSES``.
    """
    for name, size in stated.items():
        if name not in GROUP_SIZES:
            continue
        if not isinstance(size, int | float) or size not in range(2, _MOST_RESPONSES + 1):
            raise Unbindable(
                f"{name} is {shortened(size)}, expected a whole number from 2 to {_MOST_RESPONSES}: responses per "
                "prompt"
            )
        return FixedGroups(int(size), GROUP_SIZES[name])
    held = [(role_of(name), x) for name, x in outside.items() if role_of(name) in GROUP_SIZES and x > 1]
    return FixedGroups(int(held[0][1]), GROUP_SIZES[held[0][0]]) if held and _may_hold_group_size(arguments) else None


def _may_hold_group_size(arguments: Arguments) -> bool:
    """Whether a function has rewards, but no argument that identifies the prompt."""
    flat = list(all_codecs(arguments.codecs.values()))
    return any("reward" in c.columns for c in flat) and not any("group" in c.columns | c.shapes for c in flat)
