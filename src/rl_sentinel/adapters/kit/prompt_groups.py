"""Conditions on batches that depend on how a user's function finds the responses of a prompt."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from rl_sentinel.adapters.kit.requirements import (
    group_sizes,
    groups_are_equal,
    prompts_are_contiguous,
    prompts_repeat_in_order,
)
from rl_sentinel.adapters.kit.user_layouts import Domains, Grouped, GroupSize, PromptList
from rl_sentinel.adapters.kit.wrapped_forms import of_one_prompt
from rl_sentinel.core.batch import Batch, take_rows, with_columns
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.codec import Codec, Inputs


def prompts_have_siblings(inputs: Inputs) -> str:
    """The reason why a trainer could not sample the batch: a prompt has only one response; empty if it could.

    A trainer that groups by position samples several responses per prompt.
    """
    return "" if min(group_sizes(inputs), default=2) > 1 else "a prompt has only one response"


#: Preconditions of functions that take a list of the responses of each prompt.
BY_PROMPT = (prompts_are_contiguous, prompts_have_siblings)

#: Preconditions of functions that group by position, with the same number of responses for every prompt.
BY_POSITION = (*BY_PROMPT, groups_are_equal)


def strided_prompts_have_siblings(inputs: Inputs) -> str:
    """The reason why the groups are too small: the batch has as many prompts as rows; empty if it has more rows."""
    return "" if inputs.batch.rows > len(_by_prompt(inputs.batch)) else "a prompt has only one response"


#: Preconditions of functions that group by position, if row ``i`` belongs to prompt ``i % G`` of ``G`` prompts.
BY_STRIDE = (prompts_repeat_in_order, strided_prompts_have_siblings)


def is_one_prompt(inputs: Inputs) -> str:
    """The reason why a batch does not fit a function that is called once per prompt; empty if it has one prompt."""
    return "" if len(group_sizes(inputs)) <= 1 else "the batch has several prompts"


def one_prompt(batch: Batch) -> Batch:
    """Give all rows the same prompt; the batch is unchanged if it has only one prompt."""
    return with_columns(batch, group=torch.zeros_like(batch.group)) if len(set(batch.group.tolist())) > 1 else batch


#: Preconditions of functions that are called once per prompt.
BY_ONE_PROMPT = (is_one_prompt, prompts_have_siblings)


@dataclass(frozen=True, slots=True)
class GroupsOf:
    """A precondition: every prompt has ``size`` responses."""

    size: int

    def __call__(self, inputs: Inputs) -> str:
        """The reason why the batch does not fit: a prompt has another number of responses; empty if it fits."""
        sizes = {len(members) for members in _by_prompt(inputs.batch)}
        return "" if sizes <= {self.size} else f"a prompt does not have {self.size} responses"


def adjacent_groups(batch: Batch) -> Batch:
    """Put the rows of each prompt together, and drop prompts with one response, unless all prompts have one.

    A batch is unchanged if its prompts are contiguous and have several responses each.
    """
    inputs = Inputs(batch)
    if not any(violated(inputs) for violated in BY_PROMPT):
        return batch
    return take_rows(batch, torch.tensor([row for members in _with_siblings(batch) for row in members]))


def equal_groups(batch: Batch) -> Batch:
    """Put the rows of each prompt together, and cut all prompts to the same size; such a batch is unchanged.

    Prompts with one response are dropped first, unless all prompts have one.
    """
    inputs = Inputs(batch)
    if not prompts_are_contiguous(inputs) and not groups_are_equal(inputs):
        return batch
    return take_rows(batch, torch.tensor([row for members in _cut(batch) for row in members]))


def strided_groups(batch: Batch) -> Batch:
    """Cut all prompts to the same number of rows, and let row ``i`` belong to prompt ``i % G``.

    Prompts with one response are dropped first, unless all prompts have one. A batch that already has this form, with
    several responses per prompt, is unchanged.
    """
    if not any(violated(Inputs(batch)) for violated in BY_STRIDE):
        return batch
    return take_rows(batch, torch.tensor([row for turn in zip(*_cut(batch), strict=True) for row in turn]))


def _cut(batch: Batch) -> list[list[int]]:
    """Like :func:`_with_siblings`, but with the same number of rows for each prompt."""
    prompts = _with_siblings(batch)
    return [members[: min(map(len, prompts))] for members in prompts]


def _by_prompt(batch: Batch) -> list[list[int]]:
    """The rows of each prompt; prompts are in the order of their first rows."""
    rows: dict[int, list[int]] = {}
    for row, label in enumerate(batch.group.tolist()):
        rows.setdefault(label, []).append(row)
    return list(rows.values())


def _with_siblings(batch: Batch) -> list[list[int]]:
    """The rows of each prompt with several rows, or of every prompt if no prompt has several."""
    prompts = _by_prompt(batch)
    return [members for members in prompts if len(members) > 1] or prompts


@dataclass(frozen=True, slots=True)
class FixedGroups:
    """Give every prompt ``size`` rows, for functions in which the number of responses per prompt is fixed.

    The rows of a prompt are adjacent or, with ``strided``, as many rows apart as there are prompts. Rows are repeated
    or left out; a batch that already has this form is unchanged.
    """

    size: int
    strided: bool = False

    def __call__(self, batch: Batch) -> Batch:
        """The batch with groups of this size."""
        inputs = Inputs(batch)
        misplaced = (prompts_repeat_in_order if self.strided else prompts_are_contiguous)(inputs)
        if not misplaced and not GroupsOf(self.size)(inputs):
            return batch
        prompts = [[members[n % len(members)] for n in range(self.size)] for members in _by_prompt(batch)]
        ordered = zip(*prompts, strict=True) if self.strided else prompts
        filled = take_rows(batch, torch.tensor([row for rows in ordered for row in rows]))
        return with_columns(filled, trajectory=torch.arange(filled.rows))  # a repeated row is another response


def grouping(
    codecs: Sequence[Codec], fixed: FixedGroups | None
) -> tuple[tuple[Callable[[Batch], Batch], ...], tuple[Callable[[Inputs], str], ...]]:
    """The domains and the preconditions of a function, which depend on how it finds the responses of a prompt.

    Args:
        codecs: codecs of its columns.
        fixed: the groups of a function in which the number of responses per prompt is fixed.
    """
    if fixed is not None:
        return (fixed,), (*(BY_STRIDE if fixed.strided else BY_POSITION), GroupsOf(fixed.size))
    if any(isinstance(codec, GroupSize) and codec.strided for codec in codecs):
        return (strided_groups,), BY_STRIDE
    forms = [(c, getattr(c, "form", None)) for c in codecs]
    grouped = [
        form for codec, form in forms if "group" in codec.shapes or isinstance(form, Grouped) or of_one_prompt(form)
    ]
    if not grouped:
        return (), ()
    if all(of_one_prompt(form) for form in grouped):
        return (one_prompt,), BY_ONE_PROMPT
    if all(isinstance(form, PromptList) for form in grouped):
        return (adjacent_groups,), BY_PROMPT
    return (equal_groups,), BY_POSITION


def fixed_groups(boundary: Boundary) -> FixedGroups | None:
    """The fixed groups of a boundary; None if its function takes any number of responses per prompt."""
    parts = boundary.domain.parts if isinstance(boundary.domain, Domains) else ()
    return next((part for part in parts if isinstance(part, FixedGroups)), None)


def with_strided_groups(boundary: Boundary) -> Boundary | None:
    """The boundary for batches in which responses of a prompt are G rows apart, where G is the number of prompts.

    None if the function does not group adjacent responses by their number.
    """
    parts = boundary.domain.parts if isinstance(boundary.domain, Domains) else ()
    strided = tuple(_strided(part) for part in parts)
    if strided == parts:
        return None
    sizes = [violated for violated in boundary.requires if isinstance(violated, GroupsOf)]
    return replace(boundary, domain=Domains(strided), requires=(*BY_STRIDE, *sizes))


def _strided(domain: Callable[[Batch], Batch]) -> Callable[[Batch], Batch]:
    """The domain; if it makes the responses of a prompt adjacent, the domain that makes them strided instead."""
    if isinstance(domain, FixedGroups):
        return FixedGroups(domain.size, strided=True)
    return strided_groups if domain is equal_groups else domain
