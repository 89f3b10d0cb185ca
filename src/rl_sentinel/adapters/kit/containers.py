"""Codecs of container arguments: dicts, namespaces, objects, lists with one item per row, prompt or micro-batch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor
from typing_extensions import override

from rl_sentinel.adapters.kit.requirements import group_sizes
from rl_sentinel.core.batch import Batch, take_rows
from rl_sentinel.core.call import Call
from rl_sentinel.core.case import Settings
from rl_sentinel.core.codec import Codec, Inputs, Sizes, merge_columns, merge_sizes
from rl_sentinel.core.layout import Axis


class Container(Codec):
    """Several codecs by name; their columns, sizes, settings and axes are merged."""

    parts: Mapping[str, Codec]

    @property
    @override
    def columns(self) -> frozenset[str]:
        return frozenset[str]().union(*(part.columns for part in self.parts.values()))

    @property
    @override
    def shapes(self) -> frozenset[str]:
        return frozenset[str]().union(*(part.shapes for part in self.parts.values()))

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Columns that no part can read back, with the reasons."""
        unreadable = {name: why for part in self.parts.values() for name, why in part.unreadable.items()}
        read = {name for part in self.parts.values() for name in part.columns - set(part.unreadable)}
        return {name: why for name, why in unreadable.items() if name not in read}

    @property
    def modeled(self) -> frozenset[str]:
        """The columns that models among the parts compute."""
        return frozenset[str]().union(*(part.modeled for part in self.parts.values()))

    @property
    @override
    def axes(self) -> frozenset[Axis]:
        return frozenset[Axis]().union(*(part.axes for part in self.parts.values()))

    def get(self, value: Any, name: str) -> Any:  # noqa: ANN401 - a passed container
        """One part of a passed value, or None if it is absent."""
        raise NotImplementedError

    @override
    def sizes(self, value: Any) -> Sizes:
        return merge_sizes([part.sizes(item) for part, item in self._present(value)])

    @override
    def take(self, value: Any, sizes: Sizes) -> Mapping[str, Tensor]:
        return merge_columns(part.take(item, sizes) for part, item in self._present(value))

    def knobs(self, value: Any) -> Settings:  # noqa: ANN401 - a passed container
        """The settings of all parts together."""
        return {name: setting for part, item in self._present(value) for name, setting in part.knobs(item).items()}

    @override
    def references(self, value: Any) -> list[tuple[Codec, Any]]:
        return [pair for part, item in self._present(value) for pair in part.references(item)]

    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        """The columns of all parts after a round trip."""
        return merge_columns(part.canonical(batch) for part in self.parts.values())

    def _present(self, value: Any) -> list[tuple[Codec, Any]]:  # noqa: ANN401 - a passed container
        items = [(part, self.get(value, name)) for name, part in self.parts.items()]
        return [(part, item) for part, item in items if item is not None]


@dataclass(frozen=True, slots=True)
class Table(Container):
    """A dict with one codec per key."""

    parts: Mapping[str, Codec]

    @override
    def put(self, inputs: Inputs) -> dict[str, Any]:
        return {name: part.put(inputs) for name, part in self.parts.items() if not part.omitted(inputs)}

    @override
    def get(self, value: Any, name: str) -> Any:
        return value[name] if name in value else None  # noqa: SIM401 - DataProto and TensorDict have no get with a default


@dataclass(frozen=True, slots=True)
class Object(Container):
    """An object that a class or factory creates; a part whose name is a number is passed by position.

    Attributes:
        make: the class or factory, or its dotted path.
        parts: codecs of its arguments.
        at: where a part is found in the passed object: a dotted path of attributes and positions, empty for the object
            itself. The default is the attribute with the name of the part.
        shared: True to create the object once per setting, because a run has one configuration for all steps.
    """

    make: str | Callable[..., Any]
    parts: Mapping[str, Codec] = field(default_factory=dict)
    at: Mapping[str, str] = field(default_factory=dict)
    shared: bool = False

    @override
    def put(self, inputs: Inputs) -> Call:
        args, kwargs = list[Any](), dict[str, Any]()
        for name, part in self.parts.items():
            if name.isdigit():
                args.append(part.put(inputs))
            elif not part.omitted(inputs):
                kwargs[name] = part.put(inputs)
        return Call(self.make, tuple(args), kwargs, self.shared)

    def get(self, value: Any, name: str) -> Any:  # noqa: ANN401 - a passed object
        """The part with this name, from its place in the object."""
        for word in self.at.get(name, name).split("."):
            value = value if not word else value[int(word)] if word.isdigit() else getattr(value, word, None)
        return value


def Namespace(**parts: Codec) -> Object:  # noqa: N802 - named like the class that it creates
    """An ``argparse.Namespace`` with one codec per attribute."""
    return Object("argparse.Namespace", parts)


