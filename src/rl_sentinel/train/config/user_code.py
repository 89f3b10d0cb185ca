"""User code that a recipe names: import it, call it, and report errors in one line."""

import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.errors import InputError, SentinelError
from rl_sentinel.core.phrasing import nearest, shortened
from rl_sentinel.signal.ready import Ready

#: A function of a result and of the arguments of the call. It returns a description of the expected result,
#: or "" if the result is valid.
ResultCheck = Callable[[Any, tuple[Any, ...]], str]


def import_object(key: str, reference: str) -> Any:  # noqa: ANN401 - whatever the recipe names
    """Import ``pkg.module:name`` or ``file.py:name``; a file is imported once, even through a symlink.

    Raises:
        SentinelError: if the reference is malformed or cannot be imported.
    """
    module, _, name = reference.rpartition(":")
    imported = import_module_of(key, reference)
    try:
        return getattr(imported, name)
    except AttributeError as error:
        names = [
            n for n, value in vars(imported).items() if not n.startswith("_") and not isinstance(value, ModuleType)
        ]
        hint = nearest(name, names) if names else f"expected a definition of {name}"
        raise SentinelError(f"{key} {reference!r}: {name!r} is not defined in {module}, {hint}") from error


def import_module_of(key: str, reference: str) -> ModuleType:
    """Import the module of ``pkg.module:name``, or the file of ``file.py:name``.

    Raises:
        SentinelError: if the reference is malformed or the module cannot be imported.
    """
    module, _, name = reference.rpartition(":")
    if not (module and name):
        raise SentinelError(f"{key} is {reference!r}, expected pkg.module:name or file.py:name")
    is_file = module.endswith(".py")
    if is_file and not Path(module).expanduser().is_file():
        place = Path(module).expanduser().absolute()
        raise SentinelError(f"{key} is {reference!r}, expected an existing file: {place} is not a file, fix the path")
    try:
        return _import_file(Path(module)) if is_file else importlib.import_module(module)
    except (Exception, SystemExit) as error:
        own_name = module.startswith(".") or (
            isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")
        )
        fix = "name a module that Python finds from here, or file.py:name" if own_name else "fix it there"
        raise SentinelError(f"{key} {reference!r} cannot be imported ({_summary(error)}): {fix}") from error


def _import_file(path: Path) -> ModuleType:
    """Import a file under a name made of its whole path, so that it never shadows another module."""
    file = path.expanduser().resolve()
    name = f"own_{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is a link to {file}, which is not a .py file; copy it to a .py file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def call_user_code(what: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - user code
    """Call a user's function.

    Args:
        what: the recipe's key and its value, for messages.
        function: the user's function.
        args: its positional arguments.
        kwargs: its keyword arguments.

    Raises:
        SentinelError: if the function raises, with the original error. A ``SentinelError`` passes unchanged.
    """
    try:
        return function(*args, **kwargs)
    except SentinelError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, SystemExit) and type(error) is not SystemExit:
            raise  # a signal ended the process
        raise SentinelError(f"{what} raised {_summary(error, function)}: fix it there") from error


def wrap_function(
    table: str, name: str, function: Callable[..., Any], parameters: Collection[str], check: ResultCheck | None
) -> Callable[..., Any]:
    """Wrap a function so that errors about its parameters name the recipe's table; the signature stays.

    Args:
        table: the recipe's table that names the function.
        name: its name there; with a colon it is user code, whose errors and results are checked too.
        function: the function.
        parameters: the parameters that the recipe sets.
        check: checks the result of user code; None to accept any result.

    Raises:
        SentinelError: if it is not callable, or has no signature.
    """
    what = f"{table} {name!r}"
    if not callable(function):
        raise SentinelError(
            f"{what} is {describe(function)}, expected a function: write file.py:function or pkg.module:function"
        )
    try:
        inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise SentinelError(
            f"{what} has no signature, expected a Python function: name a Python function that calls it"
        ) from error

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the function's own
        with table_in_errors(table, parameters):
            if ":" not in name:
                return function(*args, **kwargs)
            result = call_user_code(what, function, *args, **kwargs)
        expected = "" if check is None else check(result, (*args, *kwargs.values()))
        if expected:
            raise SentinelError(f"{what} returned {describe(result)}, expected {expected}: fix the function")
        return result

    if ":" in name and call.__module__:  # the module name of an imported file has a digest
        call.__module__ = _OWN_MODULE.sub(r"\1", call.__module__)
    return call


