"""Write calls as Python source: values as literals, objects as the calls that create them, functions as source."""

import ast
import builtins
import inspect
import pydoc
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from rl_sentinel.adapters.source_reads import remembered
from rl_sentinel.audit.repro.definitions import assignment, imported_from, names_used, remove_docstrings
from rl_sentinel.audit.repro.literal import Names, Unwritable, source
from rl_sentinel.core.call import Call, Function, Use
from rl_sentinel.core.type_parameters import parse_source

#: Name that a script cannot use for a variable -> the name that it uses instead.
_RENAMED = {"self": "owner", "class": "cls"}


@dataclass(slots=True)
class Source:
    """The parts of a script besides its calls: imports, and functions of this package that it includes.

    ``parameters`` collects the values that differ between runs, by parameter name.
    """

    names: Names = field(default_factory=lambda: Names({"import torch": None}))
    included: dict[str, str] = field(default_factory=dict)
    parameters: dict[str, list[str]] = field(default_factory=dict)

    def shared_source(self, values: list[Any], hint: str) -> str:
        """Source of a value that occurs in all runs; parts that differ become parameters, named after ``hint``.

        Raises:
            Unwritable: if a value has no source text.
        """
        texts = [self.text(value) for value in values]
        if all(text == texts[0] for text in texts):
            return texts[0]
        first = values[0]
        if all(_same_call(first, value) for value in values):
            return self._call(values)
        if all(type(value) is dict and list(value) == list(first) for value in values):
            inner = [f"{key!r}: {self.shared_source([value[key] for value in values], str(key))}" for key in first]
            return wrapped("{", inner, "}")
        if all(_calls(value) and type(value) is type(first) and len(value) == len(first) for value in values):
            return _sequence(first, [self.shared_source(list(row), hint) for row in zip(*values, strict=True)])
        return self._parameter(texts, hint)

    def _parameter(self, texts: list[str], hint: str) -> str:
        name = "".join(c if c.isalnum() else "_" for c in hint).strip("_").lower() or "value"
        name = name if name.isidentifier() and name not in _RENAMED else f"value_{name}"
        number, free = 2, name
        while self.parameters.get(free, texts) != texts:
            free, number = f"{name}_{number}", number + 1
        self.parameters[free] = texts
        return free

    def _call(self, values: list[Call]) -> str:
        first = values[0]
        args = [self.shared_source([v.args[n] for v in values], _noun(first)) for n in range(len(first.args))]
        args += [keyword(k, self.shared_source([v.kwargs[k] for v in values], k)) for k in first.kwargs]
        return wrapped(f"{self.function(first.function)}(", args, ")")

    def text(self, value: Any) -> str:  # noqa: ANN401, PLR0911 - any expression; one line per kind
        """Source of one expression.

        Raises:
            Unwritable: if the value has no source text.
        """
        if isinstance(value, Call):
            return self._call([value])
        if isinstance(value, Use):
            return variable(value)
        if isinstance(value, Function):
            return self.names.imported(value.path)
        if type(value) is dict:
            return wrapped("{", [f"{key!r}: {self.text(inner)}" for key, inner in value.items()], "}")
        if _calls(value):
            return _sequence(value, [self.text(inner) for inner in value])
        if inspect.isfunction(value) or inspect.isclass(value):
            return self.include(value)
        return source(value, self.names)

    def function(self, function: str | Use | Callable[..., Any]) -> str:
        """Source of the called function: an import, a method of an earlier value, or an included function."""
        if isinstance(function, str):
            return self.names.imported(function)
        return variable(function) if isinstance(function, Use) else self.include(function)

    def include(self, definition: Any) -> str:  # noqa: ANN401 - a function or a class of this package
        """Include the source of a function or class of this package in the script, with everything that it uses.

        Raises:
            Unwritable: if it has no source, or uses a value that cannot be written.
        """
        name: str = definition.__name__
        if name in self.included:
            return name
        if not name.isidentifier():
            raise Unwritable(f"{name} of {definition.__module__} has no name, so a script cannot define it")
        self.included[name] = ""
        if outer := getattr(getattr(inspect.unwrap(definition), "__code__", None), "co_freevars", ()):
            raise Unwritable(f"{name} uses {outer[0]} of the function around it, which a script cannot contain")
        try:
            tree = parse_source(textwrap.dedent(inspect.getsource(definition)))
        except (OSError, TypeError) as error:
            raise Unwritable(
                f"{name} has no source text that a script can contain: it is built in or generated"
            ) from error
        remove_docstrings(tree)
        for node in (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)):
            # A script stores no verdicts, so it need not record which source is read.
            node.decorator_list = [d for d in node.decorator_list if ast.unparse(d) != remembered.__name__]
        module = sys.modules[definition.__module__]
        for used in names_used(tree):
            self._define(used, module)
        del self.included[name]
        self.included[name] = ast.unparse(tree)
        return name

    def _define(self, name: str, module: ModuleType) -> None:
        """Define a name that included source uses: include it too, import it, or assign it."""
        if name in self.included or name not in vars(module) or hasattr(builtins, name):
            return
        value = vars(module)[name]
        if isinstance(value, ModuleType) and _of_package(value.__name__):
            raise Unwritable(f"{module.__name__} uses the module {value.__name__}, which a script cannot contain")
        if isinstance(value, ModuleType):
            alias = "" if name == value.__name__ else f" as {name}"
            self.names.imports[f"import {value.__name__}{alias}"] = None
        elif _is_definition(value) and _of_package(value.__module__):
            self.include(value)
        elif _is_definition(value) or hasattr(value, "__origin__") or callable(value):
            home = getattr(value, "__module__", "typing")
            if vars(sys.modules.get(home, module)).get(name) is value and not _of_package(home):
                self.names.imports[f"from {home} import {name}"] = None
            else:
                self._assign(name, module)
        else:
            try:
                self.included[name] = f"{name} = {self._plain(value)}"
            except Unwritable:
                self._assign(name, module)

    def _plain(self, value: Any) -> str:  # noqa: ANN401 - any value
        """Source of a value that holds no object of this package.

        Raises:
            Unwritable: if the value has no source text, or holds such an object.
        """
        names = Names({}, self.names.known)
        text = source(value, names)
        if any(_of_package(line.split()[1]) for line in names.imports):
            raise Unwritable(f"{type(value).__name__} holds objects of this package, which a script cannot create")
        self.names.imports.update(names.imports)
        return text

    def _assign(self, name: str, module: ModuleType) -> None:
        """Include the statement of a module that defines a name, such as an alias of a type, or import the name.

        Raises:
            Unwritable: if neither an assignment to this name alone nor an import defines it.
        """
        while (found := assignment(name, module)) is None:
            module = imported_from(name, module)
            if not _of_package(module.__name__):
                self.names.imports[f"from {module.__name__} import {name}"] = None
                return
        for used in names_used(found.value):
            self._define(used, module)
        self.included[name] = ast.unparse(found)


