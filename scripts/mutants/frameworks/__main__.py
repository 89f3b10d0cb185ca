"""``python -m mutants.frameworks TARGET``: plant mutants into a framework's path functions, and audit each one."""

import argparse
import hashlib
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import rl_sentinel
from mutants.frameworks import page
from mutants.frameworks.draw import drawn, path_mutants
from mutants.frameworks.trial import Audits, Result
from mutants.sites import Mutant
from rl_sentinel.audit.sandbox.request import LEADING_CASES
from rl_sentinel.audit.sandbox.worker_process import request
from rl_sentinel.audit.source.cache import digest_of
from rl_sentinel.audit.source.target_spec import parse_target

ROOT = Path(__file__).parents[3]

#: Share of found ones below which the run fails.
ENOUGH = 0.9


def seed_of(commit: str, draw: int) -> int:
    """The seed of a draw: the first is the commit as a number (the digest of a release), others hash it."""
    text = commit if draw == 1 else hashlib.sha256(f"{commit} {draw}".encode()).hexdigest()
    return int(text[:7], 16)


def main() -> int:
    """Run; 0 if enough mutants are found and none that is listed as equivalent is."""
    parser = argparse.ArgumentParser(prog="mutants.frameworks", description=__doc__)
    parser.add_argument("target", help="as for `rl-sentinel audit`: verl==0.9.1, slime@PATH#REV")
    parser.add_argument("--count", type=int, default=20, help="how many mutants to draw")
    parser.add_argument("--draw", type=int, default=1, help="another draw of the same commit; leaves the page alone")
    parser.add_argument("--again", action="store_true", help="the mutants of the page instead of a draw")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="only mutants whose name contains this; leaves the page alone")
    parser.add_argument("--list", action="store_true", help="list the mutants, and try none")
    parser.add_argument("--store", type=Path, default=ROOT / ".mutants.jsonl", help="where results are kept")
    options = parser.parse_args()
    began, target = time.monotonic(), parse_target(options.target)
    job, source = request(target, "audit", budget=LEADING_CASES, jobs=1)
    root, package = Path(job.root), target.framework.package_of(Path(job.root))
    state = hashlib.sha256(f"{digest_of(Path(rl_sentinel.__file__).parent)} {source.digest} {LEADING_CASES}".encode())
    audits = Audits(job, package, options.store, state.hexdigest())
    reach, seed = audits.reach(), seed_of(source.commit or source.digest, options.draw)
    every = list(path_mutants(root, reach.functions()))
    place = ROOT / "docs" / "framework-mutants.md"
    before = place.read_text(encoding="utf-8") if place.exists() else ""
    named = page.page_name(target.text)
    some = page.listed(before, named, every, root) if options.again else drawn(every, options.count, seed)
    chosen = [m for m in some if options.only in m.name]

    def outcome(mutant: Mutant) -> Result:
        return audits.tried(mutant, reach.boundaries(mutant))

    if options.list:
        sys.stdout.writelines(f"{m.operator}: {m.name} ({len(reach.boundaries(m))} boundaries)\n" for m in chosen)
        return 0
    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(zip(chosen, pool.map(outcome, chosen), strict=True))
    for mutant, result in results:
        line = f"{result.outcome}: {mutant.operator} {mutant.name} (line {mutant.line}) {result.law} {result.where}"
        sys.stdout.write(f"{line} {result.detail}\n")
    figures = page.Draw(target.text, seed, len(every), results, root)
    sys.stdout.write(f"{page.summary(figures)}\n{time.monotonic() - began:.0f} s\n")
    if not options.only and options.draw == 1:
        place.write_text(page.page(figures, before, again=options.again), encoding="utf-8")
    return int(bool(page.mistaken(figures)) or page.rate(figures) < ENOUGH)


if __name__ == "__main__":
    sys.exit(main())
