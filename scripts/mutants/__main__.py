"""``python -m mutants``: run the laws on mutants of the signal, the unit tests on mutants of contract checks."""

import argparse
import hashlib
import heapq
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import rl_sentinel
from mutants import beside as judges
from mutants import page, peer
from mutants.results import Result, Store, digest
from mutants.sites import Mutant, mutants
from mutants.trial import Baseline, Trial
from rl_sentinel.adapters import loading
from rl_sentinel.adapters.library import FRAMEWORK
from rl_sentinel.adapters.target import Target
from rl_sentinel.audit.engine.worker import laws
from rl_sentinel.audit.sandbox.supervisor import run_all
from rl_sentinel.core.law import Law

PACKAGE = Path(rl_sentinel.__file__).parent
ROOT = Path(__file__).parents[2]

#: Share of killed ones below which the run fails.
ENOUGH = 0.9


def every_mutant() -> list[Mutant]:
    """All mutants of all modules of ``signal``, in a fixed order: of the signal and of contract checks."""
    root = PACKAGE / "signal"
    paths = sorted(root.rglob("*.py"))
    return [m for p in paths for m in mutants(str(p.relative_to(root)), p.read_text(encoding="utf-8"))]


def signal_mutants() -> list[Mutant]:
    """Those that change what is computed."""
    return [m for m in every_mutant() if not m.contract]


def contract_mutants() -> list[Mutant]:
    """Those that only change what is refused."""
    return [m for m in every_mutant() if m.contract]


def sample(mutants: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """The ``count`` whose names hash lowest with the seed, so that a change of one module keeps the draw elsewhere."""
    return mutants if count >= len(mutants) else heapq.nsmallest(count, mutants, key=lambda m: _lot(m.name, seed))


def commit_seed() -> int:
    """The last commit that changed the signal, as a number."""
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%h", "--abbrev=7", "--", str(PACKAGE / "signal")]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout, 16)


def _lot(name: str, seed: int) -> bytes:
    """The hash of a mutant's name under a seed."""
    return hashlib.sha256(f"{seed} {name}".encode()).digest()


def baseline(target: Target, ordered: Sequence[Law]) -> Baseline:
    """The functions that each boundary of the unchanged library enters, and the cases that it refuses."""
    events: list[dict[str, Any]] = []
    run_all([Trial(target, ordered)], 1, events.append)
    measured = [e for e in events if e["event"] == "measured"]
    return Baseline(
        {tuple(e["pair"]): frozenset(e["names"]) for e in measured}, {tuple(e["pair"]): e["refused"] for e in measured}
    )


def tried(chosen: list[Mutant], store: Store, jobs: int) -> list[tuple[Mutant, Result]]:
    """The outcome of each mutant; those that the store lacks are audited."""
    target = loading.load(FRAMEWORK, PACKAGE.parent, rl_sentinel.__version__)
    ordered = sorted(laws().values(), key=lambda law: law.code)
    missing = {m.name: m for m in chosen if store.get(m) is None}
    whole = baseline(target, ordered) if missing else None

    def take(event: dict[str, Any]) -> None:
        store.put(missing[event["boundary"]], {k: event[k] for k in ("outcome", "law", "detail")})
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{len(store.results)} tried, {len(missing)} to try ")

    run_all([Trial(target, ordered, whole, m) for m in missing.values()], jobs, take)
    return [(m, store.get(m) or {"outcome": "loud", "law": "", "detail": "no answer"}) for m in chosen]


def judged(chosen: list[Mutant], who: str, ask: judges.Ask, place: Path, jobs: int) -> dict[str, Result]:
    """The outcome of each mutant before another judge than the laws; those that the store lacks are tried."""
    store = Store(place, f"{who} {judges.digest(PACKAGE)}")
    missing = {m.name: m for m in chosen if store.get(m) is None}
    if missing:
        unchanged: list[dict[str, Any]] = []
        run_all([judges.Beside(who, None, ask)], 1, unchanged.append)
        if unchanged[0]["outcome"] == "killed":
            sys.exit(f"{who}: the unchanged library fails {unchanged[0]['detail']}: run tests/signal")

    def take(event: dict[str, Any]) -> None:
        store.put(missing[event["boundary"]], {k: event[k] for k in ("outcome", "detail")})

    run_all([judges.Beside(who, m, ask) for m in missing.values()], jobs, take)
    return {m.name: store.get(m) or {"outcome": "killed", "detail": "no answer"} for m in chosen}


def beside(results: page.Tried, place: Path, jobs: int) -> page.Beside:
    """By judge: the outcome of each mutant that runs."""
    peer.fetch()
    measured: list[dict[str, Any]] = []
    run_all([judges.Beside("polgrad", None, judges.by_peer({}))], 1, measured.append)
    running = [m for m, r in results if r["outcome"] != "loud"]
    judges_by_name = {"the tests of its module": judges.by_tests, "polgrad 0.2.1": judges.by_peer(measured[0]["reach"])}
    return {who: judged(running, who, ask, place, jobs) for who, ask in judges_by_name.items()}


def contracts(count: int, seed: int, only: str, place: Path, jobs: int) -> page.Tried:
    """Mutants of contract checks before the unit tests."""
    chosen = [m for m in sample(contract_mutants(), count, seed) if only in m.name]
    outcomes = judged(chosen, "contracts", judges.by_tests, place, jobs)
    return [(m, outcomes[m.name]) for m in chosen]


def main() -> int:
    """Run; 0 if enough mutants of the signal are killed and no listed equivalent is."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=240, help="how many mutants of the signal to draw")
    parser.add_argument("--seed", type=int, default=None, help="default: the last commit that changed the signal")
    parser.add_argument("--contract-count", type=int, default=160, help="how many mutants of contract checks to draw")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="only mutants whose name contains this; leaves the page alone")
    parser.add_argument("--sample", action="store_true", help="leave the page alone")
    parser.add_argument("--store", type=Path, default=ROOT / ".mutants.jsonl", help="where results are kept")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    judges.importable()
    part, began = bool(options.only or options.sample), time.monotonic()
    mutants, place, jobs = signal_mutants(), options.store, options.jobs
    seed = commit_seed() if options.seed is None else options.seed
    chosen = [m for m in sample(mutants, options.count, seed) if options.only in m.name]
    results = tried(chosen, Store(place, digest(PACKAGE)), jobs)
    checks = contracts(options.contract_count, seed, options.only, place, jobs)
    same, lines = page.equivalents(), list[str]()
    for mutant, result in [*results, *checks]:
        if part or (result["outcome"] == "survived" and mutant.name not in same):
            law = result.get("law", "unit tests")
            lines.append(f"{result['outcome']}: {mutant.name} (line {mutant.line}) {law} {result['detail']}")
    wrong = page.mistaken([*results, *checks])
    lines += [f"listed as equivalent, but killed or loud: {name}" for name in wrong]
    lines.append(page.summary(results, len(mutants), seed))
    lines.append(page.contract_summary(checks, len(contract_mutants()), seed))
    lines.append(f"{time.monotonic() - began:.0f} s")
    sys.stdout.write("\n".join(lines) + "\n")
    if not part:
        figures = page.Figures(
            page.Draw(results, len(mutants), seed),
            page.Draw(checks, len(contract_mutants()), seed),
        )
        text = page.page(figures, beside(results, place, jobs))
        (ROOT / "docs" / "mutants.md").write_text(text, encoding="utf-8")
    return int(bool(wrong) or page.rate(results) < ENOUGH)


if __name__ == "__main__":
    sys.exit(main())
