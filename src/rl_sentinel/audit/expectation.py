"""Compare the findings of an audit with an expectation file."""

import re
from collections.abc import Iterable, Sequence

from rl_sentinel.audit.findings import Audit, Finding
from rl_sentinel.audit.known import KnownFile
from rl_sentinel.core.verdict import Verdict

#: A reason that is an exception of the target, such as "ValueError: two rows"; its group is the class.
_EXCEPTION = re.compile(r"([A-Z]\w+): ")


def refusals(verdicts: Iterable[Verdict]) -> list[str]:
    """Pairs that are not applicable because the target raised an exception for all cases, sorted, with its class."""
    raised = ((v, _EXCEPTION.match(v.reason)) for v in verdicts if v.outcome == "not-applicable")
    return sorted(f"{v.law} {v.boundary} [{v.setting}]: {found[1]}" for v, found in raised if found)


def differences(expected: KnownFile, audit: Audit, findings: Sequence[Finding]) -> list[str]:
    """One line for each finding, level, folded place, count or refusal that is not as expected; empty if all agree.

    Places are compared only for entries that list them (``also``), counts and refusals only if the file has them.
    """
    expected_levels = {(e.signature, e.level) for e in expected.finding}
    levels = {(f.signature, f.level) for f in findings}
    lines = [f"missing: {s} ({v})" for s, v in sorted(expected_levels - levels)]
    lines += [f"not expected: {s} ({v})" for s, v in sorted(levels - expected_levels)]
    places_of = {f.signature: set(f.also) for f in findings}
    for entry in expected.finding:
        if entry.also is None or entry.signature not in places_of:
            continue
        places, expected_places = places_of[entry.signature], set(entry.also)
        lines += [f"missing: {entry.signature} through {p}" for p in sorted(expected_places - places)]
        lines += [f"not expected: {entry.signature} through {p}" for p in sorted(places - expected_places)]
    for name in ("not_applicable", "errored"):
        count = getattr(expected, name)
        if count is not None and count != audit.counts[name]:
            lines.append(f"{name}: {audit.counts[name]}, expected {count}")
    if expected.refused is not None:
        refused = set(refusals(audit.verdicts))
        lines += [f"no longer refused: {r}" for r in sorted(set(expected.refused) - refused)]
        lines += [f"not expected to be refused: {r}" for r in sorted(refused - set(expected.refused))]
    return lines
