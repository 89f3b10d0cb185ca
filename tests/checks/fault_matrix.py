"""A small GRPO code base in one layout, with faults planted in its functions."""

import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any

#: The classes of faults; each layout has one of each.
CLASSES = frozenset(
    {
        *("sign", "clip", "stopped gradient", "denominator", "mask", "population of a statistic"),
        *("order of KL and log", "direction of a KL", "shift", "grouping", "aggregation", "deviation"),
    }
)


@dataclass(frozen=True)
class Module:
    """The source of a module, how each of its functions is checked, and faults as ``(function, old, new)``."""

    source: str
    checks: dict[str, dict[str, Any]]
    faults: dict[str, tuple[str, str, str]]

    def function(self, name: str, fault: str = "") -> Any:
        """One of the functions, with a fault planted in the module."""
        text = self.source
        if fault:
            _, old, new = self.faults[fault]
            assert old in text, (fault, old)
            text = text.replace(old, new)
        module = ModuleType("own_code")
        sys.modules[module.__name__] = module
        exec(compile(text, __file__, "exec"), vars(module))  # noqa: S102 - the source is ours
        return vars(module)[name]
