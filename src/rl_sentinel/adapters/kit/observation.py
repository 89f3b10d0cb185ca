"""Convert the arguments of an actual call back to a case: first sizes, then columns, then settings."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.value_codecs import Spread
from rl_sentinel.core.batch import Batch, batch_of
from rl_sentinel.core.boundary import Boundary, Step
from rl_sentinel.core.case import Case, Settings
from rl_sentinel.core.codec import Codec, Sizes, merge_columns, merge_sizes
from rl_sentinel.core.layout import Layout


@dataclass(frozen=True, slots=True)
class Observed:
    """The columns, the settings and the sizes that were read from an actual call.

    A column that is missing in ``columns`` is unknown, not 0. ``lengths_assumed`` is True if no argument determines the
    lengths: then every response fills its row, a prompt of unknown length has one token, and packed tokens are one row.
    Rebuilding the call from these sizes gives the same arguments.
    """

    columns: Mapping[str, Tensor]
    knobs: Settings = field(default_factory=dict)
    sizes: Sizes = field(default_factory=Sizes)
    lengths_assumed: bool = False

    @property
    def layout(self) -> Layout:
        """The padding after the longest sequence (prompt and response); no padding if the call does not determine it.

        Other padding is part of the width of the columns.
        """
        sizes = self.sizes
        if sizes.positions is None or sizes.length is None or sizes.prompt_length is None:
            return Layout()
        return Layout(extra=sizes.positions - int((sizes.prompt_length + sizes.length).max()))

    def absent(self, boundary: Boundary) -> frozenset[str]:
        """Columns that the boundary reads and the call does not have; laws that need one of them are not applicable."""
        known = set(self.columns) | (set() if self.lengths_assumed else {"length"})
        return boundary.reads - known - ({"mask"} if self.sizes.mask is not None else set())

    def case(self, setting: str = "default") -> Case:
        """A case with these columns; absent columns have default values, which no law may read.

        Raises:
            ValueError: if the call does not determine the number of rows or the width.
        """
        return Case(self.batch(), setting=setting, override=self.knobs, layout=self.layout)

    def batch(self) -> Batch:
        """The observed columns as a batch.

        If the call has no mask column, the mask of the sizes is used, or else a mask that is True everywhere.

        Raises:
            ValueError: if the call does not determine the number of rows or the width.
        """
        sizes = self.sizes
        if sizes.rows is None or sizes.width is None:
            size = "number of rows" if sizes.rows is None else "width"
            raise ValueError(
                f"the call does not determine the {size}, expected an argument with a row of tokens per response, such "
                "as a mask [B, T]"
            )
        mask = self.columns.get("mask", sizes.mask)
        if mask is None:
            mask = torch.ones(sizes.rows, sizes.width, dtype=torch.bool)
        labels = {
            name: value
            for name, value in (("length", sizes.length), ("prompt_length", sizes.prompt_length))
            if value is not None
        }
        return batch_of(mask.bool(), **{**labels, **{k: v for k, v in self.columns.items() if k != "mask"}})


def observe(step: Step, arguments: Mapping[str, Any]) -> Observed:
    """Read one call of a step; ``arguments`` are its passed arguments by parameter name.

    Example:
        >>> import torch
        >>> from rl_sentinel.core.boundary import Step
        >>> from rl_sentinel.adapters.kit.codecs import Column
        >>> from rl_sentinel.adapters.kit.observation import observe
        >>> step = Step(call="m.f", arguments={"mask": Column("mask"), "rewards": Column("reward")})
        >>> observe(step, {"mask": torch.ones(2, 3), "rewards": torch.tensor([1.0, 0.0])}).columns["reward"]
        tensor([1., 0.])
    """
    pairs = list(_match_arguments(step, arguments))
    stated = merge_sizes([codec.sizes(value) for codec, value in pairs])
    sizes = complete(stated)
    knobs = {name: setting for codec, value in pairs for name, setting in codec.knobs(value).items()}
    columns = merge_columns(codec.take(value, sizes) for codec, value in pairs)
    return Observed(columns, knobs, sizes, lengths_assumed=_derive(stated).length is None)


def _match_arguments(step: Step, arguments: Mapping[str, Any]) -> Iterator[tuple[Codec, Any]]:
    """Each codec with its passed argument, found by name or position; ``Spread`` gets all remaining arguments."""
    by_position = list(arguments.values())
    for name, codec in step.arguments.items():
        if isinstance(codec, Spread):
            yield codec, {n: value for n, value in arguments.items() if n not in step.arguments}
        elif name in arguments:
            yield codec, arguments[name]
        elif name.isdigit() and int(name) < len(by_position):
            yield codec, by_position[int(name)]


def complete(sizes: Sizes) -> Sizes:
    """Compute missing sizes: a length from the other two, the width from the mask or the lengths.

    If the lengths are unknown, assume that every response fills its row, and that a prompt of unknown length has one
    token.
    """
    sizes = _derive(sizes)
    if sizes.length is not None:
        return sizes
    one = torch.ones(sizes.rows or 1, dtype=torch.int64)
    prompt = one if sizes.prompt_length is None else sizes.prompt_length
    if sizes.total_length is not None:
        sizes = replace(sizes, length=sizes.total_length - 1, prompt_length=torch.ones_like(sizes.total_length))
    elif sizes.rows is not None and sizes.width is not None:
        sizes = replace(sizes, length=one * sizes.width)
    elif sizes.rows is not None and sizes.positions is not None:
        sizes = replace(sizes, length=sizes.positions - prompt, prompt_length=prompt)
    elif sizes.tokens is not None:
        sizes = replace(sizes, rows=1, length=one * sizes.tokens, prompt_length=one)
    return _derive(sizes)


def _derive(sizes: Sizes) -> Sizes:
    """Add the sizes that the known sizes determine."""
    length, prompt, total = sizes.length, sizes.prompt_length, sizes.total_length
    if total is not None and length is None and prompt is not None:
        length = total - prompt
    if total is not None and prompt is None and length is not None:
        prompt = total - length
    width = sizes.width
    if width is None and sizes.mask is not None:
        width = sizes.mask.shape[1]
    if width is None and length is not None and length.numel():
        width = int(length.max())
    return replace(sizes, width=width, length=length, prompt_length=prompt)


def bind(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of an actual call by parameter name, including defaults."""
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)
