"""``python -m mutants``: audit mutants of ``signal`` with the laws alone, and write what became of them."""

import argparse
import hashlib
import heapq
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import rl_sentinel
from mutants import beside as judges
from mutants import page
from mutants.results import Result, Store, digest
from mutants.sites import Mutant, mutants
from mutants.trial import Baseline, Trial
from rl_sentinel.audit.worker.children import run_all
from rl_sentinel.audit.worker.main import laws
from rl_sentinel.core.law import Law
from rl_sentinel.frameworks import loading
from rl_sentinel.frameworks.reference import FRAMEWORK
from rl_sentinel.frameworks.target import Target

PACKAGE = Path(rl_sentinel.__file__).parent
ROOT = Path(__file__).parents[2]

#: Share of killed ones below which the run fails.
ENOUGH = 0.95


def every_mutant() -> list[Mutant]:
    """All mutants of all modules of ``signal``, in a fixed order."""
    root = PACKAGE / "signal"
    paths = sorted(root.rglob("*.py"))
    return [m for p in paths for m in mutants(str(p.relative_to(root)), p.read_text(encoding="utf-8"))]


def drawn(every: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """The ``count`` whose names hash lowest with the seed: what changes in one module draws no others elsewhere."""
    return every if count >= len(every) else heapq.nsmallest(count, every, key=lambda m: _lot(m.name, seed))


def _lot(name: str, seed: int) -> bytes:
    """The place of a mutant in the draw of a seed."""
    return hashlib.sha256(f"{seed} {name}".encode()).digest()


def baseline(target: Target, ordered: Sequence[Law]) -> Baseline:
    """What each boundary of the library as it stands enters and refuses."""
    events: list[dict[str, Any]] = []
    run_all([Trial(target, ordered)], 1, events.append)
    measured = [e for e in events if e["event"] == "measured"]
    return Baseline(
        {tuple(e["pair"]): frozenset(e["names"]) for e in measured}, {tuple(e["pair"]): e["refused"] for e in measured}
    )


def tried(chosen: list[Mutant], store: Store, jobs: int) -> list[tuple[Mutant, Result]]:
    """What became of each mutant; those that the store does not have are audited."""
    target = loading.load(FRAMEWORK, PACKAGE.parent, rl_sentinel.__version__)
    ordered = sorted(laws().values(), key=lambda law: law.code)
    missing = {m.name: m for m in chosen if store.get(m) is None}
    whole = baseline(target, ordered) if missing else None

    def take(event: dict[str, Any]) -> None:
        store.put(missing[event["boundary"]], {k: event[k] for k in ("outcome", "law", "detail")})
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{len(store.found)} tried, {len(missing)} to try ")

    run_all([Trial(target, ordered, whole, m) for m in missing.values()], jobs, take)
    return [(m, store.get(m) or {"outcome": "loud", "law": "", "detail": "no answer"}) for m in chosen]


def beside(found: page.Tried, place: Path, jobs: int) -> page.Beside:
    """By who else was asked, of each mutant that runs: what was seen, kept as the laws' verdicts are."""
    judges.importable()
    measured: list[dict[str, Any]] = []
    run_all([judges.Beside("polgrad", None, judges.by_peer({}))], 1, measured.append)
    asked = {"the tests of its module": judges.by_tests, "polgrad 0.2.1": judges.by_peer(measured[0]["reach"])}
    running = [m for m, r in found if r["outcome"] != "loud"]
    seen: dict[str, dict[str, Result]] = {}
    for who, ask in asked.items():
        store = Store(place, f"{who} {judges.digest(PACKAGE)}")
        missing = {m.name: m for m in running if store.get(m) is None}

        def take(event: dict[str, Any], store: Store = store, missing: dict[str, Mutant] = missing) -> None:
            store.put(missing[event["boundary"]], {k: event[k] for k in ("outcome", "detail")})

        run_all([judges.Beside(who, m, ask) for m in missing.values()], jobs, take)
        seen[who] = {m.name: store.get(m) or {"outcome": "killed", "detail": "no answer"} for m in running}
    return seen


def main() -> int:
    """Run; 0 if enough are killed, and nothing is called equivalent that is not."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=320, help="how many to draw")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fresh", type=int, default=2, help="seed of a second draw, for which nothing has been mended")
    parser.add_argument("--fresh-count", type=int, default=160, help="how many that one has")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="only those whose name has this in it; the page is left alone")
    parser.add_argument("--store", type=Path, default=ROOT / ".mutants.jsonl", help="where results are kept")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    every, began = every_mutant(), time.monotonic()
    chosen = [m for m in drawn(every, given.count, given.seed) if given.only in m.name]
    found = tried(chosen, Store(given.store, digest(PACKAGE)), given.jobs)
    same, lines = page.equivalents(), list[str]()
    for mutant, result in found:
        if given.only or (result["outcome"] == "survived" and mutant.name not in same):
            lines.append(f"{result['outcome']}: {mutant.name} (line {mutant.line}) {result['law']} {result['detail']}")
    store = Store(given.store, digest(PACKAGE))
    fresh = [] if given.only else tried(drawn(every, given.fresh_count, given.fresh), store, given.jobs)
    wrong = page.mistaken([*found, *fresh])
    lines += [f"called equivalent, and is not: {name}" for name in wrong]
    lines.append(page.summary(found, len(every), given.seed))
    lines += [] if given.only else [page.summary(fresh, len(every), given.fresh)]
    lines.append(f"{time.monotonic() - began:.0f} s")
    sys.stdout.write("\n".join(lines) + "\n")
    if not given.only:
        others = beside(found, given.store, given.jobs)
        text = page.page(found, len(every), given.seed, others, page.Fresh(fresh, given.fresh))
        (ROOT / "docs" / "mutants.md").write_text(text, encoding="utf-8")
    return int(bool(wrong) or page.rate(found) < ENOUGH)


if __name__ == "__main__":
    sys.exit(main())
