"""Codecs of arguments that are not columns: settings, constants, results of earlier steps, computed values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from typing_extensions import override

from rl_sentinel.core.batch import MODEL_COLUMNS, with_columns
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Scalar, Settings
from rl_sentinel.core.codec import Codec, Inputs, Sizes
from rl_sentinel.core.layout import Axis


@dataclass(frozen=True, slots=True)
class AllSettings(Codec):
    """All settings of the case and the ``follows`` fields of the layout, as a dict, for functions of this package.

    ``unread`` are settings that only the formula reads, because the code of the target has them as literals.
    """

    follows: frozenset[Axis] = frozenset()
    unread: frozenset[str] = frozenset()

    @property
    def axes(self) -> frozenset[Axis]:
        """The layout fields that are passed."""
        return self.follows

    @override
    def put(self, inputs: Inputs) -> Settings:
        settings = {name: inputs.settings[name] for name in inputs.settings if name not in self.unread}
        return {**settings, **{name: getattr(inputs.layout, name) for name in self.follows}}

    @override
    def knobs(self, value: Mapping[str, Any]) -> Settings:
        return {name: setting for name, setting in value.items() if name not in self.follows}


@dataclass(frozen=True, slots=True)
class Spread(AllSettings):
    """All settings of the case, each as a keyword argument with its name."""


@dataclass(frozen=True, slots=True)
class Constant(Codec):
    """A value that is the same in all cases."""

    value: Any

    @override
    def put(self, inputs: Inputs) -> Any:
        return self.value


@dataclass(frozen=True, slots=True)
class Knob(Codec):
    """A setting, by its framework-independent name; ``default`` if the case does not have it."""

    name: str
    default: Scalar = None

    @override
    def put(self, inputs: Inputs) -> Scalar:
        return inputs.settings.get(self.name, self.default)

    def knobs(self, value: Any) -> Settings:  # noqa: ANN401 - a plain value
        """The value under the framework-independent name of the setting."""
        return {self.name: value}


@dataclass(frozen=True, slots=True)
class IfSet(Knob):
    """A setting that is passed only if the case contains it; otherwise the target uses its default."""

    def omitted(self, inputs: Inputs) -> bool:
        """True if the case does not contain the setting."""
        return self.name not in inputs.settings


@dataclass(frozen=True, slots=True)
class Derived(Codec):
    """A value that depends on the shape of the batch, its groups or the layout, such as a micro-batch size.

    For a value computed from columns, use :class:`Computed`.
    """

    compute: Callable[[Inputs], Any]
    follows: frozenset[Axis] = frozenset()

    @property
    def axes(self) -> frozenset[Axis]:
        """The layout fields from which the value is computed."""
        return self.follows

    @override
    def put(self, inputs: Inputs) -> Any:
        return self.compute(inputs)


@dataclass(frozen=True, slots=True)
class Width(Codec):
    """The width to which responses are padded, including the extra padding of the layout."""

    @property
    def axes(self) -> frozenset[Axis]:
        """The layout field ``extra``: the extra padding."""
        return frozenset({"extra"})

    def put(self, inputs: Inputs) -> int:
        """The width of the batch plus the extra padding."""
        return inputs.batch.width + inputs.layout.extra

    @override
    def sizes(self, value: int) -> Sizes:
        return Sizes(width=value)


@dataclass(frozen=True, slots=True)
class Earlier(Codec):
    """The result of an earlier step, one of its arguments after the call, or a part of these."""

    use: Use

    @override
    def put(self, inputs: Inputs) -> Use:
        return self.use


@dataclass(frozen=True, slots=True)
class Computed(Codec):
    """A value that the caller computes from columns before the call; ``why`` says why the columns cannot be read back.

    ``compute`` repeats code of the caller: use it only if that code is inline and cannot be called, and cite its line.
    """

    of: frozenset[str]
    compute: Callable[[Inputs], Any]
    why: str

    @property
    def columns(self) -> frozenset[str]:
        """The columns from which the value is computed."""
        return self.of

    @property
    def unreadable(self) -> Mapping[str, str]:
        """All columns from which the value is computed, with the reason why they cannot be read back."""
        return dict.fromkeys(self.of, self.why)

    @property
    def axes(self) -> frozenset[Axis]:
        """The layout field ``dtype``, if a model computes one of the columns."""
        return frozenset({"dtype"}) if self.of & MODEL_COLUMNS else frozenset()

    def put(self, inputs: Inputs) -> Any:  # noqa: ANN401 - any value
        """The value, computed with the dtype of the layout in the columns that a model computes."""
        cast = inputs.layout.dtype
        if not cast or not self.of & MODEL_COLUMNS:
            return self.compute(inputs)
        batch = inputs.batch
        kind = getattr(torch, cast)
        changed = {name: getattr(batch, name).to(kind) for name in self.of & MODEL_COLUMNS}
        return self.compute(replace(inputs, batch=with_columns(batch, **changed)))


def constants(**values: Any) -> dict[str, Codec]:  # noqa: ANN401 - plain values
    """A :class:`Constant` for each argument."""
    return {name: Constant(value) for name, value in values.items()}


def functions(**paths: str) -> dict[str, Codec]:
    """The function or class of the target at a dotted path, for each argument."""
    return {name: Constant(Function(path)) for name, path in paths.items()}


def knobs(*names: str) -> dict[str, Codec]:
    """A :class:`Knob` for each argument, by the name of the argument."""
    return {name: Knob(name) for name in names}
