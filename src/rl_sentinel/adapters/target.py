"""``Target``: import objects of a target, check that they come from its source tree, and record calls."""

import importlib
import inspect
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from rl_sentinel.adapters.relocation import relocated
from rl_sentinel.core.errors import Absent, Unbindable


class Recorder(Protocol):
    """What is notified before and after every entry into the target."""

    def entering(self, path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The target is about to be called at ``path``; what it is given can still be read as it is."""

    def returned(self) -> None:
        """Note that the call announced by ``entering`` returned; not called if it raised."""


@dataclass(slots=True)
class Target:
    """A framework's tree on this machine.

    ``root`` is the folder that holds the import ``package``; ``recorder`` is set while a call is
    watched, else None; ``files`` are names of code that is in no file.
    """

    root: Path
    version: str = ""
    package: str = ""
    recorder: Recorder | None = None
    files: frozenset[str] = frozenset()
    _found: dict[str, Any] = field(default_factory=dict)
    _kept: dict[Hashable, Any] = field(default_factory=dict)
    _located: dict[str, str] = field(default_factory=dict)
    _kept_heads: dict[str, bool] = field(default_factory=dict)

    def has(self, path: str) -> bool:
        """Whether the dotted path (module, or module and attributes) exists, usable or not.

        A module that exists and fails to import counts: ``find`` reports why.
        """
        try:
            self.find(path)
        except Absent:
            return False
        except Unbindable:
            return True
        return True

    def fails(self, path: str) -> str:
        """Why an existing dotted path cannot be used; empty if it can be used, or is absent."""
        try:
            self.find(path)
        except Absent:
            return ""
        except Unbindable as why:
            return str(why)
        return ""

    def holds(self, path: str) -> bool:
        """Whether the dotted path begins in the target's tree, rather than in the standard library or a package."""
        head = self.located(path).partition(".")[0]
        if head not in self._kept_heads:
            place = self.root / head
            self._kept_heads[head] = place.is_dir() or place.with_suffix(".py").is_file()
        return self._kept_heads[head]

    def replace(self, path: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[[], None]:
        """Put ``wrap(function)`` in the place of the function at a dotted path; the answer puts it back."""
        head, tail = self._split(self.located(path))
        owner: Any = self.module(head)
        for name in tail[:-1]:
            owner = getattr(owner, name)
        name, own = tail[-1], tail[-1] in vars(owner)
        original = vars(owner).get(name)
        setattr(owner, name, wrap(getattr(owner, name)))
        return lambda: setattr(owner, name, original) if own else delattr(owner, name)

    def module(self, path: str) -> ModuleType:
        """Import a module of the target.

        Raises:
            Unbindable: if it is absent, fails to import, or comes from outside the tree.
        """
        try:
            module = importlib.import_module(path)
        except Exception as error:
            message = f"{path} cannot be imported ({type(error).__name__}: {error})"
            raise Unbindable(message) from error
        place = Path(inspect.getsourcefile(module) or "/")
        if not place.resolve().is_relative_to(self.root.resolve()):
            message = f"{path} comes from {place}, expected a file of the target"
            raise Unbindable(message)
        return module

    def find(self, path: str) -> Any:  # noqa: ANN401 - whatever the target has there
        """The object at a dotted path, its code asserted to lie in the tree.

        Raises:
            Unbindable: if it does not exist, or its code lies elsewhere.
        """
        if path in self._found:
            return self._found[path]
        head, tail = self._split(self.located(path))
        found: Any = self.module(head)
        for name in tail:
            try:
                found = getattr(found, name)
            except AttributeError as error:
                message = f"{path} is absent: {head} has no {name!r}"
                raise Absent(message) from error
        if callable(found):
            self.source(found)
        self._found[path] = found
        return found

    def located(self, path: str) -> str:
        """Where this tree has what a dotted path names: there, or in a module that moved in its layout."""
        if path not in self._located:
            parts = path.split(".")
            modules = [self.root.joinpath(*parts[:size]) for size in range(max(1, len(parts) - 2), len(parts) + 1)]
            present = any(m.with_suffix(".py").is_file() or m.is_dir() for m in modules)
            moved = bool(self.package) and not present
            self._located[path] = relocated(self.root / self.package, path) if moved else path
        return self._located[path]

    def _split(self, path: str) -> tuple[str, list[str]]:
        parts = path.split(".")
        for size in range(len(parts), 0, -1):
            place = self.root.joinpath(*parts[:size])
            if place.with_suffix(".py").is_file() or (place / "__init__.py").is_file():
                return ".".join(parts[:size]), parts[size:]
        message = f"{path} is absent: the target has no module of this name"
        raise Absent(message)

    def source(self, function: Callable[..., Any]) -> tuple[str, int]:
        """File relative to the tree, and line, of a function after unwrapping its decorators.

        Raises:
            Unbindable: if its code lies outside the tree.
        """
        bare = inspect.unwrap(function)
        try:
            place = Path(inspect.getsourcefile(bare) or "/").resolve()
            line = inspect.findsource(bare)[1] + 1  # getsourcelines would read on to the end of the function
        except (TypeError, OSError):
            place, line = Path("/"), 0
        if not place.is_relative_to(self.root.resolve()):
            message = f"{getattr(bare, '__qualname__', bare)!s} lies in {place}, expected the target"
            raise Unbindable(message)
        return str(place.relative_to(self.root.resolve())), line

    def kept(self, key: Hashable, make: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever the target makes
        """What ``make`` gives, made once for a key: a run has one configuration for all its steps."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def call(self, path: str, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Call the function or class at a dotted path, and tell the recorder where there is one."""
        found = self.find(path)
        if self.recorder is None:
            return found(*args, **kwargs)
        self.recorder.entering(self.located(path), args, kwargs)
        result = found(*args, **kwargs)
        self.recorder.returned()
        return result
