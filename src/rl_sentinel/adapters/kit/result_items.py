"""Find which item of a result is the output, by trying items if names in the code do not show it."""

import json
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.layout_trial import accepts, domain_probe, outputs_on
from rl_sentinel.adapters.kit.number_trial import fits_formula
from rl_sentinel.adapters.kit.user_results import NamedOutput
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import COLUMNS, Batch, lazily
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.errors import Unbindable

#: The boundary that reads one item of the result.
OfItem = Callable[[int | str], Boundary]


def with_result_item(
    target: Target, first: Boundary, of_item: OfItem, items: Collection[int | str], word: str
) -> Boundary:
    """The boundary, changed to read another item of the result if the first item is not the output.

    Args:
        target: where the function is looked up.
        first: the boundary that reads the first item, or an item with a known name.
        of_item: the boundary that reads an item.
        items: the positions or keys of the result, as the code shows them.
        word: the word that names the output.

    Raises:
        Unbindable: if the first item may be the output, but only another item fits the algorithm; or if several keys
            have the word, and not exactly one of them is a total.
    """
    if not items:
        return first
    if not accepts(target, first):
        return _of_named_item(target, first, of_item, items, word)
    if first.claims.algorithm is None or fits_formula(target, first):
        return first
    for item in [x for x in items if x != 0]:
        other = of_item(item)
        if fits_formula(target, other) and not _is_no_output(target, other):
            if _is_no_output(target, first):
                return _with_note(other, item, word)
            known = next((x for x in items if of_item(x) == first), 0)
            choices = " or ".join(f"bind={json.dumps({'return': one})}" for one in (item, known))
            read = f"item {known!r}" if known else "the first item"
            raise Unbindable(
                f"{read} of the function's result does not fit the formula, "
                f"but item {item!r} does: state which item is the {word}, with {choices}"
            )
    return first


def _of_named_item(
    target: Target, first: Boundary, of_item: OfItem, items: Collection[int | str], word: str
) -> Boundary:
    """The boundary that reads the item which contains the output; the first boundary if no item contains it.

    Candidates are the keys with the word of the output, or else all other items. An item that fits the formula is
    chosen first, then a key with the word, then an item with the shape of the output.

    Raises:
        Unbindable: if several keys have the word, and not exactly one of them is a total.
    """
    keys = [x for x in items if isinstance(x, str) and word in x.rpartition(".")[2].lower()]
    named = [x for x in keys if "total" in x.lower()] or keys
    if len(named) > 1:
        raise Unbindable(
            f"the result of the function has {', '.join(named)}: state which item is the {word}, as in "
            f"bind={json.dumps({'return': named[-1]})}"
        )
    candidates: list[int | str] = [*named] or [x for x in items if x != 0]
    others = {item: of_item(item) for item in candidates}
    fitting = [item for item, other in others.items() if fits_formula(target, other)]
    shaped = [item for item, other in others.items() if isinstance(item, int) and accepts(target, other)]
    chosen: list[int | str] = [*fitting, *named, *shaped]
    return _with_note(others[chosen[0]], chosen[0], word) if chosen else first


def _with_note(boundary: Boundary, item: int | str, word: str) -> Boundary:
    note = f"the {word} was read from item {item!r} of the result; bind={json.dumps({'return': item})} states this"
    return replace(boundary, notes=(*boundary.notes, note))


def _is_no_output(target: Target, boundary: Boundary) -> bool:
    """Whether an item cannot be the output.

    A loss without a gradient cannot, nor an input, nor an item with one value for all responses of a prompt.
    """
    batch = lazily(domain_probe(boundary), torch.clone)
    leaves = [name for name in boundary.reads if COLUMNS[name]["role"] == "signal"]
    for name in leaves:
        getattr(batch, name).requires_grad_(True)  # noqa: FBT003 - torch's own signature
    ((name, value),) = outputs_on(target, boundary, batch).items()
    if name == "loss":
        return not value.requires_grad
    return _is_input(value.detach(), batch, boundary) or _is_equal_for_siblings(value.detach(), batch)


def _is_input(value: Tensor, batch: Batch, boundary: Boundary) -> bool:
    """Whether the item equals, at the trained tokens, a column that the function reads."""
    columns = (
        getattr(batch, name).detach().double() for name in boundary.reads if COLUMNS[name]["axes"] in ("B", "B T")
    )
    rows = (column if column.dim() == 2 else column.unsqueeze(1).expand_as(batch.mask) for column in columns)
    return any(torch.equal(value.double()[batch.mask], row[batch.mask]) for row in rows)


def _is_equal_for_siblings(value: Tensor, batch: Batch) -> bool:
    """Whether, for each prompt, all trained tokens have one value, as for a group's mean."""
    group = batch.group.unsqueeze(1).expand_as(batch.mask)[batch.mask]
    trained = value[batch.mask]
    return all(bool((trained[group == g] == trained[group == g][0]).all()) for g in set(group.tolist()))


def with_time_first(target: Target, boundary: Boundary) -> Boundary:
    """The boundary, changed to read ``[T, B]`` if the function returns this layout.

    This matters if a function in ``bind`` computes an argument.
    """
    (output,) = boundary.outputs.values()
    if output.axes != "B T" or accepts(target, boundary):
        return boundary
    exchanged = _with_form(boundary, time_first=True)
    return exchanged if accepts(target, exchanged) else boundary


def without_lists(target: Target, boundary: Boundary) -> Boundary:
    """Read a tuple as several outputs, not as a list with one tensor per response, if the function accepts this.

    The lengths in the probe batch distinguish the two cases; the lengths in a small case may not.
    """
    usual = _with_form(boundary, lists=False)
    return usual if accepts(target, usual) else boundary


def _with_form(boundary: Boundary, **changed: Any) -> Boundary:  # noqa: ANN401 - a field of the form
    """The boundary with a changed form of its output; unchanged if the form is not a :class:`NamedOutput`."""
    ((name, output),) = boundary.outputs.items()
    if not isinstance(output.form, NamedOutput):
        return boundary
    return replace(boundary, outputs={name: replace(output, form=replace(output.form, **changed))})
