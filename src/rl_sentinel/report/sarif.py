"""The SARIF 2.1.0 report: findings at their source lines, for code scanning."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rl_sentinel import __version__
from rl_sentinel.audit.findings import Finding
from rl_sentinel.report.finding_block import block, sentence
from rl_sentinel.report.results import Results

#: Level of a finding -> level of SARIF.
LEVELS: Mapping[str, str] = {"fault": "error", "contested": "warning", "hazard": "note"}


def as_sarif(results: Sequence[Results]) -> str:
    """All findings of all targets, one run for each target."""
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [_run(target) for target in results],
    }
    return json.dumps(log, indent=1) + "\n"


def _run(results: Results) -> dict[str, Any]:
    rules = {f.law: _rule(f) for f in results.findings}
    order = sorted(rules)
    return {
        "tool": {"driver": {"name": "rl-sentinel", "version": __version__, "rules": [rules[code] for code in order]}},
        "automationDetails": {"id": f"rl-sentinel/{results.target}"},
        "results": [_result(f, order.index(f.law)) for f in results.findings],
    }


def _rule(finding: Finding) -> dict[str, Any]:
    name = str(finding.evidence["law_name"])
    text = name.replace("-", " ")
    return {"id": finding.law, "name": name, "shortDescription": {"text": text}}


def _result(finding: Finding, rule: int) -> dict[str, Any]:
    source = finding.evidence["source"]
    file = {"uri": source["file"] or "unknown", "uriBaseId": "%SRCROOT%"}
    result: dict[str, Any] = {
        "ruleId": finding.law,
        "ruleIndex": rule,
        "level": LEVELS[finding.level],
        "message": {"text": sentence(finding.evidence)},
        "locations": [
            {
                "physicalLocation": {"artifactLocation": file, "region": {"startLine": max(1, int(source["line"]))}},
                "logicalLocations": [{"fullyQualifiedName": finding.boundary, "kind": "function"}],
            }
        ],
        "partialFingerprints": {"signature/v1": finding.signature},
        "properties": {"setting": finding.setting, "report": "\n".join(block([finding]))},
    }
    if finding.accepted:
        result["suppressions"] = [{"kind": "external", "justification": finding.known or "accepted"}]
    return result
