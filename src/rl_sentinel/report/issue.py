"""Render a finding as an issue for the framework's tracker: Markdown with a test that does not need RL-Sentinel."""

from collections.abc import Iterator, Mapping
from typing import Any

from rl_sentinel.audit.findings import Finding
from rl_sentinel.report.advice import general_advice
from rl_sentinel.report.finding_block import also_broken, sentence, when
from rl_sentinel.report.formatting import numbers, short_name
from rl_sentinel.report.scenario import has_batch, scenario

#: Lines that fit on one page; a longer test is a file beside the issue.
PAGE = 60


def as_issue(f: Finding, file: str, code: str) -> tuple[str, bool]:
    """The issue for one finding, and whether its code is too long for the page and must be attached.

    Args:
        f: the finding.
        file: name of the file for code that does not fit.
        code: a test, or a script if the finding has no test.
    """
    text = _issue(f, f"Code:\n\n```python\n{code}```")
    if len(text.splitlines()) <= PAGE:
        return text, False
    return _issue(f, f"Code: `{file}`, attached. It fails now and passes once fixed."), True


def _issue(f: Finding, code: str) -> str:
    e = f.evidence
    target = e["target"]
    version = f"{target['framework']} {target['version'] or target.get('commit') or target['spec']}"
    columns = "\n".join(f"{name} = {values}" for name, values in scenario(e))
    output = "\n".join(_results(e["expectation"]))
    entry = f.entry
    advice = general_advice(e)
    fix = (entry and entry.fix) or (f"{advice[0].upper()}{advice[1:]}." if advice else "")
    points = {
        "where": f"{version}, {_where(f)}",
        "level": f.level,
        "cause": entry.reason if entry else "",
        "outputs": also_broken(e),
        "when": when(e),
        "could it be intended?": e["could_be_intended"],
        "already reported?": (entry and entry.link) or "no report is known; search the tracker before filing",
    }
    parts = [
        f"# `{short_name(f.boundary)}`: {sentence(e)}",
        "\n".join(f"- {name}{'' if name.endswith('?') else ':'} {text}" for name, text in points.items() if text),
        *([f"Smallest input:\n\n```\n{columns}\n```"] if has_batch(e) else []),
        *([f"Result:\n\n```\n{output}\n```"] if output else []),
        *([f"Suggested fix:\n\n{fix}"] if fix else []),
        code,
    ]
    return "\n\n".join(parts) + "\n"


def _where(f: Finding) -> str:
    """File and line of each function that the test calls, in this order."""
    e = f.evidence
    places = e.get("places") or {f.boundary: f"{e['source']['file']}:{e['source']['line']}"}
    return " -> ".join(f"`{short_name(path)}` (`{place}`)" for path, place in places.items())


def _results(expectation: Mapping[str, Any]) -> Iterator[str]:
    """Expected and observed numbers of each output; for a change that must matter, before and after it."""
    first, second = ("before  ", "after   ") if expectation["kind"] == "Moves" else ("expected", "observed")
    for result in expectation["results"]:
        if result["expected"] is not None:
            yield f"{first} {result['output']} {numbers(result['expected'])}"
        yield f"{second} {result['output']} {numbers(result['observed'])}"
