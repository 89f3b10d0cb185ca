"""The same findings whatever the seed, and each of them small and quick to replay."""

from collections.abc import Iterator
from typing import Any

from running import MAIN, audited, digest, replayed

SEEDS = ("0", "1", "7", "12345", "987654321")


def lines() -> Iterator[str]:
    """Whether five seeds find the same, batch by batch, and what a replay costs."""
    reports = [audited(MAIN, "--seed", seed)[0] for seed in SEEDS]
    found = [{f["signature"]: f for f in report["findings"]} for report in reports]
    same = all(set(each) == set(found[0]) for each in found)
    equal = [s for s in found[0] if same and len({_batch(f[s]) for f in found}) == 1]
    yield f"{digest(reports[0])} with the seeds {', '.join(SEEDS)}: "
    yield f"{'the same' if same else 'DIFFERENT'} findings; {len(equal)} of {len(found[0])} with the same batch."
    yield ""
    yield "| finding | rows x tokens | replay exits | processor seconds |"
    yield "|---|---|---|---|"
    for signature, finding in found[0].items():
        ran = replayed(finding["evidence"], MAIN)
        yield f"| {signature} | {finding['rows']} x {finding['tokens']} | {ran.status} | {ran.processor:.1f} |"


def _batch(finding: dict[str, Any]) -> str:
    return str(finding["evidence"]["constructed_scenario"]["batch"])
