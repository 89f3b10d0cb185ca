"""What an audit costs, and what older releases give."""

from collections.abc import Iterator

from running import MAIN, audited, digest

OLDER = ("verl==0.2.0.post2", "verl==0.4.1", "verl==0.6.1", "verl==0.8.0")


def lines() -> Iterator[str]:
    """A table: releases, counts, seconds by the clock and of processors."""
    yield "`rl-sentinel audit TARGET`, everything fetched before; errored pairs are listed below the table."
    yield ""
    yield "| target | seconds | processor seconds | holds | broken | not applicable | errored |"
    yield "|---|---|---|---|---|---|---|"
    errored = []
    for target in (MAIN, *OLDER):
        audited(target, "--law", "PUR002", "--budget", "2")
        report, ran = audited(target)
        counts = " | ".join(str(n) for n in report["counts"].values())
        yield f"| {digest(report)} | {ran.seconds:.0f} | {ran.processor:.0f} | {counts} |"
        errored += [f"- {target}: {v}" for v in report["verdicts"] if v["outcome"] == "errored"]
    yield ""
    yield from errored or ["No pair is errored."]
