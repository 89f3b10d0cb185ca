"""Find the keys or attributes that a function reads from a dict or configuration, by calling the function."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.roles import role_of
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.codec import Codec, Inputs

#: Ways in which columns are laid out while a function is watched: it may fail before it has read all keys.
_WAYS: tuple[Mapping[str, str], ...] = (
    {},
    {"advantage": "advantage[B]"},
    {"reward": "token_rewards"},
    {"advantage": "advantage[B]", "reward": "token_rewards", "mask": "mask float"},
)


@dataclass(slots=True)
class Keys:
    """The names that were read, ``known`` or not, and whether they were read as attributes."""

    known: dict[str, None] = field(default_factory=dict)
    unknown: dict[str, None] = field(default_factory=dict)
    attributes: bool = False
    tensor: bool = False


class _Watched:
    """A dict and an object in one, that answers with columns of a batch by the names of their roles."""

    def __init__(self, keys: Keys, value_of: Callable[[str], Any]) -> None:
        self.__dict__["_keys"], self.__dict__["_value_of"] = keys, value_of

    def __getitem__(self, name: Any) -> Any:  # noqa: ANN401 - any key
        if not isinstance(name, str):
            self._keys.tensor = True
            raise KeyError(name)
        value = self._value_of(name)
        (self._keys.unknown if value is None else self._keys.known)[name] = None
        return torch.zeros(()) if value is None else value

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - as a dict
        value = self._value_of(name)
        if value is None:
            return default
        self._keys.known[name] = None
        return value

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._value_of(name) is not None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute
        if name.startswith("__"):
            raise AttributeError(name)
        if hasattr(Tensor, name) and not role_of(name):
            self._keys.tensor = True
            raise AttributeError(name)
        self._keys.attributes = True
        return self[name]


def keys_read(
    function: Callable[..., Any],
    parameter: str,
    codecs: Mapping[str, Codec],
    codec_by_name: Callable[[str, Mapping[str, str]], Codec | None],
    batch: Batch,
) -> Keys | None:
    """The keys that a function reads of one parameter; None where the parameter is no container.

    Args:
        function: the function, called with ``codecs`` for its other parameters.
        parameter: the parameter.
        codecs: of the other parameters.
        codec_by_name: the codec of a key, with other bindings for some columns; None where the name is unknown.
        batch: what the arguments are made from.
    """
    keys = Keys()
    for way in _WAYS:
        inputs = Inputs(batch)

        def value_of(name: str, way: Mapping[str, str] = way, inputs: Inputs = inputs) -> Any:  # noqa: ANN401
            codec = codec_by_name(name, way)
            return None if codec is None else codec.put(inputs)

        passed = {name: codec.put(inputs) for name, codec in codecs.items()}
        try:
            function(**passed, **{parameter: _Watched(keys, value_of)})
        except Exception:  # noqa: BLE001, S112 - what was read until then is what is asked for
            continue
    return None if keys.tensor or not keys.known else keys
