"""Run each experiment over five seeds, and write docs/train-proof.md; what was run before is not run again."""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
RUN = [sys.executable, "-c", "from rl_sentinel.cli.main import run; run()", "train"]

#: A fault in the place of the path; no-EOS responses void or rejected, and half a point for each of their characters.
FAULT = "path=examples/faults.py:"
VOID = (
    "rollout.unended=suppress",
    "reward.normalisation={mean='batch', deviation='batch'}",
    "estimator={name='grpo', standardise=false, epsilon=0.0}",
)
REJECTED, GROWS = ("rollout.unended=reject",), "environment.rambling=0.5"

#: Title, recipe, overrides. Every one is shown, whatever came of it.
EXPERIMENTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("sort", "sort", ()),
    ("sort, rewards shuffled across rows", "sort", ("rollout.shuffled_rewards=true",)),
    ("arithmetic", "arithmetic", ()),
    ("tools, two turns, merged", "tools", ()),
    ("tools, two turns, a row per turn", "tools", ("rollout.merged=false",)),
    ("tools, rewards shuffled across rows", "tools", ("rollout.shuffled_rewards=true",)),
    ("tools, a row per turn, fault last_step_alone", "tools", ("rollout.merged=false", f"{FAULT}last_step_alone")),
    ("no-EOS void, lenient reward", "sort", VOID),
    ("no-EOS void, lenient reward, fault void_in_normalisation", "sort", (*VOID, f"{FAULT}void_in_normalisation")),
    ("no-EOS void, reward grows with length", "sort", (*VOID, GROWS)),
    (
        "no-EOS void, reward grows with length, fault void_in_normalisation",
        "sort",
        (*VOID, GROWS, f"{FAULT}void_in_normalisation"),
    ),
    ("no-EOS rejected", "sort", REJECTED),
    ("no-EOS rejected, fault rejected_in_baseline", "sort", (*REJECTED, f"{FAULT}rejected_in_baseline")),
    ("no-EOS rejected, reward grows with length", "sort", (*REJECTED, GROWS)),
    (
        "no-EOS rejected, reward grows with length, fault rejected_in_baseline",
        "sort",
        (*REJECTED, GROWS, f"{FAULT}rejected_in_baseline"),
    ),
)

HEAD = """# Runs

Written by `make train-proof`: every experiment of `scripts/train_proof.py` over seeds {seeds}, on CPU, one thread.
Accuracy is that of the sampled responses, a mean over the steps named; 128 responses a step, so a step's standard error
is about .04 at .3 and .03 at .9, a mean of ten steps' a third of it. Seconds are those of the reinforcement, the warm
start left out, on a machine that did other work.

| experiment | overrides | seed | step 1 | a quarter of the way | last ten steps | seconds |
|---|---|---|---|---|---|---|
"""


def main() -> None:
    """Run what is missing, then write the page."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--home", type=Path, default=ROOT / "runs" / "proof")
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--only", default="", help="experiments whose title holds this; the page is not written")
    options.add_argument("--page", action="store_true", help="write the page of what was run, and run nothing")
    given = options.parse_args()
    rows = []
    for title, recipe, overrides in EXPERIMENTS:
        if given.only not in title:
            continue
        for seed in range(given.seeds):
            out = given.home / f"{title.replace(', ', '-').replace(' ', '_')}-{seed}"
            told = [*overrides, f"seed={seed}", f"out={out}"]
            if not given.page:
                subprocess.run([*RUN, str(ROOT / "recipes" / f"{recipe}.toml"), *told], check=True, cwd=ROOT)
            rows.append(f"| {title} | {' '.join(overrides)} | {seed} | {' | '.join(_numbers(out))} |")
    if not given.only:
        page = HEAD.format(seeds=f"0 to {given.seeds - 1}") + "\n".join(rows) + "\n"
        (ROOT / "docs" / "train-proof.md").write_text(page, encoding="utf-8")


def _numbers(out: Path) -> list[str]:
    if not (out / "checkpoints").is_dir():
        return ["not run"] * 4
    seen, spent = (
        [json.loads(x) for x in (out / f"{n}.jsonl").read_text().splitlines()] for n in ("metrics", "timing")
    )
    quarter = len(seen) // 4
    parts: Sequence[Sequence[dict[str, float]]] = (seen[:1], seen[quarter - 5 : quarter + 5], seen[-10:])
    shares = [sum(line["accuracy"] for line in part) / len(part) for part in parts]
    return [f"{share:.2f}" for share in shares] + [f"{sum(line['seconds'] for line in spent):.0f}"]


main()
