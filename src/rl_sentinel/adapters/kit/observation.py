"""Reading a live call back into a case: first its sizes, then its columns, its settings last."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch, batch_of
from rl_sentinel.core.boundary import Boundary, Step
from rl_sentinel.core.case import Case, Settings
from rl_sentinel.core.codec import Sizes, merge_sizes


@dataclass(frozen=True, slots=True)
class Observed:
    """What a live call says: the columns that it carries, its settings, and the shape of its batch.

    A column that is not in ``columns`` is absent: it is unknown, not 0. Where no argument tells the lengths,
    ``full_rows`` is True, and every response is taken to fill the width: the call would be the same.
    """

    columns: Mapping[str, Tensor]
    knobs: Settings = field(default_factory=dict)
    sizes: Sizes = field(default_factory=Sizes)
    full_rows: bool = False

    def absent(self, boundary: Boundary) -> frozenset[str]:
        """Columns that the boundary reads and the call does not carry: a law that needs one is not applicable."""
        known = set(self.columns) | ({"length"} if self.sizes.length is not None else set())
        return boundary.reads - known - ({"mask"} if self.sizes.mask is not None else set())

    def case(self, setting: str = "default") -> Case:
        """A case with these columns; columns that are absent hold their plain value, and no law may read them.

        Raises:
            ValueError: if no argument told the number of rows and the width.
        """
        return Case(self.batch(), setting=setting, override=self.knobs)

    def batch(self) -> Batch:
        """The batch of the case."""
        sizes = self.sizes
        if sizes.rows is None or sizes.width is None:
            raise ValueError(
                "the call tells no number of rows or no width, expected an argument with a row per response"
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
    """What one call of a step says; ``arguments`` are its live arguments by the names of their parameters.

    Example:
        >>> import torch
        >>> from rl_sentinel.core.boundary import Step
        >>> from rl_sentinel.adapters.kit.codecs import Column
        >>> from rl_sentinel.adapters.kit.observation import observe
        >>> step = Step(call="m.f", arguments={"mask": Column("mask"), "rewards": Column("reward")})
        >>> observe(step, {"mask": torch.ones(2, 3), "rewards": torch.tensor([1.0, 0.0])}).columns["reward"]
        tensor([1., 0.])
    """
    held = [(codec, arguments[name]) for name, codec in step.arguments.items() if name in arguments]
    told = merge_sizes([codec.sizes(value) for codec, value in held])
    sizes = complete(told)
    full_rows = told.length is None and (told.total_length is None or told.prompt_length is None)
    columns: dict[str, Tensor] = {}
    knobs: dict[str, Any] = {}
    for codec, value in held:
        columns |= {name: column for name, column in codec.take(value, sizes).items() if name not in columns}
        knobs |= codec.knobs(value)
    return Observed(columns, knobs, sizes, full_rows)


def complete(sizes: Sizes) -> Sizes:
    """Sizes that follow from others: a length from the two others, the width from the mask or the lengths.

    Without lengths every response fills the width.
    """
    width, prompt = sizes.width, sizes.prompt_length
    if sizes.length is None and sizes.total_length is not None and prompt is not None:
        sizes = replace(sizes, length=sizes.total_length - prompt)
    if prompt is None and sizes.total_length is not None and sizes.length is not None:
        prompt = sizes.total_length - sizes.length
    if width is None and sizes.mask is not None:
        width = sizes.mask.shape[1]
    if width is None and sizes.length is not None and sizes.length.numel():
        width = int(sizes.length.max())
    length = sizes.length
    if length is None and sizes.rows is not None and width is not None:
        length = torch.full((sizes.rows,), width, dtype=torch.int64)
    return replace(sizes, width=width, length=length, prompt_length=prompt)


def bind(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a live call by the names of their parameters, defaults included."""
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def canonical(boundary: Boundary, case: Case) -> dict[str, Tensor]:
    """The columns of a case as a call of the boundary carries them: what its codecs lose is lost."""
    kept: dict[str, Tensor] = {}
    for codec in boundary.codecs():
        for name, column in codec.canonical(case.batch).items():
            kept.setdefault(name, column)
    return kept
