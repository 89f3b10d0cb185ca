"""The tables that a person has read: which tests differ from ours and why, and which ask for what we do not have."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from rl_sentinel.core.errors import SentinelError

Kind = Literal["agrees", "differs", "outside"]

#: What a test came to, by its name: outcome with ours, outcome with the framework's own, what of ours it entered.
Outcomes = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a table: a pattern of test names (``[`` and ``]`` stand for themselves), and the reason.

    ``run`` is False where tests are collected and not run, since what they need is not here.
    """

    tests: str
    reason: str
    run: bool = True

    def covers(self, test: str) -> bool:
        """Whether the pattern is of this test."""
        return fnmatchcase(test, self.tests.replace("[", "[[]").replace("[[]!", "[!"))


@dataclass(frozen=True, slots=True)
class Review:
    """The two tables of a framework."""

    differs: Sequence[Entry]
    outside: Sequence[Entry]

    @property
    def unrun(self) -> list[str]:
        """Patterns of tests that are collected and not run."""
        return [entry.tests for entry in self.outside if not entry.run]


def review(file: Path) -> Review:
    """Read the tables of a framework.

    Raises:
        SentinelError: if an entry lacks its tests or its reason, or says more.
    """
    found = tomllib.loads(file.read_text(encoding="utf-8"))
    try:
        return Review(*([Entry(**entry) for entry in found.get(name, [])] for name in ("differs", "outside")))
    except TypeError as error:
        raise SentinelError(
            f"{file.name} has an entry with other words ({error}), expected tests, reason, run"
        ) from error


def kind(seen: Mapping[str, Any]) -> Kind:
    """What a test's outcome says of our functions: nothing, where it entered none of them."""
    if not seen["entered"]:
        return "outside"
    return "agrees" if seen["outcome"] == "passed" else "differs"


def wrong(outcomes: Outcomes, own: Outcomes, tables: Review) -> list[str]:
    """What is not as the tables say, a line each; empty where every test is accounted for."""
    lines = []
    for test, seen in outcomes.items():
        found = kind(seen)
        if found == "differs" and not any(e.covers(test) for e in tables.differs):
            theirs = own.get(test, {}).get("outcome", "absent")
            lines.append(f"{test} differs, expected agreement ({theirs} with the framework's own): {seen['why']}")
        elif found == "outside" and not any(e.covers(test) for e in tables.outside):
            lines.append(f"{test} enters none of our functions ({seen['outcome']}), expected a reason in the table")
    files = {test.partition("::")[0] for test in outcomes}
    for name, entries in (("differs", tables.differs), ("outside", tables.outside)):
        for entry in entries:
            if not any(fnmatchcase(file, entry.tests.partition("::")[0]) for file in files):
                continue
            covered = [kind(seen) for test, seen in outcomes.items() if entry.covers(test)]
            others = sorted(set(covered) - {name})
            if others or not covered:
                told = f"a test that {' or '.join(others)}" if others else "no test"
                lines.append(f"the entry {entry.tests!r} under {name} is stale: it covers {told}")
    return lines
