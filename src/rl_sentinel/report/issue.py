"""The issue report: Markdown in the form in which maintainers receive a finding."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rl_sentinel.adapters.installation import Installation
from rl_sentinel.audit.findings import Finding
from rl_sentinel.report.formatting import numbers
from rl_sentinel.report.repro import script
from rl_sentinel.report.scenario import scenario


def as_issue(found: Sequence[tuple[Installation, Finding]]) -> str:
    """All findings, one section each, every one with what its script needs."""
    return "\n\n---\n\n".join(_section(f, needs) for needs, f in found) + "\n"


def _section(f: Finding, needs: Installation) -> str:
    e = f.evidence
    columns = "\n".join(f"{name} = {values}" for name, values in scenario(e))
    target = e["target"]
    seen = f"{target['framework']} {target['version'] or target.get('commit') or target['spec']}"
    recipe = {k: e[k] for k in ("candidate_id", "law", "boundary", "setting", "knobs")}
    recipe |= {"differing_cells": e["expectation"]["broken"]["cells"]}
    output = "\n".join(_results(e["expectation"]["results"])) or e["expectation"]["sentence"]
    parts = [
        f"# {e['law_name']} at `{f.boundary}`",
        f"## Summary\n\nIn {seen}, {e['expectation']['sentence']}. Level: {f.level}.",
        f"## Minimal example\n\n```\n{columns}\n```",
        f"## Source\n\n`{e['source']['file']}`, line {e['source']['line']}",
        f"## Validation recipe\n\n```json\n{json.dumps(recipe, indent=2)}\n```",
        f"## Runner\n\n```python\n{script(f, needs)}```",
        f"## Observed output\n\n```\n{output}\n```",
        f"## Reach\n\n{e['reach'] or 'Any run that calls this function.'}",
        f"## Could it be intended?\n\n{e['could_be_intended'] or 'No reading is known that makes it right.'}",
        "## Duplicate check\n\n"
        + (f"Known: {f.known}" if f.known else "To be done against the tracker before filing."),
    ]
    return "\n\n".join(parts)


def _results(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Expected and observed numbers of each output that was compared."""
    for result in results:
        if result["expected"] is not None:
            yield f"expected {numbers(result['expected'])}"
        yield f"observed {numbers(result['observed'])}"