def as_loss(name: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The loss, which takes ``logprob`` as its first argument, wherever its signature has this parameter.

    Raises:
        SentinelError: if it has no parameter ``aggregation``.
    """
    parameters = inspect.signature(function).parameters
    if not ({"aggregation"} & parameters.keys() or any(p.kind is p.VAR_KEYWORD for p in parameters.values())):
        raise SentinelError(
            f"loss {name!r} has no parameter aggregation, expected one: divide the sum of the token losses by "
            "aggregation.denominator, or pass it to signal.reduce.aggregate"
        )
    first = next(iter(parameters.values()))
    takes_it_first = first.name == "logprob" and first.kind is not first.KEYWORD_ONLY
    if takes_it_first or ("logprob" not in parameters and first.kind is not first.VAR_KEYWORD):
        return function

    @wraps(function)
    def by_name(logprob: Tensor, **columns: Any) -> Tensor:  # noqa: ANN401 - the function's own
        return function(logprob=logprob, **columns)

    return by_name


@contextmanager
def table_in_errors(table: str, parameters: Collection[str]) -> Iterator[None]:
    """Put the recipe's table in front of a parameter that an error message starts with.

    Raises:
        InputError: the error raised inside.
    """
    try:
        yield
    except InputError as error:
        if str(error).partition(" ")[0] in parameters:
            raise InputError(f"{table}.{error}") from error
        raise


def check_advantages(result: object, _args: tuple[Any, ...]) -> str:
    """A :data:`ResultCheck` of an estimator: its result is a tensor of float32 or float64."""
    valid = isinstance(result, Tensor) and result.dtype in (torch.float32, torch.float64)
    return "" if valid else "a tensor of advantages in float32 or float64"


def check_loss(result: object, args: tuple[Any, ...]) -> str:
    """A :data:`ResultCheck` of a loss: a float scalar, with a gradient if an argument requires one."""
    if not isinstance(result, Tensor) or result.dim() > 0 or not result.is_floating_point():
        return "a float tensor without dimensions"
    differentiable = any(isinstance(x, Tensor) and x.requires_grad for x in args)
    return "a loss with a gradient to logprob" if differentiable and not result.requires_grad else ""


def check_ready(result: object, _args: tuple[Any, ...]) -> str:
    """A :data:`ResultCheck` of a path: its result is a ``Ready``."""
    return "" if isinstance(result, Ready) else "a Ready, the type that signal.path.loss_ready returns"


#: The name of an imported file, as ``_import_file`` makes it; the group is the stem of the file.
_OWN_MODULE = re.compile(r"\bown_(\w+)_[0-9a-f]{16}\b")


def describe(value: object) -> str:
    """A value in a few words, for a message."""
    if isinstance(value, Tensor):
        kind = "" if value.dtype == torch.float32 else f" {str(value.dtype).removeprefix('torch.')}"
        article = "an" if kind.startswith(" int") else "a"
        return f"{article}{kind} tensor of shape {list(value.shape)}" + (
            " with a gradient" if value.requires_grad else ""
        )
    return _OWN_MODULE.sub(r"\1", shortened(value))


def _summary(error: BaseException, function: object = None) -> str:
    """An error in one line, with its place if known, preferably in the file of ``function``."""
    text = " ".join(str(error).split())
    kind = type(error).__name__
    if not isinstance(error, (ImportError, AttributeError, SyntaxError, OSError)) or not text:
        text = f"{kind}: {text}" if text else kind
    if isinstance(error, SyntaxError):
        return text
    own_file = getattr(getattr(inspect.unwrap(function), "__code__", None), "co_filename", "") if function else ""  # type: ignore[arg-type]  # was called
    frames = [f for f in traceback.extract_tb(error.__traceback__)[1:] if not f.filename.startswith("<frozen")]
    frames = [f for f in frames if f.filename not in (__file__, importlib.__file__)]
    last = next((f for f in reversed(frames) if f.filename == own_file), frames[-1] if frames else None)
    return f"{text}, at {last.filename}:{last.lineno}" if last else text
