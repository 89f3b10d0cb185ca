"""Write the table of pairs of the library that are not applicable, from the JSON report of an audit.

    rl-sentinel audit rl_sentinel --json report.json
    python scripts/applicability.py report.json docs/not-applicable.toml

    python scripts/applicability.py --share report.json ...

prints, per target, the share of pairs that are not applicable because a claim, an output or a setting is missing.

One row is a law and a reason that the audit gave. ``reviewed`` says why a person agrees that the reason holds wherever
it is given; it is kept from the existing table and is empty in a new row. ``boundaries`` is the number of boundaries.
"""

import json
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

HEAD = """\
# Pairs of law and boundary of the library itself that are not applicable, by reason, and why a person agrees.
# Generated but for the reviews: rl-sentinel audit rl_sentinel --json report.json
#     && python scripts/applicability.py report.json docs/not-applicable.toml
# tests/house/test_self_audit.py compares it with an audit. Every other pair was tried.
"""

#: Law and reason -> number of boundaries and settings.
Table = Mapping[tuple[str, str], int]


def table(verdicts: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], int]:
    """The rows of an audit's verdicts."""
    counts = Counter((v["law"], v["reason"]) for v in verdicts if v["outcome"] == "not-applicable")
    return dict(sorted(counts.items()))


def written(rows: Table, reviewed: Mapping[tuple[str, str], str]) -> str:
    """The table as TOML."""
    parts = [HEAD]
    for key, count in rows.items():
        law, reason, review = map(json.dumps, (*key, reviewed.get(key, "")))
        parts.append(f"[[row]]\nlaw = {law}\nreason = {reason}\nreviewed = {review}\nboundaries = {count}\n")
    return "\n".join(parts)


def read(text: str) -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], str]]:
    """The rows of a table, and their reviews."""
    rows = tomllib.loads(text).get("row", [])
    return {(r["law"], r["reason"]): r["boundaries"] for r in rows}, {
        (r["law"], r["reason"]): r["reviewed"] for r in rows
    }


#: How reasons begin that a claim, an output or a setting would remove.
MISSING = (
    "the boundary claims no",
    "the boundary does not claim",
    "the boundary's claimed scope",
    "the boundary exposes no",
    "the boundary does not expose",
    "the boundary logs no",
    "the boundary declares no",
    "no output is",
    "the boundary has no advantage per token",
)


def share(report: Mapping[str, Any]) -> str:
    """One line on a report: the pairs without a verdict for a missing claim, output or setting."""
    pairs = [v for v in report["verdicts"] if v["law"] != "*"]
    skipped = [v for v in pairs if v["outcome"] == "not-applicable"]
    missing = sum(v["reason"].startswith(MISSING) for v in skipped)
    of = f"{missing} of {len(pairs)} pairs ({missing / max(1, len(pairs)):.1%})"
    return f"{report['target']}: {of} lack a claim, an output or a setting; {len(skipped)} are not applicable"


if __name__ == "__main__":
    if sys.argv[1] == "--share":
        for name in sys.argv[2:]:
            print(share(json.loads(Path(name).read_text(encoding="utf-8"))))  # noqa: T201 - a command's output
        sys.exit()
    report, place = Path(sys.argv[1]), Path(sys.argv[2])
    reviews = read(place.read_text(encoding="utf-8"))[1] if place.exists() else {}
    rows = table(json.loads(report.read_text(encoding="utf-8"))["verdicts"])
    place.write_text(written(rows, reviews), encoding="utf-8")
