"""List functions of the signal path that no boundary enters, each with the reviewed reason if there is one."""

import tomllib
from collections.abc import Iterable, Sequence
from importlib import resources

from rl_sentinel.audit.source.signal_functions import SignalFunction


def unbound_functions(functions: Sequence[SignalFunction], entered: Iterable[str]) -> list[SignalFunction]:
    """The functions that no call trace (``file:line:qualified name``) contains.

    A function also counts as entered if only a nested function was entered.
    """
    reached = {(place, name) for place, _, name in (entry.split(":", 2) for entry in entered)}
    outer = {(place, name.partition(".<locals>")[0]) for place, name in reached}
    return [f for f in functions if (f.file, f.name) not in outer]


def reviewed_reasons(framework: str) -> dict[tuple[str, str], str]:
    """(File, qualified name) -> the reviewed reason why no boundary enters the function."""
    file = resources.files("rl_sentinel") / "known" / "unbound" / f"{framework}.toml"
    if not file.is_file():
        return {}
    rows = tomllib.loads(file.read_text(encoding="utf-8")).get("function", [])
    return {(row["file"], name): row["reason"] for row in rows for name in row["names"]}
