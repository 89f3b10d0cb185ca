"""``Verdict``: the result of one law at one boundary under one setting."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Outcome = Literal["holds", "broken", "not-applicable", "errored"]

OUTCOMES: tuple[Outcome, ...] = ("holds", "broken", "not-applicable", "errored")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of one law at one boundary under one setting.

    ``tried`` counts the cases that fulfilled the precondition and were compared; with 0 the outcome is never
    ``holds``. ``evidence`` is set if ``broken``: plain JSON, from which all reports are made.
    """

    law: str
    boundary: str
    setting: str
    outcome: Outcome
    tried: int = 0
    reason: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Validate that ``holds`` has at least one tried case."""
        if self.outcome == "holds" and self.tried == 0:
            message = f"verdict[{self.law}, {self.boundary}] holds with 0 cases tried, expected at least 1"
            raise ValueError(message)
