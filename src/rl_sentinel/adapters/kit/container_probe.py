"""Find the keys or attributes that a function reads from a dict, an object or a list of these, with a recorder."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pydoc import locate
from typing import Any
from warnings import catch_warnings, simplefilter

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.roles import role_of
from rl_sentinel.adapters.kit.row_table import RowTable, listed
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.call import Call
from rl_sentinel.core.codec import Codec, Inputs

#: Column -> binding, for each call of the probe: with a wrong layout the function may fail before it has read all keys.
_BINDINGS: tuple[Mapping[str, str], ...] = (
    {},
    {"advantage": "advantage[B]"},
    {"reward": "token_rewards"},
    {"advantage": "advantage[B]", "reward": "token_rewards", "mask": "mask float"},
    {"reward": "reward[tensors]"},
)


#: Methods of a dict that go over all keys: these may be ids of prompts.
_WHOLE = frozenset({"items", "keys"})


@dataclass(slots=True)
class Keys:
    """The names that a function reads from an object, and how it reads them.

    Attributes:
        known: names of which a column is known, in the order of the reads.
        unknown: the other names.
        attributes: it reads attributes, and not only keys.
        tensor: it uses the object as a tensor.
        whole: it iterates over all keys of a dict.
        rows: the object is a list with one item per response, and the names are read from the items.
        inner: name that may be a dict or an object -> the names that are read from it.
        written: the names that it sets.
    """

    known: dict[str, None] = field(default_factory=dict)
    unknown: dict[str, None] = field(default_factory=dict)
    attributes: bool = False
    tensor: bool = False
    whole: bool = False
    rows: bool = False
    inner: dict[str, "Keys"] = field(default_factory=dict)
    written: dict[str, None] = field(default_factory=dict)

    @property
    def found(self) -> bool:
        """Whether keys or attributes were read, and nothing was used as a tensor."""
        return not self.tensor and bool(self.known or self.unknown)


class _KeyRecorder:
    """A dict that also has attributes, and records the names that are read.

    A known name has a column as its value; an unknown name has a number, or a recorder of its own keys. Names that the
    function itself has written are not recorded.
    """

    def __init__(self, keys: Keys, value_of: Callable[[str], Any]) -> None:
        self.__dict__["_keys"], self.__dict__["_value_of"], self.__dict__["_written"] = keys, value_of, {}

    def __setitem__(self, name: str, value: Any) -> None:  # noqa: ANN401 - any value
        self._written[name] = value
        self._keys.written[name] = None

    __setattr__ = __setitem__

    def update(self, *items: Any, **named: Any) -> None:  # noqa: ANN401 - as a dict
        for name, value in dict(*items, **named).items():
            self[name] = value

    def __getitem__(self, name: Any) -> Any:  # noqa: ANN401 - any key
        if not isinstance(name, str):
            self._keys.tensor = True
            raise KeyError(name)
        if name in self._written:
            return self._written[name]
        value = None if name in self._keys.inner else self._value_of(name)
        (self._keys.unknown if value is None else self._keys.known)[name] = None
        return self._unknown(name) if value is None else value

    def _unknown(self, name: str) -> Any:  # noqa: ANN401 - a number, or what may be a dict or an object
        """A number that may be a size, or a recorder if the probe tries the name as a dict or an object."""
        if name not in self._keys.inner:
            return torch.ones((), dtype=torch.int64)
        inner = _KeyRecorder(self._keys.inner[name], lambda key: self._value_of(f"{name}.{key}"))
        return self._written.setdefault(name, inner)

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - as a dict
        value = self._written.get(name, self._value_of(name))
        if value is None:
            return default
        self._keys.known[name] = None
        return value

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self._written or self._value_of(name) is not None)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute
        if name.startswith("__"):
            raise AttributeError(name)
        if name in _WHOLE and (read := {**self._keys.known, **self._keys.unknown}):  # it copies what it has read
            return getattr({key: self[key] for key in {**read, **self._written}}, name)
        self._keys.whole |= name in _WHOLE
        if name in _WHOLE or ((hasattr(Tensor, name) or hasattr(str, name)) and not role_of(name)):
            self._keys.tensor = True
            raise AttributeError(name)
        self._keys.attributes = True
        return self[name]


def keys_read(
    function: Callable[..., Any],
    parameter: str,
    codecs: Mapping[str, Codec],
    codecs_by_name: Mapping[str, Callable[..., Codec | None]],
    batch: Batch,
) -> Keys | None:
    """The keys that a function reads from one parameter; None if the parameter is not a container.

    A parameter from which only unknown names are read is a container, too. A parameter that is neither a dict nor an
    object is tried as a list with one item per response. Other parameters without a codec may be containers, too, and
    are passed in the same way.

    Args:
        function: the function, called with ``codecs`` for its known parameters.
        parameter: name of the parameter.
        codecs: codecs of the known parameters.
        codecs_by_name: parameter without a codec -> a function that returns the codec of a key or of a path of keys,
            with ``bindings`` by column; None if the name is unknown.
        batch: the batch from which the arguments are built.
    """
    for rows in (False, True):
        keys = Keys(rows=rows)
        probe = partial(_probe, function, parameter, keys, codecs, codecs_by_name, batch)
        answers = probe()
        tried = set[str]()
        while not rows and (waiting := [one for one in _untried(keys, known=not answers) if one[2] not in tried]):
            node, name, path = waiting[0]  # what it holds may be needed to read the next
            tried.add(path)
            inner = node.inner[name] = Keys()
            answers = probe() or answers
            _decide(node, name, inner)
        if keys.whole or keys.found:
            return keys
    return None


def _untried(keys: Keys, prefix: str = "", *, known: bool) -> Iterator[tuple[Keys, str, str]]:
    """The names that may be dicts or objects, with their paths; if ``known``, then also known names, at the end."""
    names = [name for name in keys.unknown if name not in keys.inner]
    yield from ((keys, name, f"{prefix}{name}") for name in names)
    for name, inner in keys.inner.items():
        yield from _untried(inner, f"{prefix}{name}.", known=known)
    yield from ((keys, name, f"{prefix}{name}") for name in keys.known if known)


def _decide(node: Keys, name: str, inner: Keys) -> None:
    """Keep a name as a container if the function reads keys from it.

    For a known name, such as ``actor``, these keys must be known, too.
    """
    was_known = name in node.known
    if was_known and inner.known and inner.found:
        del node.known[name]
    elif was_known or not inner.found:
        del node.inner[name]
        if was_known:
            node.unknown.pop(name, None)


def _probe(  # noqa: PLR0913 - the arguments of keys_read
    function: Callable[..., Any],
    parameter: str,
    keys: Keys,
    codecs: Mapping[str, Codec],
    codecs_by_name: Mapping[str, Callable[..., Codec | None]],
    batch: Batch,
) -> bool:
    """Call the function once per binding, and add the names that it reads from the parameter to ``keys``.

    Returns:
        Whether the function returned at least once.
    """
    answers = False
    for bindings in _BINDINGS:
        by_name = {name: partial(codec_by_name, bindings=bindings) for name, codec_by_name in codecs_by_name.items()}
        recorders = {
            name: _recorder(keys if name == parameter else Keys(rows=keys.rows), by_name[name], batch)
            for name in by_name
        }
        passed = {name: _made(codec.put(Inputs(batch))) for name, codec in codecs.items()}
        with catch_warnings(), suppress(BaseException):  # the keys read before the failure are recorded
            simplefilter("ignore")  # a tensor warns of a text as index before it fails
            function(**passed, **recorders)
            answers = True
    return answers


def _made(value: Any) -> Any:  # noqa: ANN401 - any argument
    """Evaluate an argument: make the call of a :class:`Call`, which may create an object.

    If the call raises ``TypeError``, for example because a field is unknown, the :class:`Call` is returned.
    """
    if not isinstance(value, Call):
        return value
    make: Any = locate(value.function) if isinstance(value.function, str) else value.function
    try:
        return make(*map(_made, value.args), **{name: _made(x) for name, x in value.kwargs.items()})
    except TypeError:
        return value


def _recorder(keys: Keys, codec_of_key: Callable[[str], Codec | None], batch: Batch) -> Any:  # noqa: ANN401 - a fake
    """A recorder that adds the names that are read from it to ``keys``, or a list with one recorder per response."""
    inputs = Inputs(batch)

    def value_of(name: str) -> Any:  # noqa: ANN401 - a column
        codec = codec_of_key(name)
        return None if codec is None else codec.put(inputs)

    def value_of_row(row: int, name: str) -> Any:  # noqa: ANN401 - the value of a response
        codec = codec_of_key(name)
        return None if codec is None else RowTable({name: listed(codec)}).put(inputs)[row][name]

    if keys.rows:
        return [_KeyRecorder(keys, partial(value_of_row, row)) for row in range(batch.rows)]
    return _KeyRecorder(keys, value_of)
