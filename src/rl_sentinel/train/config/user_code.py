"""Code that a recipe names: imported and called here, so that whatever it raises or gives is told in one line."""

import hashlib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor

from rl_sentinel.core.errors import InputError, SentinelError
from rl_sentinel.signal.ready import Ready

#: Says what was expected of what a function gave, from that and the columns it was given; "" where it is right.
Fits = Callable[[Any, tuple[Any, ...]], str]


def imported(key: str, place: str) -> Any:  # noqa: ANN401 - whatever stands there
    """What ``pkg.module:name`` or ``file.py:name`` names; a file is imported once, whatever its path is called.

    Raises:
        SentinelError: if it cannot be imported; what its code raises when imported is told in its words.

    Example:
        >>> from rl_sentinel.train.config.user_code import imported
        >>> imported("path", "rl_sentinel.signal.path:loss_ready").__name__
        'loss_ready'
    """
    module, _, name = place.rpartition(":")
    try:
        found = _of_file(Path(module)) if module.endswith(".py") else importlib.import_module(module)
        return getattr(found, name)
    except (Exception, SystemExit) as error:
        way = "name pkg.module:name or file.py:name"
        raise SentinelError(f"{key} {place!r} cannot be imported ({_words(error)}): {way}") from error


def _of_file(path: Path) -> ModuleType:
    """The module of a file, known by the whole of its path: two files of one name are two, and none is another's."""
    place = path.expanduser().resolve()
    name = f"own_{place.stem}_{hashlib.sha256(str(place).encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, place)
    if spec is None or spec.loader is None:
        raise ImportError(f"no module at {path}")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def called(what: str, function: Callable[..., Any], *given: Any, **named: Any) -> Any:  # noqa: ANN401 - of others
    """What a function of others gives.

    Args:
        what: the recipe's key, and what stands there.
        function: is called with the rest.
        given: its arguments.
        named: those with a name.

    Raises:
        SentinelError: if the function raises; what it raises is told in its words, with the line. One that is a
            ``SentinelError`` is told as it is.

    Example:
        >>> from rl_sentinel.train.config.user_code import called
        >>> called("path 'math:floor'", divmod, 7, 2)
        (3, 1)
    """
    try:
        return function(*given, **named)
    except SentinelError:
        raise
    except (Exception, SystemExit) as error:
        raise SentinelError(f"{what} failed ({_words(error, function)}), expected an answer: mend it there") from error


def looked_at(
    table: str, name: str, function: Callable[..., Any], numbers: Collection[str], fits: Fits | None
) -> Callable[..., Any]:
    """A function with the same parameters, of which a number that it refuses is told with its table.

    Args:
        table: where the recipe names it.
        name: what it is called there; one with a colon is code of one's own, whatever it raises is told.
        function: what is called.
        numbers: its parameters that the recipe fills in.
        fits: asked of what code of one's own gives; None where anything may be.

    Raises:
        SentinelError: if it cannot be called.

    Example:
        >>> from rl_sentinel.train.config.user_code import looked_at
        >>> looked_at("estimator", "doubled", lambda x: 2 * x, (), None)(4)
        8
    """
    what = f"{table} {name!r}"
    if not callable(function):
        raise SentinelError(f"{what} is {got(function)}, expected a function: name one, as file.py:function")
    try:
        inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise SentinelError(
            f"{what} does not tell its parameters, expected a function of Python: wrap it in one of your own"
        ) from error

    @wraps(function)
    def call(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - the function's own
        with placed(table, numbers):
            if ":" not in name:
                return function(*given, **named)
            found = called(what, function, *given, **named)
        wanted = "" if fits is None else fits(found, given)
        if wanted:
            raise SentinelError(f"{what} gave {got(found)}, expected {wanted}: mend it there")
        return found

    return call


@contextmanager
def placed(table: str, numbers: Collection[str]) -> Iterator[None]:
    """Where a number of a table is refused by its name alone, the table is told too.

    Raises:
        InputError: what was raised within, its number with its table.

    Example:
        >>> from rl_sentinel.core.errors import InputError
        >>> from rl_sentinel.train.config.user_code import placed
        >>> with placed("reward", {"scale"}):
        ...     raise InputError("scale is 0.0, expected a number above 0")
        Traceback (most recent call last):
        rl_sentinel.core.errors.InputError: reward.scale is 0.0, expected a number above 0
    """
    try:
        yield
    except InputError as error:
        if str(error).partition(" ")[0] in numbers:
            raise InputError(f"{table}.{error}") from error
        raise


def is_tensor(found: object, _given: tuple[Any, ...]) -> str:
    """What an estimator gives."""
    return "" if isinstance(found, Tensor) else "a tensor of advantages"


def is_loss(found: object, given: tuple[Any, ...]) -> str:
    """What a loss gives: one number that knows where its gradient goes, if its columns do."""
    if not isinstance(found, Tensor) or found.dim() > 0 or not found.is_floating_point():
        return "a tensor of one number, without a dimension"
    learns = any(isinstance(x, Tensor) and x.requires_grad for x in given)
    return "one with a gradient, made of logprob" if learns and not found.requires_grad else ""


def is_ready(found: object, _given: tuple[Any, ...]) -> str:
    """What a path gives."""
    return "" if isinstance(found, Ready) else "a Ready, as signal.path.loss_ready gives"


def got(found: object) -> str:
    """A thing in a few words, for a message.

    Example:
        >>> import torch
        >>> from rl_sentinel.train.config.user_code import got
        >>> got(torch.zeros(2, 3)), got(None), got(3.5)
        ('a tensor of shape [2, 3]', 'None', '3.5')
    """
    if isinstance(found, Tensor):
        return f"a tensor of shape {list(found.shape)}" + (" with a gradient" if found.requires_grad else "")
    words = " ".join(repr(found).split())
    return words if len(words) <= 60 else f"{words[:60]}..."


def _words(error: BaseException, function: object = None) -> str:
    """What was raised, in its own words, and the last line of the own file that led there."""
    told = " ".join(str(error).split())
    kind = type(error).__name__
    if not isinstance(error, (ImportError, AttributeError, SyntaxError, OSError)) or not told:
        told = f"{kind}: {told}" if told else kind
    if isinstance(error, SyntaxError):
        return told
    mine = getattr(getattr(inspect.unwrap(function), "__code__", None), "co_filename", "") if function else ""  # type: ignore[arg-type]  # called before
    frames = [f for f in traceback.extract_tb(error.__traceback__)[1:] if not f.filename.startswith("<frozen")]
    frames = [f for f in frames if f.filename != __file__]
    last = next((f for f in reversed(frames) if f.filename == mine), frames[-1] if frames else None)
    return f"{told}, at {last.filename}:{last.lineno}" if last else told
