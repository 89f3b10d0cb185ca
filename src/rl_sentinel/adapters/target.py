"""``Target``: import objects of the audited code, check that they come from its source tree, record calls."""

import importlib
import inspect
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from rl_sentinel.adapters.folder_listing import FolderListing
from rl_sentinel.adapters.relocation import SourceFiles, relocated
from rl_sentinel.adapters.source_reads import line_of
from rl_sentinel.core.errors import Absent, Unbindable

#: Characters of the text of an import error that a reason shows.
_REASON_WIDTH = 300

#: How to repair a function from elsewhere.
_DEFINE = "define a function in this folder that calls it"


class Recorder(Protocol):
    """Receives a notification before and after each call into the target."""

    def entering(self, path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Called before a call of ``path``; the arguments are not modified yet."""

    def returned(self) -> None:
        """Called after the call that ``entering`` announced has returned; not called if it raised."""


@dataclass(slots=True)
class Target:
    """The source tree of a framework on this machine.

    Attributes:
        root: folder that contains the import package.
        version: version of a release; empty for a checkout.
        package: the import package; empty for a user's project.
        recorder: set while calls are recorded.
        files: file names of code that belongs to the target wherever it is, such as notebook cells.
        earlier: path of a module or class -> its path in releases before it was renamed.
        broken: module of the tree that could not be imported -> the reason.
    """

    root: Path
    version: str = ""
    package: str = ""
    recorder: Recorder | None = None
    files: frozenset[str] = frozenset()
    earlier: Mapping[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    _objects: dict[str, Any] = field(default_factory=dict)
    _cache: dict[Hashable, Any] = field(default_factory=dict)
    _located: dict[str, str] = field(default_factory=dict)
    _module_sizes: dict[str, int] = field(default_factory=dict)
    _own_modules: dict[str, ModuleType] = field(default_factory=dict)

    def has(self, path: str) -> bool:
        """Whether the dotted path (a module, or a module and attributes) exists.

        A module that exists and fails to import counts as existing: ``find`` reports why it fails.
        """
        try:
            self.find(path)
        except Absent:
            return False
        except Unbindable:
            return True
        return True

    def fails(self, path: str) -> str:
        """The reason why an existing dotted path cannot be used; empty if it can be used or does not exist."""
        try:
            self.find(path)
        except Absent:
            return ""
        except Unbindable as why:
            return str(why)
        return ""

    def contains(self, path: str) -> bool:
        """Whether the dotted path begins with a package or module of the target's tree."""
        head = self.locate(path).partition(".")[0]
        return self._tree().is_folder([head]) or self._has_module([head])

    def replace(self, path: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[[], None]:
        """Replace the function at a dotted path by ``wrap(function)``; return a function that restores it."""
        head, tail = self._split(self.locate(path))
        owner: Any = self.module(head)
        for name in tail[:-1]:
            owner = getattr(owner, name)
        name, is_defined = tail[-1], tail[-1] in vars(owner)
        original = vars(owner).get(name)
        setattr(owner, name, wrap(getattr(owner, name)))
        return lambda: setattr(owner, name, original) if is_defined else delattr(owner, name)

    def module(self, path: str) -> ModuleType:
        """Import a module of the target.

        Raises:
            Unbindable: if it is absent, fails to import, or comes from outside of the tree.
        """
        try:
            module = importlib.import_module(path)
        except Exception as error:
            reason = " ".join(str(error).split())
            reason = f"{reason[:_REASON_WIDTH]}..." if len(reason) > _REASON_WIDTH else reason
            message = f"{path} cannot be imported ({type(error).__name__}: {reason})"
            if self.contains(path):
                self.broken[path] = message
            raise Unbindable(message) from error
        if self._own_modules.get(path) is module:  # the place is on disk, and calls ask for their modules often
            return module
        place = getattr(module, "__file__", None)  # a built-in module has none
        if not place or not Path(place).resolve().is_relative_to(self.root.resolve()):
            source = place or "no file"
            message = f"{path} is imported from {source}, expected a file in the target's folder {self.root}"
            raise Unbindable(message)
        self._own_modules[path] = module
        return module

    def find(self, path: str) -> Any:  # noqa: ANN401 - any object of the target
        """The object at a dotted path; code from outside of the tree is refused.

        Raises:
            Absent: if it does not exist.
            Unbindable: if its module cannot be imported, or its code is outside of the tree.
        """
        if path in self._objects:
            return self._objects[path]
        head, tail = self._split(self.locate(path))
        value: Any = self.module(head)
        for depth, name in enumerate(tail):
            try:
                value = getattr(value, name)
            except AttributeError as error:
                message = f"{path} is absent: {'.'.join((head, *tail[:depth]))} has no {name!r}"
                raise Absent(message) from error
        if callable(value):
            self.source(value)
        self._objects[path] = value
        return value

    def locate(self, path: str) -> str:
        """The dotted path in this tree: ``path`` itself, or the place of its module in this layout."""
        if path not in self._located:
            in_place = not self.package or (self._is_in_place(path.split(".")) and not self._is_renamed(path))
            self._located[path] = path if in_place else self._earlier(path) or relocated(self._source_files(), path)
        return self._located[path]

    def _source_files(self) -> SourceFiles:
        files: SourceFiles = self.cached(SourceFiles, lambda: SourceFiles.of(self.root / self.package))
        return files

    def _is_renamed(self, path: str) -> bool:
        """Whether a package of the tree lacks a name that has an earlier one; a name may be that of a module."""
        *place, name = parts = path.split(".")
        if path not in self.earlier or not self._tree().is_folder(place):
            return False
        return not (self._names_in_init(place, name) or self._has_module(parts) or self._tree().is_folder(parts))

    def _earlier(self, path: str) -> str:
        """The path in this tree under an earlier name; empty if the tree has no earlier name of the path."""
        for name in sorted(self.earlier, key=len, reverse=True):
            place = self.earlier[name] + path.removeprefix(name)
            if f"{path}.".startswith(f"{name}.") and self._is_in_place(place.split(".")):
                return place
        return ""

    def _is_in_place(self, parts: list[str]) -> bool:
        """Whether the tree has the module of a function or method, or a package with the next part of the path."""
        for size in range(max(1, len(parts) - 2), len(parts) + 1):
            place, is_folder = parts[:size], self._tree().is_folder(parts[:size])
            if self._has_module(place) or (is_folder and size == len(parts)):
                return True
            if is_folder and (self._tree().is_folder(parts[: size + 1]) or self._names_in_init(place, parts[size])):
                return True
        return False

    def _tree(self) -> FolderListing:
        listing: FolderListing = self.cached(FolderListing, lambda: FolderListing(self.root))
        return listing

    def _has_module(self, parts: list[str]) -> bool:
        """Whether the tree has a file of this module; a package is a folder."""
        return self._tree().is_file([*parts[:-1], f"{parts[-1]}.py"])

    def _names_in_init(self, parts: list[str], name: str) -> bool:
        """Whether the ``__init__.py`` of a folder contains a name."""
        file = [*parts, "__init__.py"]
        read = self.root.joinpath(*file).read_text
        return self._tree().is_file(file) and name in self.cached(("text", *file), lambda: read("utf-8"))

    def _split(self, path: str) -> tuple[str, list[str]]:
        """A dotted path as the path of its module, and the names after it."""
        if path not in self._module_sizes:
            self._module_sizes[path] = self._module_size(path.split("."))
        parts, size = path.split("."), self._module_sizes[path]
        if size == 0:
            message = f"{path} is absent: the target has no module of this name"
            raise Absent(message)
        return ".".join(parts[:size]), parts[size:]

    def _module_size(self, parts: list[str]) -> int:
        """The number of parts of a dotted path that are its module; 0 if the path has no module."""
        for size in range(len(parts), 0, -1):
            if self._has_module(parts[:size]) or self._tree().is_file([*parts[:size], "__init__.py"]):
                return size
        return 0

    def source(self, function: Callable[..., Any]) -> tuple[str, int]:
        """File (relative to the tree) and line of a function, after its decorators are unwrapped.

        Raises:
            Unbindable: if its code is outside of the tree, or has no source file.
        """
        function = inspect.unwrap(function)
        try:
            file, line = inspect.getsourcefile(function), line_of(function)
        except (TypeError, OSError):
            file, line = None, 0
        place = Path(file or "/").resolve()
        if not place.is_relative_to(self.root.resolve()):
            fix = f"name it in the module that defines it, or {_DEFINE}" if file else _DEFINE
            raise Unbindable(f"{_origin(function, file)} in the target's folder {self.root}: {fix}")
        return str(place.relative_to(self.root.resolve())), line

    def cached(self, key: Hashable, make: Callable[[], Any]) -> Any:  # noqa: ANN401 - any object of the target
        """The result of ``make()``, computed once per key: a training run has one configuration for all steps."""
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]

    def call(self, path: str, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Call the function or class at a dotted path, and notify the recorder if there is one."""
        function = self.find(path)
        if self.recorder is None:
            return function(*args, **kwargs)
        self.recorder.entering(self.locate(path), args, kwargs)
        result = function(*args, **kwargs)
        self.recorder.returned()
        return result


def _origin(function: object, file: str | None) -> str:
    """Where a function is defined, and the kind of function that is expected."""
    if inspect.isroutine(function) or inspect.isclass(function):
        return f"{function.__qualname__} is defined in {file or 'no file'}, expected a file"
    return f"an object of type {type(function).__name__} has no file, expected a function written with def in a file"
