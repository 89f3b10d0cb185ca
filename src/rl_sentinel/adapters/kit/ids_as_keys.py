"""Pass prompt ids as a list of numbers if a function uses them as dict keys; tensor elements do not work there."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.codecs import PromptIds
from rl_sentinel.adapters.kit.function_arguments import Arguments
from rl_sentinel.adapters.kit.layout_trial import domain_probe, outputs_on, rebind
from rl_sentinel.adapters.kit.refused_layouts import codec_paths
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.codec import Codec


def with_ids_as_keys(target: Target, boundary: Boundary, arguments: Arguments) -> tuple[Arguments, tuple[str, ...]]:
    """Pass prompt ids as a list of numbers if the function uses them as dict keys; return the arguments and notes.

    Two elements of a tensor are different keys of a dict, even if they are equal: a function that uses them as keys
    treats every response as a separate prompt. The function uses ids as keys if a tensor of the ids gives the same
    result as a list of distinct ids, and a list of the ids gives another result.

    Args:
        target: where the function is looked up.
        boundary: its boundary, with the layouts that it accepts.
        arguments: its arguments.
    """
    codecs = boundary.steps[0].arguments
    ids = {path for path, codec in codec_paths(codecs) if codec == PromptIds("tensor")} & arguments.open_axes.keys()
    if not ids or not _are_keys(target, boundary, rebind(codecs, dict.fromkeys(ids, _LISTED))):
        return arguments, ()
    as_list = rebind(arguments.codecs, dict.fromkeys(ids, _LISTED))
    open_axes = {path: column for path, column in arguments.open_axes.items() if path not in ids}
    notes = (
        f"the function uses {path} as keys of a dict, and equal elements of a tensor are different keys: each response "
        f'would be its own prompt. {path} was passed as a list instead; state this with bind={{"{path}": "{_LISTED}"}}'
        for path in sorted(ids)
    )
    return replace(arguments, codecs=as_list, open_axes=open_axes), tuple(notes)


#: Ids of prompts as a list of numbers.
_LISTED = "group[list]"


def _are_keys(target: Target, boundary: Boundary, as_list: Mapping[str, Codec]) -> bool:
    """Whether the function treats equal ids as one prompt only if they are in a list."""
    listed = replace(boundary, steps=(replace(boundary.steps[0], arguments=as_list), *boundary.steps[1:]))
    batch = domain_probe(boundary)
    distinct = with_columns(batch, group=torch.arange(batch.rows, device=batch.group.device))

    def outputs(one: Boundary, ids: Batch) -> list[Tensor]:
        return [*outputs_on(target, one, ids).values()]

    try:
        of_tensor, of_list, of_own = outputs(boundary, batch), outputs(listed, batch), outputs(listed, distinct)
    except Exception:  # noqa: BLE001 - a function that fails here is judged by the laws
        return False
    return _same(of_tensor, of_own) and not _same(of_list, of_own)


def _same(one: list[Tensor], other: list[Tensor]) -> bool:
    return len(one) == len(other) and all(
        a.shape == b.shape and torch.allclose(a, b, equal_nan=True) for a, b in zip(one, other, strict=True)
    )
