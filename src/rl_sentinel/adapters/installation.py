"""Installation notes of a stand-alone script: packages, Python version, and state that the functions expect."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """An installation of a framework in which a script runs without RL-Sentinel.

    ``packages`` come with what they require, ``alone`` without (their requirements name another
    torch, or a GPU), both in words of pip; ``python`` is the version of Python where any newer than
    ours is needed; ``note`` stands behind the command. ``setup`` holds lines by the module whose
    functions need them, ``written`` how a name is written where the framework wraps it.
    """

    packages: str = "numpy"
    alone: str = ""
    python: str = ""
    note: str = ""
    setup: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    written: Mapping[str, str] = field(default_factory=dict)

    def command(self, torch: str) -> str:
        """One line that prepares a new environment."""
        line = f"pip install torch=={torch} {self.packages}"
        line += f" && pip install --no-deps {self.alone}" if self.alone else ""
        return (f"Python {self.python}: " if self.python else "") + line + (f"  # {self.note}" if self.note else "")

    def lines(self, script: list[str]) -> list[str]:
        """A recorded script as this installation runs it."""
        end = script.index("") if "" in script else 0
        imports, rest = script[:end], script[end:]
        setup = [line for module, lines in self.setup.items() if any(module in i for i in imports) for line in lines]
        for name, written in self.written.items():
            rest = [line.replace(f"{name}.", f"{written}.") for line in rest]
        return [*imports, *([""] if setup else []), *setup, *rest]


def requirement(name: str, version: str) -> tuple[str, str]:
    """A framework as pip names it, and how to call it: a release by its number, a checkout by its folder."""
    if version:
        return f"{name}=={version}", ""
    return f"./{name}", f"./{name}: the checkout that was audited"
