"""The results of one target, as the report formats receive them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rl_sentinel.audit.findings import Audit, Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """An audit of one target and its findings.

    Attributes:
        target: the target as the user wrote it.
        audit: all verdicts.
        findings: the findings that are shown, worst level first.
        seconds: how long the audit took.
        seed: the seed of the random cases.
        status: the exit status of this target alone.
    """

    target: str
    audit: Audit
    findings: Sequence[Finding]
    seconds: float = 0.0
    seed: int = 0
    status: int = 0

    def finding_of(self, evidence: Mapping[str, Any]) -> Finding | None:
        """The finding of a broken verdict, or the finding that includes it; None if it is not shown."""
        signature = str(evidence["signature"])
        return next((f for f in self.findings if signature in f.signatures), None)


def fails(finding: Finding) -> bool:
    """Whether a finding makes the exit status 1: a fault or contested finding that the user has not accepted."""
    return finding.level != "hazard" and not finding.accepted
