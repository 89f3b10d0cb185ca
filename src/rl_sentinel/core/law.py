"""``Law``: a relation that every correct boundary of certain stages obeys."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from rl_sentinel.core.boundary import Boundary, Stage
from rl_sentinel.core.case import Case
from rl_sentinel.core.claims import NAMES, unknown_claim
from rl_sentinel.core.expectations import Expectation
from rl_sentinel.core.observation import Ask

Level = Literal["fault", "contested", "hazard"]

_CODE = re.compile(r"[A-Z]{3}\d{3}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """One law; its page is the docstring of the module that defines it.

    Attributes:
        code, name: such as ``"MSK001"``, and the name of the module with hyphens.
        stages: the stages of the boundaries that it may apply to.
        applies: returns the reason why the law does not apply to a boundary, or "".
        vary: draws the ``n``-th variant of a case, or None if the precondition does not hold; it runs again on every
            shrunk case.
        expect: calls the boundary and yields expectations on its results.
        variants: number of variants of each case.
        level: the level of a case that breaks the law.
        own_level: the level of a case at a user's function, if it differs: callers of such a function are unknown.
        of_dead_rows: ``own_level`` does not count where callers are known to pass rows without a trained token.
        few_cases: tried on fewer leading cases, because its faults show on almost any case.
        fails: with ``"on-all-cases"``, the law is broken only if every compared case breaks an expectation.
        intended: the argument why a contested finding may be intended, or a function that returns it for a boundary.
        at_once: all settings of a boundary are checked together, under the first one.
        shows_with: code of the law whose finding at the same boundary has the same cause; the finding of this law is
            then listed under it.
        claims: names of the claims that decide whether the law applies, or what it expects.
    """

    code: str
    name: str
    stages: frozenset[Stage]
    applies: Callable[[Boundary], str]
    vary: Callable[[Case, int], Case | None]
    expect: Callable[[Ask, Case], Iterator[Expectation]]
    variants: int = 1
    level: Callable[[Case], Level] = lambda _case: "fault"
    own_level: Callable[[Case], Level] | None = None
    of_dead_rows: bool = False
    few_cases: bool = False
    fails: Literal["on-one-case", "on-all-cases"] = "on-one-case"
    intended: str | Callable[[Boundary], str] = ""
    at_once: bool = False
    shows_with: str = ""
    claims: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the form of the code and the names of the claims."""
        if not _CODE.fullmatch(self.code):
            message = f"law code is {self.code!r}, expected three letters and three digits"
            raise ValueError(message)
        unknown = next((name for name in self.claims if name not in NAMES), None)
        if unknown is not None:
            message = f"{self.code}: {unknown_claim(unknown)}"
            raise ValueError(message)

    def level_at(self, boundary: Boundary, case: Case) -> Level:
        """The level of a case that breaks the law at a boundary."""
        known = self.of_dead_rows and boundary.has_dead_rows
        return self.own_level(case) if boundary.own and self.own_level and not known else self.level(case)

    def intended_at(self, boundary: Boundary) -> str:
        """The argument why a contested finding at a boundary may be intended, or an empty string."""
        return self.intended if isinstance(self.intended, str) else self.intended(boundary)


def validate_claims(laws: Iterable[Law], names: Iterable[str] = NAMES) -> None:
    """Check that at least one law reads each claim.

    Raises:
        ValueError: if no law declares a claim; the message names the claim.
    """
    declared = {name for law in laws for name in law.claims}
    for name in names:
        if name not in declared:
            message = f"claim {name!r} is read by no law: declare it in the law that reads it, or delete it"
            raise ValueError(message)
