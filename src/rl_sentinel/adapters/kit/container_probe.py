"""Find the keys or attributes that a function reads from a dict or configuration, by calling it with a recorder."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.roles import role_of
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.codec import Codec, Inputs

#: Column -> binding, for each call of the probe: with a wrong layout the function may fail before it has read all keys.
_BINDINGS: tuple[Mapping[str, str], ...] = (
    {},
    {"advantage": "advantage[B]"},
    {"reward": "token_rewards"},
    {"advantage": "advantage[B]", "reward": "token_rewards", "mask": "mask float"},
)


@dataclass(slots=True)
class Keys:
    """The names that a function reads, and whether it reads them as attributes or treats the object as a tensor."""

    known: dict[str, None] = field(default_factory=dict)
    unknown: dict[str, None] = field(default_factory=dict)
    attributes: bool = False
    tensor: bool = False


class _KeyRecorder:
    """A dict that also has attributes: it records the names that are read, and returns a column for known names."""

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
    """The keys that a function reads from one parameter; None if the parameter is not a container.

    An object of which only attributes with unknown names are read is a container too.

    Args:
        function: the function, called with ``codecs`` for its other parameters.
        parameter: name of the parameter.
        codecs: codecs of the other parameters.
        codec_by_name: returns the codec of a key, given bindings by column; None if the name is unknown.
        batch: the batch from which the arguments are built.
    """
    keys = Keys()
    for bindings in _BINDINGS:
        inputs = Inputs(batch)

        def value_of(name: str, bindings: Mapping[str, str] = bindings, inputs: Inputs = inputs) -> Any:  # noqa: ANN401
            codec = codec_by_name(name, bindings)
            return None if codec is None else codec.put(inputs)

        passed = {name: codec.put(inputs) for name, codec in codecs.items()}
        try:
            function(**passed, **{parameter: _KeyRecorder(keys, value_of)})
        except Exception:  # noqa: BLE001, S112 - the keys read before the failure are recorded
            continue
    return None if keys.tensor or not (keys.known or keys.attributes) else keys