#: Fields of ``Sizes`` with one number per row.
_LENGTHS = ("length", "prompt_length", "total_length")


def _concatenate(parts: list[Tensor | None]) -> Tensor | None:
    whole = [part for part in parts if part is not None]
    return torch.cat(whole) if whole and len(whole) == len(parts) else None


def _group_numbers(counts: list[int]) -> Tensor:
    return torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))


def _rows(sizes: Sizes) -> int:
    return 1 if sizes.rows is None else sizes.rows


@dataclass(frozen=True, slots=True)
class EachPart(Codec):
    """A list with one item per part of the batch, built by one codec from the rows of that part."""

    item: Codec

    @property
    @override
    def columns(self) -> frozenset[str]:
        return self.item.columns

    @property
    @override
    def shapes(self) -> frozenset[str]:
        return self.item.shapes

    @property
    def unreadable(self) -> Mapping[str, str]:
        """The unreadable columns of an item."""
        return self.item.unreadable

    @property
    def modeled(self) -> frozenset[str]:
        """The columns that a model in an item computes."""
        return self.item.modeled

    def counts(self, inputs: Inputs) -> list[int]:
        """The number of rows of each part, in the order of the rows."""
        raise NotImplementedError

    @override
    def put(self, inputs: Inputs) -> list[Any]:
        parts = torch.split(torch.arange(inputs.batch.rows), self.counts(inputs))
        batches = (take_rows(inputs.batch, rows) for rows in parts)
        whole = inputs.mini_batch
        return [
            self.item.put(replace(inputs, batch=part, whole=whole, part=(n, len(parts))))
            for n, part in enumerate(batches)
        ]

    def sizes(self, value: Any) -> Sizes:  # noqa: ANN401 - a passed list
        """The total number of rows, and each kind of length that all items determine."""
        parts = [self.item.sizes(one) for one in value]
        return Sizes(
            rows=sum(map(_rows, parts)),
            length=_concatenate([one.length for one in parts]),
            prompt_length=_concatenate([one.prompt_length for one in parts]),
            total_length=_concatenate([one.total_length for one in parts]),
        )

    @override
    def take(self, value: Any, sizes: Sizes) -> Mapping[str, Tensor]:
        columns, start = [], 0
        for one in value:
            item_sizes = self.item.sizes(one)
            end = start + _rows(item_sizes)
            known = {name: x[start:end] for name in _LENGTHS if (x := getattr(sizes, name)) is not None}
            columns.append(self.item.take(one, replace(item_sizes, width=sizes.width, **known)))
            start = end
        names = set[str].intersection(*map(set, columns)) if columns else set()
        return {name: torch.cat([part[name] for part in columns]) for name in sorted(names)}

    def knobs(self, value: Any) -> Settings:  # noqa: ANN401 - a passed list
        """The settings of an item; all items have the same settings."""
        return self.item.knobs(value[0]) if value else {}

    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        """The columns of all items after a round trip."""
        return self.item.canonical(batch)


@dataclass(frozen=True, slots=True)
class EachRow(EachPart):
    """A list with one item per row."""

    @override
    def counts(self, inputs: Inputs) -> list[int]:
        return [1] * inputs.batch.rows


@dataclass(frozen=True, slots=True)
class EachPrompt(EachPart):
    """A list with one item per prompt; the responses of a prompt must be consecutive rows."""

    @property
    def columns(self) -> frozenset[str]:
        """The columns of an item, and ``group``."""
        return self.item.columns | {"group"}

    def counts(self, inputs: Inputs) -> list[int]:
        """The number of responses of each prompt."""
        return group_sizes(inputs)

    def take(self, value: Any, sizes: Sizes) -> Mapping[str, Tensor]:  # noqa: ANN401 - a passed list
        """The columns of all items, concatenated, and the prompt number of each row."""
        counts = [_rows(self.item.sizes(one)) for one in value]
        return {**EachPart.take(self, value, sizes), "group": _group_numbers(counts)}

    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        """The columns of all items, and the prompts numbered in order."""
        return {**self.item.canonical(batch), "group": _group_numbers(group_sizes(Inputs(batch)))}


@dataclass(frozen=True, slots=True)
class EachCut(EachPart):
    """A list with one item per micro-batch or per rank of the layout: consecutive rows; empty parts are left out."""

    cut: Literal["micro_batches", "ranks"]

    @property
    def axes(self) -> frozenset[Axis]:
        """The layout fields of an item, and the number of micro-batches or ranks."""
        return self.item.axes | {self.cut}

    def counts(self, inputs: Inputs) -> list[int]:
        """The number of rows of each part, as equal as possible."""
        parts = torch.arange(inputs.batch.rows).tensor_split(getattr(inputs.layout, self.cut))
        return [len(part) for part in parts if len(part)]
