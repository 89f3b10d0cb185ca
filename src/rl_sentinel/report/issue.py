"""Render a finding as an issue for the framework's tracker: Markdown with a test that does not need RL-Sentinel."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rl_sentinel.adapters.installation import Installation
from rl_sentinel.audit.findings import Finding
from rl_sentinel.report.advice import advice
from rl_sentinel.report.finding_block import also_broken, sentence, when
from rl_sentinel.report.formatting import numbers
from rl_sentinel.report.pytest_file import as_pytest
from rl_sentinel.report.repro import script
from rl_sentinel.report.scenario import scenario


def as_issue(f: Finding, needs: Installation) -> str:
    """The issue of one finding; ``needs`` lists the packages that its test needs."""
    e = f.evidence
    target = e["target"]
    version = f"{target['framework']} {target['version'] or target.get('commit') or target['spec']}"
    columns = "\n".join(f"{name} = {values}" for name, values in scenario(e))
    output = "\n".join(_results(e["expectation"]["results"]))
    test = as_pytest(f, needs)
    points = {
        "where": f"{version}, `{e['source']['file']}`, line {e['source']['line']}, setting {f.setting}",
        "level": f.level,
        "outputs": also_broken(e),
        "when": when(e),
        "what to do": advice(e),
        "could it be intended?": e["could_be_intended"],
        "already reported?": f.known or "not on the built-in list; search the tracker before filing",
    }
    parts = [
        f"# `{f.boundary.rpartition('.')[2]}`: {sentence(e)}",
        "\n".join(f"- {name}{'' if name.endswith('?') else ':'} {text}" for name, text in points.items() if text),
        f"Smallest input:\n\n```\n{columns}\n```",
        *([f"Result:\n\n```\n{output}\n```"] if output else []),
        f"{'Test' if test else 'Script'}:\n\n```python\n{test or script(f, needs)}```",
    ]
    return "\n\n".join(parts) + "\n"


def _results(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Expected and observed numbers of each output that was compared."""
    for result in results:
        if result["expected"] is not None:
            yield f"expected {result['output']} {numbers(result['expected'])}"
        yield f"observed {result['output']} {numbers(result['observed'])}"
