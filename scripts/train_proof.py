"""Run each experiment over five seeds, and write docs/train-proof.md; finished runs are not repeated."""

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from rl_sentinel.report.curves import bars

ROOT = Path(__file__).parents[1]
#: Without a certificate: it stops the runs with shuffled rewards or a fault before their first step.
RUN = [sys.executable, "-c", "from rl_sentinel.cli.main import run; run()", "train", "--uncertified"]

#: A path with a fault. SUPPRESSED: rewards of responses without an end are suppressed; rewards are normalized over
#: their group, then advantages over all tokens. TWICE: rewards are normalized over the batch, then a second baseline
#: is subtracted, so that a suppressed reward is no longer 0. REJECTED: such responses are rejected. GROWS: they get
#: half a point per character.
FAULT = "path=examples/faults.py:"
SUPPRESSED = (
    "rollout.unended=suppress",
    "reward.normalization={mean='group', deviation='group'}",
    "estimator={name='reinforce_plus_plus', discount=1.0, epsilon=1e-8}",
)
TWICE = (
    "rollout.unended=suppress",
    "reward.normalization={mean='batch', deviation='batch'}",
    "estimator={name='grpo', standardize=false, epsilon=0.0}",
)
REJECTED, GROWS, KL = ("rollout.unended=reject",), "environment.rambling=0.5", "kl.loss=0.04"

#: Title, recipe, overrides. All results are shown, good or bad.
EXPERIMENTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("sort", "sort", ()),
    ("sort, rewards shuffled across rows", "sort", ("rollout.shuffled_rewards=true",)),
    ("arithmetic", "arithmetic", ()),
    ("tools, two turns, merged", "tools", ()),
    ("tools, two turns, a row per turn", "tools", ("rollout.merged=false",)),
    ("tools, rewards shuffled across rows", "tools", ("rollout.shuffled_rewards=true",)),
    ("tools, a row per turn, fault last_step_alone", "tools", ("rollout.merged=false", f"{FAULT}last_step_alone")),
    ("no-EOS suppressed, lenient reward", "sort", SUPPRESSED),
    (
        "no-EOS suppressed, lenient reward, fault void_in_normalization",
        "sort",
        (*SUPPRESSED, f"{FAULT}void_in_normalization"),
    ),
    ("no-EOS suppressed, reward grows with length", "sort", (*SUPPRESSED, GROWS)),
    (
        "no-EOS suppressed, reward grows with length, fault void_in_normalization",
        "sort",
        (*SUPPRESSED, GROWS, f"{FAULT}void_in_normalization"),
    ),
    ("no-EOS suppressed, a second baseline, lenient reward", "sort", TWICE),
    (
        "no-EOS suppressed, a second baseline, lenient reward, fault void_in_normalization",
        "sort",
        (*TWICE, f"{FAULT}void_in_normalization"),
    ),
    ("no-EOS suppressed, a second baseline, reward grows with length", "sort", (*TWICE, GROWS)),
    (
        "no-EOS suppressed, a second baseline, reward grows with length, fault void_in_normalization",
        "sort",
        (*TWICE, GROWS, f"{FAULT}void_in_normalization"),
    ),
    ("no-EOS suppressed, a second baseline, reward grows with length, KL in the loss", "sort", (*TWICE, GROWS, KL)),
    (
        "no-EOS suppressed, a second baseline, reward grows with length, KL in the loss, fault void_in_normalization",
        "sort",
        (*TWICE, GROWS, KL, f"{FAULT}void_in_normalization"),
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


class Result(NamedTuple):
    """A run's accuracy at the steps of the page, its curve, and its total seconds."""

    shares: list[float]
    curve: str
    seconds: float

    def cells(self) -> list[str]:
        """The cells of a table row."""
        return [*(f"{share:.2f}" for share in self.shares), f"`{self.curve}`", f"{self.seconds:.0f}"]


HEAD = """# Runs

Written by `make train-proof` at commit {commit}, Python {python}, torch {torch}: every experiment of
`scripts/train_proof.py` over seeds {seeds}, on CPU, one thread. A run is `rl-sentinel train recipes/RECIPE.toml
OVERRIDES seed=N`; the recipes hold every other setting. Accuracy is that of the sampled responses, averaged over
the steps named (ten around a quarter and half of the run, and the last ten). With 128 responses per step, the standard
error of one step is about .04 at .3 and .03 at .9, and a third of it for ten steps. Seconds are those of the RL steps,
without the warm start, on a busy machine. A curve is accuracy from 0 to 1, five steps per block.
[train.md](train.md) explains the results.

## Over the seeds

| experiment | runs | step 1 | a quarter | half | last ten steps, minimum to maximum | mean |
|---|---|---|---|---|---|---|
{over}

## Every run

| experiment | recipe | overrides | seed | step 1 | at a quarter | at half | last ten | curve | seconds |
|---|---|---|---|---|---|---|---|---|---|
{runs}
"""


def main() -> None:
    """Run the missing runs, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=ROOT / "runs" / "proof")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default="", help="run experiments whose title contains this; do not write the page")
    parser.add_argument("--page", action="store_true", help="write the page from finished runs only")
    options = parser.parse_args()
    over, runs = [], []
    for title, recipe, overrides in EXPERIMENTS:
        if options.only not in title:
            continue
        shares = []
        for seed in range(options.seeds):
            out = options.home / f"{title.replace(', ', '-').replace(' ', '_')}-{seed}"
            arguments = [*overrides, f"seed={seed}", f"out={out}"]
            if not options.page:
                subprocess.run([*RUN, str(ROOT / "recipes" / f"{recipe}.toml"), *arguments], check=True, cwd=ROOT)
            run = _result(out)
            shares += [run.shares] if run else []
            cells = run.cells() if run else ["not run"] * 6
            runs.append(f"| {title} | {recipe} | {' '.join(overrides)} | {seed} | {' | '.join(cells)} |")
        over.append(f"| {title} | {len(shares)} | {' | '.join(_over(shares))} |")
    if not options.only:
        command = ["git", "rev-parse", "--short", "HEAD"]
        page = HEAD.format(
            commit=subprocess.check_output(command, text=True, cwd=ROOT).strip(),
            python=platform.python_version(),
            torch=version("torch"),
            seeds=f"0 to {options.seeds - 1}",
            over="\n".join(over),
            runs="\n".join(runs),
        )
        (ROOT / "docs" / "train-proof.md").write_text(page, encoding="utf-8")


def _result(out: Path) -> Result | None:
    """The result of a finished run; None for others."""
    if not (out / "metrics.jsonl").is_file():
        return None
    metrics, timing = (
        [json.loads(x) for x in (out / f"{n}.jsonl").read_text().splitlines()] for n in ("metrics", "timing")
    )
    if len(metrics) < json.loads((out / "recipe.json").read_text())["steps"]:
        return None
    accuracy = [float(line["accuracy"]) for line in metrics]
    around = [accuracy[n - 5 : n + 5] for n in (len(metrics) // 4, len(metrics) // 2)]
    curve = bars(accuracy, width=len(metrics) // 5, least=0.0, most=1.0)
    return Result([fmean(x) for x in (accuracy[:1], *around, accuracy[-10:])], curve, sum(x["seconds"] for x in timing))


def _over(runs: Sequence[Sequence[float]]) -> list[str]:
    """The range of each accuracy over seeds, and the mean of the last."""
    if not runs:
        return ["not run"] * 5
    spans = [f"{min(column):.2f} to {max(column):.2f}" for column in zip(*runs, strict=True)]
    return [*spans, f"{fmean(shares[-1] for shares in runs):.2f}"]


main()
