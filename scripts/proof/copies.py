"""Copies of the release: one with all corrections, others with an accident put in."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from repair import corrected
from running import MAIN, audited, digest, outcomes, replayed

from rl_sentinel.audit.source.cache import home

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
    """Which findings the corrections take away, and what replay says of one."""
    before, _ = audited(MAIN)
    with tempfile.TemporaryDirectory() as scratch:
        corrected(RELEASE / "verl", Path(scratch) / "verl")
        copy = f"verl@{scratch}"
        after, _ = audited(copy)
        record = next(f["evidence"] for f in before["findings"] if f["signature"].endswith(CAUSE))
        there, fixed = replayed(record, MAIN), replayed(record, copy)
    old, new = ({k for k, v in outcomes(r).items() if v == "broken"} for r in (before, after))
    yield f"{digest(before)}, with `scripts/proof/corrections` in a copy."
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

    yield ""
    yield from _at_import(was)
    yield from _stood_in(was)


def _at_import(was: dict[str, str]) -> Iterator[str]:
    """A module that cannot be imported: its boundaries say so by name, all others are as before."""
    now = _appended("rollout_corr_helper.py", 'raise RuntimeError("at the import")')
    told = {k.split(" ", 1)[1].rpartition(" [")[0] for k, v in now.items() if v == "errored"}
    lost = {k for k in was if k not in now}
    silent = {k for k in lost if k.split(" ", 1)[1].rpartition(" [")[0] not in told}
    moved = sorted(k for k, v in now.items() if v != "errored" and was.get(k, v) != v)
    others = "; ".join(moved) or "none"
    yield f"With an exception at the end of rollout_corr_helper.py {len(told)} boundaries are errored by name, of which"
    yield f"{len(lost)} pairs are; lost without a word: {len(silent)}; moved elsewhere: {others}."
    yield ""


def _stood_in(was: dict[str, str]) -> Iterator[str]:
    """A function that a stand-in was put in the place of: nothing holds of it."""
    now = _appended("core_algos.py", f'{FUNCTION} = __import__("unittest.mock").mock.MagicMock()')
    own = [k for k in was if f"core_algos.{FUNCTION} [" in k]
    counts = {o: sum(now.get(k, "errored") == o for k in own) for o in ("errored", "not-applicable", "broken", "holds")}
    told = ", ".join(f"{number} {outcome}" for outcome, number in counts.items())
    yield f"With a `MagicMock` in the place of {FUNCTION}, of its own {len(own)} pairs: {told}."


def _appended(module: str, line: str) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "copy"
        shutil.copytree(RELEASE, copy)
        with (copy / "verl" / "trainer" / "ppo" / module).open("a", encoding="utf-8") as text:
            text.write(f"\n\n{line}\n")
        found: dict[str, str] = outcomes(audited(f"verl@{copy}")[0])
    return found


def _with_line(text: str, line: str) -> str:
    head, name, rest = text.partition(f"def {FUNCTION}(")
    signature, quotes, body = rest.partition('"""')
    page, close, after = body.partition('"""\n')
    return head + name + signature + quotes + page + close + f"    {line}\n" + after
