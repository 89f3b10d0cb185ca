"""Write the table of what is not applicable to the library itself, from an audit's JSON report.

    python scripts/applicability.py REPORT.json docs/not-applicable.toml

Each entry is a law, the reason that the audit gave, the boundaries, and why a person agreed
(``reviewed``), which is kept from the table that is there and empty where the entry is new.
"""

import json
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

PREFIX = "rl_sentinel.signal."

HEAD = """\
# Pairs of law and boundary of the library itself that have no verdict, and why a person agrees.
# An audit of rl_sentinel must give exactly these (tests/house/test_self_audit.py); after a change,
#     rl-sentinel audit rl_sentinel --json report.json
#     python scripts/applicability.py report.json docs/not-applicable.toml
# rewrites the pairs and keeps what was reviewed. Every other pair is tried.
"""


def table(verdicts: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], list[str]]:
    """Law and reason -> boundaries with their settings, in order."""
    found: dict[tuple[str, str], list[str]] = {}
    for v in verdicts:
        if v["outcome"] == "not-applicable":
            name = f"{v['boundary'].removeprefix(PREFIX)} [{v['setting']}]"
            found.setdefault((v["law"], v["reason"]), []).append(name)
    return {key: sorted(names) for key, names in sorted(found.items())}


def written(found: Mapping[tuple[str, str], list[str]], reviewed: Mapping[tuple[str, str], str]) -> str:
    """The table as TOML."""
    parts = [HEAD]
    for key, names in found.items():
        lines = "".join(f"    {json.dumps(n)},\n" for n in names)
        why = json.dumps(reviewed.get(key, ""))
        law, reason = map(json.dumps, key)
        parts.append(f"[[pair]]\nlaw = {law}\nreason = {reason}\nreviewed = {why}\nboundaries = [\n{lines}]\n")
    return "\n".join(parts)


def read(text: str) -> tuple[dict[tuple[str, str], list[str]], dict[tuple[str, str], str]]:
    """The pairs of a table, and what was reviewed of them."""
    entries = tomllib.loads(text).get("pair", [])
    pairs = {(e["law"], e["reason"]): e["boundaries"] for e in entries}
    return pairs, {(e["law"], e["reason"]): e["reviewed"] for e in entries}


if __name__ == "__main__":
    report, place = Path(sys.argv[1]), Path(sys.argv[2])
    old = read(place.read_text(encoding="utf-8"))[1] if place.exists() else {}
    seen = table(json.loads(report.read_text(encoding="utf-8"))["verdicts"])
    place.write_text(written(seen, old), encoding="utf-8")
