"""A fake pydantic model class, which stores its fields without validation."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class _Default:
    make: Callable[[], Any]


def field(default: Any = None, *, default_factory: Callable[[], Any] | None = None, **_checks: object) -> Any:  # noqa: ANN401
    """A fake ``pydantic.Field``: store the default or the default factory, and ignore all other keywords."""
    return _Default(default_factory or (lambda: copy.copy(default)))


class Record:
    """A class with keyword fields, which replaces a pydantic model.

    Example:
        >>> from rl_sentinel.adapters.kit.record import Record
        >>> class Answer(Record):
        ...     text: str
        ...     tokens: int = 0
        >>> Answer(text="yes").tokens
        0
    """

    def __init_subclass__(cls, **_keywords: object) -> None:
        """Accept the class keywords of the class that is replaced."""

    def __init__(self, **fields: Any) -> None:  # noqa: ANN401 - any field
        """Set the fields; a field without an argument gets the default of its class.

        Raises:
            TypeError: if a field has neither an argument nor a default.
        """
        for kind in reversed(type(self).__mro__):
            for name in vars(kind).get("__annotations__", {}):
                if name not in fields and not hasattr(type(self), name):
                    raise TypeError(
                        f"{type(self).__name__} lacks {name}, expected an argument: the field has no default"
                    )
                if name not in fields and isinstance(default := getattr(type(self), name), _Default):
                    vars(self)[name] = default.make()
        vars(self).update(fields)

    def model_copy(self, *, update: dict[str, Any] | None = None) -> Any:  # noqa: ANN401 - of this class
        """A copy with new values of some fields."""
        return type(self)(**vars(self) | (update or {}))

    def model_dump(self) -> dict[str, Any]:
        """The fields by name, including class constants that are fields; nested records become dicts."""
        names = [name for kind in reversed(type(self).__mro__) for name in vars(kind).get("__annotations__", {})]
        return {name: _plain(getattr(self, name)) for name in dict.fromkeys([*names, *vars(self)])}


def _plain(value: Any) -> Any:  # noqa: ANN401 - any field
    """The value, with records replaced by dicts."""
    if isinstance(value, Record):
        return value.model_dump()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, dict) else value
