"""Codecs of arguments that are not columns: settings, constants, earlier results, values that the caller computes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from rl_sentinel.core.batch import MODEL_COLUMNS, with_columns
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Scalar, Settings
from rl_sentinel.core.codec import Codec, Inputs, Sizes
from rl_sentinel.core.layout import Axis


@dataclass(frozen=True, slots=True)
class AllSettings(Codec):
    """All settings of the case as a dict, and fields of the layout that are followed, for functions of ours."""

    follows: frozenset[Axis] = frozenset()

    @property
    def axes(self) -> frozenset[Axis]:
        """What the function follows."""
        return self.follows

    def put(self, inputs: Inputs) -> Settings:
        """The settings."""
        return {**inputs.settings, **{name: getattr(inputs.layout, name) for name in self.follows}}

    def knobs(self, value: Mapping[str, Any]) -> Settings:
        """The settings, without the layout."""
        return {name: knob for name, knob in value.items() if name not in self.follows}


@dataclass(frozen=True, slots=True)
class Spread(AllSettings):
    """All settings of the case, each as a keyword argument of its own name."""


@dataclass(frozen=True, slots=True)
class Constant(Codec):
    """A value that no case changes."""

    value: Any

    def put(self, inputs: Inputs) -> Any:  # noqa: ANN401, ARG002 - the value
        """The value."""
        return self.value


@dataclass(frozen=True, slots=True)
class Knob(Codec):
    """A setting, under its neutral name; ``default`` where the setting family does not name it."""

    name: str
    default: Scalar = None

    def put(self, inputs: Inputs) -> Scalar:
        """The setting's value."""
        return inputs.settings.get(self.name, self.default)

    def knobs(self, value: Any) -> Settings:  # noqa: ANN401 - a plain value
        """The value under the neutral name."""
        return {self.name: value}


@dataclass(frozen=True, slots=True)
class IfSet(Knob):
    """A setting that is passed where the case names it, and left to the target's default elsewhere."""


@dataclass(frozen=True, slots=True)
class Derived(Codec):
    """A value that follows from the number of rows or trained tokens, the groups or the layout, as a micro-batch size.

    It carries no column: a value computed from signals is :class:`Computed`.
    """

    compute: Callable[[Inputs], Any]
    follows: frozenset[Axis] = frozenset()

    @property
    def axes(self) -> frozenset[Axis]:
        """The fields that it is computed from."""
        return self.follows

    def put(self, inputs: Inputs) -> Any:  # noqa: ANN401 - whatever is computed
        """The number."""
        return self.compute(inputs)


@dataclass(frozen=True, slots=True)
class Width(Codec):
    """The number of positions that responses are padded to, with the extra padding of the layout."""

    @property
    def axes(self) -> frozenset[Axis]:
        """Padding can be added."""
        return frozenset({"extra"})

    def put(self, inputs: Inputs) -> int:
        """The width of the batch, and the extra padding."""
        return inputs.batch.width + inputs.layout.extra

    def sizes(self, value: int) -> Sizes:
        """The width."""
        return Sizes(width=value)


@dataclass(frozen=True, slots=True)
class Earlier(Codec):
    """What an earlier step left: its result, one of its arguments after the call, or a part of these."""

    place: Use

    def put(self, inputs: Inputs) -> Use:  # noqa: ARG002 - the place is the same for all cases
        """The place."""
        return self.place


@dataclass(frozen=True, slots=True)
class Computed(Codec):
    """A value that the caller computes from columns before the call; ``why`` says why they cannot be read from it.

    ``compute`` is glue: use it where the caller's own code is inline and cannot be called, and cite its line.
    """

    of: frozenset[str]
    compute: Callable[[Inputs], Any]
    why: str

    @property
    def columns(self) -> frozenset[str]:
        """The columns that it is computed from."""
        return self.of

    @property
    def unreadable(self) -> Mapping[str, str]:
        """All of them."""
        return dict.fromkeys(self.of, self.why)

    @property
    def axes(self) -> frozenset[Axis]:
        """The precision of what a model computes."""
        return frozenset({"dtype"}) if self.of & MODEL_COLUMNS else frozenset()

    def put(self, inputs: Inputs) -> Any:  # noqa: ANN401 - whatever is computed
        """The tensor."""
        cast = inputs.layout.dtype
        if not cast or not self.of & MODEL_COLUMNS:
            return self.compute(inputs)
        batch = inputs.batch
        kind = getattr(torch, cast)
        changed = {name: getattr(batch, name).to(kind) for name in self.of & MODEL_COLUMNS}
        return self.compute(replace(inputs, batch=with_columns(batch, **changed)))
