"""Compare the findings of an audit with an expectation file."""

from collections.abc import Sequence

from rl_sentinel.audit.findings import Audit, Finding
from rl_sentinel.audit.known import KnownFile


def differences(expected: KnownFile, audit: Audit, findings: Sequence[Finding]) -> list[str]:
    """One line for each finding, level, folded place or count that differs from the expectation; empty if all agree.

    Places are compared only for entries that list them (``also``), counts only if the file has them.
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
    return lines
