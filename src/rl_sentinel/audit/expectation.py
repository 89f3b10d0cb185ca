"""Compare the findings of an audit with an expectation file."""

from collections.abc import Sequence

from rl_sentinel.audit.findings import Audit, Finding
from rl_sentinel.audit.known import KnownFile


def differences(expected: KnownFile, seen: Audit, shown: Sequence[Finding]) -> list[str]:
    """One line for each finding, level, folded place or count that differs from the expectation; empty if all agree.

    Places are compared only for entries that list them (``also``), counts only if the file has them.
    """
    wanted = {(e.signature, e.level) for e in expected.finding}
    found = {(f.signature, f.level) for f in shown}
    lines = [f"missing: {s} ({v})" for s, v in sorted(wanted - found)]
    lines += [f"not expected: {s} ({v})" for s, v in sorted(found - wanted)]
    through = {f.signature: set(f.also) for f in shown}
    for entry in expected.finding:
        if entry.also is None or entry.signature not in through:
            continue
        places = set(entry.also)
        lines += [f"missing: {entry.signature} through {p}" for p in sorted(places - through[entry.signature])]
        lines += [f"not expected: {entry.signature} through {p}" for p in sorted(through[entry.signature] - places)]
    for name in ("not_applicable", "errored"):
        count = getattr(expected, name)
        if count is not None and count != seen.counts[name]:
            lines.append(f"{name}: {seen.counts[name]}, expected {count}")
    return lines
