"""Copies of the release: one with the estimator repaired, others with an accident put in."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from repair import repaired
from running import MAIN, audited, digest, outcomes, replayed

from rl_sentinel.audit.cache import home

RELEASE = home() / "releases" / "verl-0.9.1"
CAUSE = "MSK001:verl.trainer.ppo.core_algos.compute_grpo_outcome_advantage:default"
FUNCTION = "compute_grpo_outcome_advantage"

#: What is put at the head of the estimator.
ACCIDENTS = {
    "ends the process": "import os; os._exit(3)",
    "never ends": "while True: pass",
    "takes 20 GB": "torch.zeros(20 * 2**30, dtype=torch.uint8)",
    "returns nothing": "return None",
    "answers a constant": "return torch.zeros_like(token_level_rewards), torch.zeros_like(token_level_rewards)",
}


def repair() -> Iterator[str]:
    """Which findings a repair takes away, and what replay says of it."""
    before, _ = audited(MAIN)
    with tempfile.TemporaryDirectory() as scratch:
        copy = f"verl@{repaired(RELEASE, Path(scratch) / 'copy')}"
        after, _ = audited(copy)
        record = next(f["evidence"] for f in before["findings"] if f["signature"].endswith(CAUSE))
        there, fixed = replayed(record, MAIN), replayed(record, copy)
    old, new = ({k for k, v in outcomes(r).items() if v == "broken"} for r in (before, after))
    yield f"{digest(before)}, with {FUNCTION} mended in a copy (`scripts/proof/repair.py`)."
    yield f"Replay on the release exits {there.status}; on the copy {fixed.status}: `{fixed.said.split(':')[0]}`."
    yield ""
    yield from (f"- lost: {x}" for x in sorted(old - new))
    yield from (f"- gained: {x}" for x in sorted(new - old))


def accidents() -> Iterator[str]:
    """What an accident in one function costs."""
    before, _ = audited(MAIN)
    was = outcomes(before)
    yield f"{digest(before)}, copied, with one line put at the head of {FUNCTION}. Pairs that enter it are those"
    yield "that the first accident, the end of the process, makes errored; *moved* are changed pairs among the others."
    yield ""
    yield "| the function | seconds | errored | hold though they entered it | moved |"
    yield "|---|---|---|---|---|"
    entering: set[str] = set()
    for name, line in ACCIDENTS.items():
        with tempfile.TemporaryDirectory() as scratch:
            copy = Path(scratch) / "copy"
            shutil.copytree(RELEASE, copy)
            module = copy / "verl" / "trainer" / "ppo" / "core_algos.py"
            module.write_text(_with_line(module.read_text(encoding="utf-8"), line), encoding="utf-8")
            after, ran = audited(f"verl@{copy}")
        now = outcomes(after)
        changed = {k for k, v in now.items() if was.get(k) != v}
        errored = {k for k in changed if now[k] == "errored"}
        entering = entering or errored
        held = {k for k in entering if now.get(k) == "holds"}
        moved = sorted(changed - entering)
        yield f"| {name} | {ran.seconds:.0f} | {len(errored)} | {len(held)} | {'; '.join(moved) or 'none'} |"


def _with_line(text: str, line: str) -> str:
    head, name, rest = text.partition(f"def {FUNCTION}(")
    signature, quotes, body = rest.partition('"""')
    page, close, after = body.partition('"""\n')
    return head + name + signature + quotes + page + close + f"    {line}\n" + after
