"""Recorded calls as a few lines of Python that need torch and the target only."""

import dataclasses
import enum
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from rl_sentinel.frameworks.target import Call


class Unwritable(Exception):  # noqa: N818 - the script is left out, with this reason
    """A value of which no source text can be made."""


class Script:
    """Lines of a stand-alone script, built call by call."""

    def __init__(self) -> None:
        """Start an empty script."""
        self.imports: dict[str, None] = {"import torch": None}
        self.lines: list[str] = []
        self._names: dict[int, str] = {}

    def add(self, calls: Sequence[Call], label: str) -> None:
        """Write the calls of one run of a boundary; the last result is printed."""
        for number, call in enumerate(calls):
            name = label if number == len(calls) - 1 else f"{label}_{number}"
            given = [self.source(a) for a in call.args]
            given += [f"{k}={self.source(v)}" for k, v in call.kwargs.items()]
            self.lines.append(f"{name} = {self._imported(call.path)}(\n    " + ",\n    ".join(given) + ",\n)")
            self._names[id(call.result)] = name
        self.lines.append(f'print("{label}:", {label})')

    def _imported(self, path: str) -> str:
        parts = path.split(".")
        cut = next((i for i, p in enumerate(parts) if p[:1].isupper()), len(parts) - 1)
        self.imports[f"from {'.'.join(parts[:cut])} import {parts[cut]}"] = None
        return ".".join(parts[cut:])

    def source(self, value: Any) -> str:  # noqa: ANN401, PLR0911 - one line per kind of value
        """Python source of a value.

        Raises:
            Unwritable: for an object that is neither data nor a recorded result.
        """
        if id(value) in self._names:
            return self._names[id(value)]
        if isinstance(value, Tensor):
            text = f"torch.tensor({_literal(value.detach().tolist())}, dtype={value.dtype})"
            return f"{text}.requires_grad_()" if value.requires_grad else text
        if isinstance(value, np.ndarray):
            self.imports["import numpy as np"] = None
            kind = "object" if value.dtype == object else repr(str(value.dtype))
            return f"np.array({_literal(value.tolist())}, dtype={kind})"
        if isinstance(value, enum.Enum):
            return f"{self._imported(f'{type(value).__module__}.{type(value).__qualname__}')}.{value.name}"
        if value is None or isinstance(value, bool | int | float | str):
            return _literal(value)
        if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
            inner = ", ".join(self.source(v) for v in value)
            return f"[{inner}]" if isinstance(value, list) else f"({inner},)"
        if isinstance(value, Mapping) and type(value) is dict:
            return "{" + ", ".join(f"{k!r}: {self.source(v)}" for k, v in value.items()) + "}"
        if dataclasses.is_dataclass(value):
            kind = self._imported(f"{type(value).__module__}.{type(value).__qualname__}")
            fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
            return f"{kind}(" + ", ".join(f"{k}={self.source(v)}" for k, v in fields.items()) + ")"
        if type(value).__name__ == "SimpleNamespace":
            self.imports["from types import SimpleNamespace"] = None
            return "SimpleNamespace(" + ", ".join(f"{k}={self.source(v)}" for k, v in vars(value).items()) + ")"
        message = f"no source text for a {type(value).__name__}"
        raise Unwritable(message)

    def text(self) -> list[str]:
        """The script, line by line, without its first line (which names the packages)."""
        return [*sorted(self.imports), "", *self.lines]


def _literal(value: Any) -> str:  # noqa: ANN401
    if isinstance(value, list):
        return "[" + ", ".join(_literal(v) for v in value) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, float):
        return repr(round(value, 7))
    return repr(value)
