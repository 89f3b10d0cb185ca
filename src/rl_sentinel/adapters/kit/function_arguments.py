"""Types for the arguments of a user's function: slots, attributes, and the codecs bound so far."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass
from typing import Any

from rl_sentinel.adapters.kit.annotated_axes import item_class
from rl_sentinel.adapters.kit.numbers import formula_names
from rl_sentinel.adapters.kit.refused_layouts import supported
from rl_sentinel.adapters.kit.roles import role_of
from rl_sentinel.adapters.kit.value_codecs import constants
from rl_sentinel.core.boundary import Stage
from rl_sentinel.core.case import Scalar
from rl_sentinel.core.codec import Codec


@dataclass(slots=True)
class Arguments:
    """The arguments of a user's function; the fields after ``untrained`` grow while they are bound.

    Attributes:
        stage: the stage of the function.
        kept: numbers, by their names in formulas, whose parameters keep their defaults because the user states them.
        of_model: the function takes a model or its tokens.
        present: roles of the parameters and of the fields of their dataclasses, and columns that are already bound.
        untrained: name of tokens -> the id that the code expects at untrained tokens.
        codecs: codec of each parameter.
        numbers: numbers by their names in formulas.
        unknown: paths of parameters that could not be bound (``batch.rewards`` for an item of a container).
        open_axes: path -> column of the parameters whose axes are not stated, or only in a docstring.
        documented: paths of the parameters whose axes a docstring states.
        attributes: the unknown parameters that are attributes of an object.
        ignored: numbers that the function does not read.
        written: the names that the function sets in a parameter, by parameter.
    """

    stage: Stage
    kept: frozenset[str] = frozenset()
    of_model: bool = False
    present: frozenset[str] = frozenset()
    untrained: Mapping[str, int] = field(default_factory=dict)
    codecs: dict[str, Codec] = field(default_factory=dict)
    numbers: dict[str, Scalar] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    open_axes: dict[str, str] = field(default_factory=dict)
    documented: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    ignored: list[str] = field(default_factory=list)
    written: dict[str, list[str]] = field(default_factory=dict)

    def pass_numbers(self, numbers: Mapping[str, float]) -> None:
        """Pass these numbers to the parameters, instead of their defaults."""
        self.codecs |= constants(**numbers)
        self.numbers |= {formula: x for name, x in numbers.items() for formula in formula_names(role_of(name))}


@dataclass(frozen=True, slots=True)
class Slot:
    """A parameter, a field of a dataclass, or a key of a dict.

    ``documented`` states its axes as in a docstring; ``packed`` is True if another parameter has the response lengths.
    """

    name: str
    annotation: object = inspect.Parameter.empty
    default: object = inspect.Parameter.empty
    documented: str = ""
    packed: bool = False

    @property
    def required(self) -> bool:
        """Whether the slot has no default."""
        return self.default is inspect.Parameter.empty

    @property
    def dataclass(self) -> type | None:
        """The dataclass that the annotation names, or None."""
        return self.annotation if isinstance(self.annotation, type) and is_dataclass(self.annotation) else None

    @property
    def item_class(self) -> type | None:
        """The dataclass of the items if the annotation is a list of such items, or None."""
        return item_class(self.annotation)

    @property
    def described_class(self) -> type | None:
        """The dataclass that the annotation names for the argument, or for the items of a list."""
        return self.dataclass or self.item_class

    def supported_axes(self, axes: str, path: str, column: str, *, source: str) -> str:
        """The axes, if a binding supports them; empty if a trial has to decide.

        A trial decides if another parameter has the lengths, because ``[T]`` may then mean the tokens of all responses.
        """
        return "" if self.packed and axes == "T" else supported(axes, path, column, source=source)


class Attributes(dict[str, Any]):
    """Bindings of the attributes of an object; a plain dict has the bindings of keys."""
