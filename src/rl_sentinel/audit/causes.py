"""Group findings with the same cause into the blocks of a report."""

from collections.abc import Iterable

from rl_sentinel.audit.findings import Finding


def group_by_cause(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Group findings with the same cause, which a report shows as one block.

    Two findings have the same cause if law and level are the same, the same kind of expectation is broken, and

    - the code that is called and the output that is wrong are the same, or
    - the same change (of a column, or of a setting) has the wrong effect on the same output, or
    - no change is involved, and they claim the same algorithm, or
    - no batch is involved (the stage is config), and the sentence is the same.

    The first finding of a block is the one with the most other places.
    """
    blocks: list[list[Finding]] = []
    by_cause: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        causes = _cause_keys(finding)
        block = next((by_cause[c] for c in causes if c in by_cause), None)
        if block is None:
            block = []
            blocks.append(block)
        block.append(finding)
        by_cause |= {c: by_cause.get(c, block) for c in causes}
    return [sorted(block, key=lambda f: -len(f.also)) for block in blocks]


def _cause_keys(finding: Finding) -> list[tuple[str, ...]]:
    expectation = finding.evidence["expectation"]
    kind = (finding.law, finding.level, expectation["kind"])
    change = expectation["change"]
    causes: list[tuple[str, ...]] = [(*kind, "code", finding.place, expectation["output"])]
    if change is not None:
        return [*causes, (*kind, "change", change["column"] or change["subject"], expectation["output"])]
    if finding.evidence["stage"] == "config":
        causes.append((*kind, "sentence", expectation["sentence"]))
    algorithm = finding.evidence["claims"].get("algorithm")
    return [*causes, (*kind, "algorithm", algorithm["value"])] if algorithm else causes