def _is_definition(value: Any) -> bool:  # noqa: ANN401 - any value
    return inspect.isfunction(inspect.unwrap(value)) or inspect.isclass(value)


def _of_package(module: str) -> bool:
    """Whether a module is one of this package, which is not installed where a script runs."""
    return module.partition(".")[0] == "rl_sentinel"


#: Text longer than this is broken into lines.
_WIDTH = 88


def keyword(name: str, text: str) -> str:
    """A keyword argument; a name that is not an identifier, such as a dotted path, is passed with ``**``.

    Example:
        >>> from rl_sentinel.audit.repro.call_source import keyword
        >>> keyword("lam", "1.0"), keyword("actor.lam", "1.0")
        ('lam=1.0', "**{'actor.lam': 1.0}")
    """
    return f"{name}={text}" if name.isidentifier() else f"**{{{name!r}: {text}}}"


def wrapped(before: str, items: list[str], after: str) -> str:
    """Items between brackets; long ones get one line per item."""
    line = before + ", ".join(items) + after
    if len(line) <= _WIDTH and "\n" not in line:
        return line
    return before + "\n" + "".join(textwrap.indent(item, "    ") + ",\n" for item in items) + after


def parameter_names(function: str | Use | Callable[..., Any]) -> list[str]:
    """The positional parameters of a called function, without ``self`` of a method; empty if they are unknown.

    Example:
        >>> from rl_sentinel.audit.repro.call_source import parameter_names
        >>> parameter_names("bisect.insort")[:2]
        ['a', 'x']
    """
    try:
        called: Any = pydoc.locate(function) if isinstance(function, str) else function
        parameters = inspect.signature(called).parameters.values()
    except (pydoc.ErrorDuringImport, TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.name != "self"]


def variable(use: Use) -> str:
    """The expression of an earlier value in a script."""
    return str(Use(_RENAMED.get(use.name, use.name), use.path))


def _noun(call: Call) -> str:
    last = call.function if isinstance(call.function, str) else getattr(call.function, "__name__", "value")
    return str(last).rpartition(".")[2]


def _calls(values: Any) -> bool:  # noqa: ANN401 - any value
    """Whether a value is a list or tuple of expressions."""
    listed = isinstance(values, list | tuple) and bool(values)
    return listed and all(isinstance(value, Call | Use | Function) for value in values)


def _sequence(values: Any, items: list[str]) -> str:  # noqa: ANN401 - a list or a tuple
    """Source of a list or tuple with these items."""
    before, after = "[]" if isinstance(values, list) else "()"
    text = wrapped(before, items, after)
    return text if before == "[" or len(items) > 1 or "\n" in text else f"({items[0]},)"


def _same_call(a: Any, b: Any) -> bool:  # noqa: ANN401 - expressions
    both = isinstance(a, Call) and isinstance(b, Call)
    return both and a.function == b.function and len(a.args) == len(b.args) and list(a.kwargs) == list(b.kwargs)
