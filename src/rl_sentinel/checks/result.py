"""The result of ``rl_sentinel.check``: findings and verdicts, as objects, as text and in a notebook."""

import html
import io
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rich.console import Console

from rl_sentinel.audit.findings import Audit, Finding
from rl_sentinel.core.case import Case
from rl_sentinel.core.storage import case_from_json
from rl_sentinel.core.verdict import Verdict
from rl_sentinel.report import text
from rl_sentinel.report.finding_block import block

_HINTS = text.Hints(
    hazards='level="hazard"', reasons="result.verdicts", algorithm='algorithm="{}"', every="result.verdicts"
)


@dataclass(frozen=True)
class CheckFinding:
    """One broken law: its ``code``, ``level``, ``sentence`` and the smallest ``case`` that shows it."""

    finding: Finding

    @property
    def code(self) -> str:
        """The law's code, as in ``MSK001``."""
        return self.finding.law

    @property
    def level(self) -> str:
        """``fault``, ``contested`` or ``hazard``."""
        return self.finding.level

    @property
    def sentence(self) -> str:
        """One sentence about the fault."""
        return str(self.finding.evidence["expectation"]["sentence"])

    @cached_property
    def case(self) -> Case:
        """The smallest input; ``case.batch`` has its columns as tensors."""
        return case_from_json(self.finding.evidence["constructed_scenario"])

    @property
    def evidence(self) -> Mapping[str, Any]:
        """The finding as plain JSON, which ``rl-sentinel replay`` reads."""
        return self.finding.evidence

    def __str__(self) -> str:
        """The finding as the command line prints it."""
        return "\n".join(block([self.finding]))

    __repr__ = __str__


@dataclass(frozen=True)
class CheckResult:
    """The result of :func:`rl_sentinel.check`.

    Attributes:
        name: the dotted path of the function.
        findings: broken laws of the requested level or worse, worst first.
        verdicts: for each law and layout of the arguments: holds, broken, not applicable or errored.
        notes: how parameters without a stated binding were bound, and remarks on numbers and exceptions.
        no_replay: why a finding cannot be replayed by name later; empty if it can.
        seconds: how long the check took.
        hidden: number of findings below the requested level.
        unclaimed: an algorithm to suggest, if the caller stated none; may be empty.
    """

    name: str
    audit: Audit
    findings: tuple[CheckFinding, ...]
    seconds: float
    no_replay: str = ""
    hidden: int = 0
    unclaimed: str = ""

    @property
    def verdicts(self) -> list[Verdict]:
        """One verdict for each law and layout of the arguments."""
        return self.audit.verdicts

    @property
    def notes(self) -> list[str]:
        """How parameters without a stated binding were bound, and remarks on numbers and exceptions."""
        return self.audit.notes

    @property
    def errored(self) -> list[str]:
        """Why laws could not be checked: the reasons of the errored verdicts."""
        return list(dict.fromkeys(v.reason for v in self.verdicts if v.outcome == "errored"))

    @property
    def ok(self) -> bool:
        """Whether no fault was found, no verdict is errored, and at least one law holds or is broken."""
        return not self.faults and not self.errored and bool(self.audit.counts["holds"] + self.audit.counts["broken"])

    @property
    def faults(self) -> tuple[CheckFinding, ...]:
        """The findings of level fault."""
        return tuple(f for f in self.findings if f.level == "fault")

    def __str__(self) -> str:
        """The report, as the command line prints it."""
        out = io.StringIO()
        plain: dict[str, Any] = {"highlight": False, "emoji": False, "color_system": None, "force_jupyter": False}
        console = Console(file=out, soft_wrap=True, **plain)
        shown = [f.finding for f in self.findings]
        options: dict[str, Any] = {"unclaimed": self.unclaimed, "hints": _HINTS}
        text.show(console, self.name, self.audit, shown, self.seconds, self.hidden, **options)
        if self.findings and self.no_replay:
            console.print(f"replay: not possible, since {self.no_replay}; run the check again instead", markup=False)
        if self.errored and not self.faults:
            console.print("not ok: some laws could not be checked (errored)", markup=False)
        return out.getvalue().rstrip()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The report in a notebook."""
        color = "#b00020" if self.faults else "#8a6d00" if self.findings or not self.ok else "#1b7f3b"
        state = "fault" if self.faults else "contested" if self.findings else "sound" if self.ok else "inconclusive"
        head = f'<b style="color:{color}">{state}</b> {html.escape(self.name)}'
        return f'<div>{head}<pre style="white-space:pre-wrap">{html.escape(str(self))}</pre></div>'
