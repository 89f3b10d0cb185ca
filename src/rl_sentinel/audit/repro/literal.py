"""Write values as Python source."""

import dataclasses
import enum
import math
import sys
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
from torch import Tensor

#: Plain classes that hold settings, and their modules.
_NAMESPACES = {SimpleNamespace: "types", Namespace: "argparse"}


class Unwritable(Exception):  # noqa: N818 - the script is left out, with this reason
    """Raised if a value has no source text."""


@dataclass(slots=True)
class Names:
    """Names that the source may use: imports, and objects that already have a name."""

    imports: dict[str, None]
    known: dict[int, str] = field(default_factory=dict)

    def imported(self, path: str) -> str:
        """Import the object at a dotted path and return its name."""
        parts = path.split(".")
        cut = next((i for i, p in enumerate(parts) if p[:1].isupper()), len(parts) - 1)
        # A path may go on through what a module imports: skyrl.worker.torch.cuda is in the module skyrl.worker.
        cut = next((n for n in range(cut, 0, -1) if ".".join(parts[:n]) in sys.modules), cut)
        self.imports[f"from {'.'.join(parts[:cut])} import {parts[cut]}"] = None
        return ".".join(parts[cut:])


def source(value: Any, names: Names) -> str:  # noqa: ANN401, PLR0911 - one line per kind of value
    """Python source of a value.

    Raises:
        Unwritable: for an object that is neither plain data nor in the names.
    """
    if id(value) in names.known:
        return names.known[id(value)]
    if isinstance(value, Tensor):
        text = f"torch.tensor({literal(value.detach().tolist())}, dtype={value.dtype})"
        return f"{text}.requires_grad_()" if value.requires_grad else text
    if isinstance(value, np.ndarray):
        names.imports["import numpy as np"] = None
        kind = "object" if value.dtype == object else repr(str(value.dtype))
        return f"np.array({literal(value.tolist())}, dtype={kind})"
    if isinstance(value, enum.Enum):
        return f"{names.imported(f'{type(value).__module__}.{type(value).__qualname__}')}.{value.name}"
    if value is None or isinstance(value, bool | int | float | str):
        return literal(value)
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        inner = ", ".join(source(v, names) for v in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner},)" if value else "()"
    if isinstance(value, Mapping) and type(value) is dict:
        return "{" + ", ".join(f"{k!r}: {source(v, names)}" for k, v in value.items()) + "}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kind = names.imported(f"{type(value).__module__}.{type(value).__qualname__}")
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
        return f"{kind}(" + ", ".join(f"{k}={source(v, names)}" for k, v in fields.items()) + ")"
    if type(value) in _NAMESPACES:
        kind = type(value).__name__
        names.imports[f"from {_NAMESPACES[type(value)]} import {kind}"] = None
        return f"{kind}(" + ", ".join(f"{k}={source(v, names)}" for k, v in vars(value).items()) + ")"
    message = f"a value of type {type(value).__name__} cannot be written as Python source"
    raise Unwritable(message)


def literal(value: Any) -> str:  # noqa: ANN401 - numbers, text, lists of them
    """Python source of plain data; a float that is exact in float32 has the fewest digits that give it in float32."""
    if isinstance(value, list):
        return "[" + ", ".join(literal(v) for v in value) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, float):
        with np.errstate(over="ignore"):
            narrow = np.float32(value)
        return repr(float(str(narrow)) if narrow == value else value)
    return repr(value)
