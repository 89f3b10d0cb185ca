"""The seeds that live in git histories, on their faulty and their fixed side."""

import os
from collections.abc import Iterator

from running import audited, digest, replayed

#: Variable with the history's path, framework, faulty target, fixed revision, law, boundary.
HISTORIES = (
    ("AREAL", "areal", "areal==1.0.4", "cdc1c4783", "MSK003", "*_compute_advantages"),
    ("SLIME", "slime", "045310b2b~1", "045310b2b", "MET004", "*compute_advantages_and_returns"),
    ("SLIME", "slime", "624b824a8", "ff40142cd", "SCP001", "*compute_opsm_mask"),
)


def lines() -> Iterator[str]:
    """What was found on the faulty side, and what replay says there and on the fixed side."""
    yield "| faulty | found | replay there | fixed | replay there |"
    yield "|---|---|---|---|---|"
    for variable, name, faulty, fixed, law, boundary in HISTORIES:
        path = os.environ.get(variable, "")
        if not path:
            yield f"| {name} {faulty} | not run: {variable} is not set | | | |"
            continue
        target = faulty if "==" in faulty else f"{name}@{path}#{faulty}"
        report, _ = audited(target, "--law", law, "--boundary", boundary)
        there, after = replayed(report, target), replayed(report, f"{name}@{path}#{fixed}")
        found = ", ".join(f["signature"] for f in report["findings"]) or "nothing"
        shown = digest(report).replace(path, "HISTORY")
        yield f"| {shown} | {found} | {_words(there.said)} | {fixed} | {_words(after.said)} |"


def _words(said: str) -> str:
    return ", ".join(sorted({line.partition(":")[0] for line in said.splitlines() if ":" in line}))
