"""Stand-ins for absent packages: placeholders at import time, an error when a boundary uses them."""

import builtins
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Self

from rl_sentinel.core.errors import StandInTouched

#: Version of every stand-in: higher than any release, so that version checks take the newest branch.
_NEWEST = "9999.0"


@dataclass(slots=True)
class Run:
    """Whether a boundary runs, and which stand-ins it used, even if the target caught the exception."""

    running: bool = False
    touched: list[str] = field(default_factory=list)


RUN = Run()


@contextmanager
def forbid_stand_ins() -> Iterator[None]:
    """Forbid the use of stand-ins while a boundary runs.

    Raises:
        StandInTouched: if a stand-in was used, even if the target caught the exception.
    """
    before = RUN.running
    RUN.running = True
    RUN.touched.clear()
    try:
        yield
    finally:
        RUN.running = before
        touched, RUN.touched = RUN.touched, []
        if touched:
            raise StandInTouched(_message(touched[0]))


def _message(name: str) -> str:
    return f"the boundary uses {name}, which is not installed here"


class Base:
    """The base class that replaces an absent base class of a class of the target."""

    stand_in_name: str = ""
    stand_in_roots: tuple[Path, ...] = ()

    def __init_subclass__(cls, **_keywords: object) -> None:
        """Accept the class keywords that the absent base class would read."""

    def __init__(self, *_args: object, **_kwargs: object) -> None:
        """Do nothing at import time; raise while a boundary runs."""
        _touch(f"{self.stand_in_name} (base class of {type(self).__qualname__})", self.stand_in_roots)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - an attribute of the absent base
        if not _is_dunder(name):
            _touch(f"{self.stand_in_name}.{name} (base class of {type(self).__qualname__})", self.stand_in_roots)
        raise AttributeError(name)


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _touch(name: str, roots: tuple[Path, ...]) -> None:
    """Raise if a boundary runs and no module of the target is being imported."""
    if not RUN.running or _importing(roots):
        return
    RUN.touched.append(name)
    raise StandInTouched(_message(name))


def _importing(roots: tuple[Path, ...]) -> bool:
    """Whether the top level of a module under one of ``roots`` is on the stack."""
    frame = sys._getframe(2)  # noqa: SLF001 - inspect.stack() reads source files, which is slow
    while frame is not None:
        code = frame.f_code
        if code.co_name == "<module>" and any(Path(code.co_filename).is_relative_to(r) for r in roots):
            return True
        if frame.f_back is None:
            return False
        frame = frame.f_back
    return False


def _undefined_names(frame: FrameType, roots: tuple[Path, ...]) -> tuple[str, ...]:
    """Names that a module of the target uses but has not defined yet: its ``import *`` must provide them."""
    code = frame.f_code
    if code.co_name != "<module>" or not any(Path(code.co_filename).is_relative_to(r) for r in roots):
        return ()
    return tuple(n for n in _names(code) if not (_is_dunder(n) or n in frame.f_globals or hasattr(builtins, n)))


def _names(code: CodeType) -> Iterator[str]:
    """Names and attributes in module code and its class bodies, including annotations; functions run later."""
    yield from code.co_names
    for part in code.co_consts:
        if isinstance(part, CodeType) and not part.co_flags & inspect.CO_OPTIMIZED:
            yield from _names(part)


class StandIn:
    """A placeholder for an absent package, or for an attribute of an absent package.

    At import time it works as a base class, a decorator, an annotation, a subscript or a call. Called with one function
    or class of the target it returns that object, so that decorated code keeps working. It is falsy, because the
    package is not available.
    """

    __slots__ = ("_base", "_children", "_name", "_roots")

    _base: type | None
    _children: dict[str, Any]
    _name: str
    _roots: tuple[Path, ...]

    def __init__(self, name: str, roots: tuple[Path, ...]) -> None:
        """Store the dotted name, and the folders of the target's code."""
        object.__setattr__(self, "_name", name)
        object.__setattr__(self, "_roots", roots)
        object.__setattr__(self, "_children", {})
        object.__setattr__(self, "_base", None)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of the package
        known = {"__version__": _NEWEST, "__name__": self._name, "__qualname__": self._name}
        if name == "__all__":
            return _undefined_names(sys._getframe(1), self._roots)  # noqa: SLF001 - the module that runs ``import *``
        if _is_dunder(name):
            if name in known:
                return known[name]
            raise AttributeError(name)
        _touch(f"{self._name}.{name}", self._roots)
        if name not in self._children:
            self._children[name] = StandIn(f"{self._name}.{name}", self._roots)
        return self._children[name]

    def __setattr__(self, name: str, value: object) -> None:
        self._children[name] = value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - decorator, class, function
        """Return the only argument if it is code of the target, a new class for a metaclass, else another stand-in."""
        _touch(f"{self._name}()", self._roots)
        if len(args) == 1 and not kwargs and _is_code_under(args[0], self._roots):
            return args[0]
        if len(args) == 3 and isinstance(args[1], tuple) and isinstance(args[2], dict):  # as a metaclass
            return type(*args)
        return StandIn(f"{self._name}()", self._roots)

    def __mro_entries__(self, _bases: tuple[object, ...]) -> tuple[type, ...]:
        if self._base is None:
            about = {"stand_in_name": self._name, "stand_in_roots": self._roots}
            object.__setattr__(self, "_base", type(self._name.rpartition(".")[2], (Base,), about))
        return (self._base,) if self._base is not None else ()

    def __instancecheck__(self, instance: object) -> bool:
        return self._base is not None and isinstance(instance, self._base)

    def __subclasscheck__(self, subclass: type) -> bool:
        return self._base is not None and issubclass(subclass, self._base)

    def __getitem__(self, _key: object) -> Self:
        _touch(f"{self._name}[]", self._roots)
        return self

    def __setitem__(self, _key: object, _value: object) -> None:
        _touch(f"{self._name}[]", self._roots)

    def __or__(self, _other: object) -> Self:
        _touch(self._name, self._roots)
        return self

    __ror__ = __and__ = __rand__ = __add__ = __radd__ = __or__

    def __ge__(self, _other: object) -> bool:
        _touch(self._name, self._roots)
        return True

    __gt__ = __ge__

    def __lt__(self, _other: object) -> bool:
        _touch(self._name, self._roots)
        return False

    __le__ = __lt__

    def __contains__(self, _item: object) -> bool:
        _touch(self._name, self._roots)
        return False

    def __bool__(self) -> bool:
        _touch(self._name, self._roots)
        return False

    def __iter__(self) -> Iterator[object]:
        _touch(self._name, self._roots)
        return iter(())

    def __enter__(self) -> Self:
        _touch(self._name, self._roots)
        return self

    def __exit__(self, *_about: object) -> None:
        """Let every exception through."""

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    def __repr__(self) -> str:
        return f"<stand-in for {self._name}>"


def _is_code_under(thing: object, roots: tuple[Path, ...]) -> bool:
    """Whether ``thing`` is a function or class that the target defines."""
    bare: Any = thing.__func__ if isinstance(thing, staticmethod | classmethod) else thing
    if inspect.isclass(bare):
        module = sys.modules.get(bare.__module__)
        place = getattr(module, "__file__", None)
    else:
        unwrapped: Callable[..., Any] = inspect.unwrap(bare) if callable(bare) else bare
        place = getattr(getattr(unwrapped, "__code__", None), "co_filename", None)
    return isinstance(place, str) and any(Path(place).is_relative_to(r) for r in roots)
