"""Run each experiment over five seeds, and write docs/train-proof.md; what was run before is not run again."""

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
RUN = [sys.executable, "-c", "from rl_sentinel.cli.main import run; run()", "train"]

#: A fault in the place of the path; no-EOS responses void or rejected, and half a point for each of their characters.
#: Void ones with rewards normalised over their group, then advantages over all tokens; or over the batch, with a second
#: baseline, against which a void one is no longer 0.
FAULT = "path=examples/faults.py:"
VOID = (
    "rollout.unended=suppress",
    "reward.normalisation={mean='group', deviation='group'}",
    "estimator={name='reinforce_plus_plus', discount=1.0, epsilon=1e-8}",
)
TWICE = (
    "rollout.unended=suppress",
    "reward.normalisation={mean='batch', deviation='batch'}",
    "estimator={name='grpo', standardise=false, epsilon=0.0}",
)
REJECTED, GROWS, HELD = ("rollout.unended=reject",), "environment.rambling=0.5", "kl.loss=0.04"

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
    ("no-EOS void, a second baseline, lenient reward", "sort", TWICE),
    (
        "no-EOS void, a second baseline, lenient reward, fault void_in_normalisation",
        "sort",
        (*TWICE, f"{FAULT}void_in_normalisation"),
    ),
    ("no-EOS void, a second baseline, reward grows with length", "sort", (*TWICE, GROWS)),
    (
        "no-EOS void, a second baseline, reward grows with length, fault void_in_normalisation",
        "sort",
        (*TWICE, GROWS, f"{FAULT}void_in_normalisation"),
    ),
    ("no-EOS void, a second baseline, reward grows with length, KL in the loss", "sort", (*TWICE, GROWS, HELD)),
    (
        "no-EOS void, a second baseline, reward grows with length, KL in the loss, fault void_in_normalisation",
        "sort",
        (*TWICE, GROWS, HELD, f"{FAULT}void_in_normalisation"),
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


class Seen(NamedTuple):
    """Of a run: accuracy at the steps that the page names, its curve, and seconds in all."""

    shares: list[float]
    curve: str
    seconds: float

    def cells(self) -> list[str]:
        """As the page has them."""
        return [*(f"{share:.2f}" for share in self.shares), f"`{self.curve}`", f"{self.seconds:.0f}"]


HEAD = """# Runs

Written by `make train-proof` at commit {commit}, Python {python}, torch {torch}: every experiment of
`scripts/train_proof.py` over seeds {seeds}, on CPU, one thread. A run is `rl-sentinel train recipes/RECIPE.toml
OVERRIDES seed=N`; the recipes hold every other setting. Accuracy is that of the sampled responses, a mean over the
steps named (ten around a quarter and half of the way, and the last ten); 128 responses a step, so a step's standard
error is about .04 at .3 and .03 at .9, a mean of ten steps' a third of it. Seconds are those of the reinforcement, the
warm start left out, on a machine that did other work. A curve is accuracy from 0 to 1 over the steps, five a block.
What it says is told in [train.md](train.md).

## Over the seeds

| experiment | runs | step 1 | a quarter of the way | half of the way | last ten steps, least to most | mean |
|---|---|---|---|---|---|---|
{over}

## Every run

| experiment | recipe | overrides | seed | step 1 | at a quarter | at half | last ten | curve | seconds |
|---|---|---|---|---|---|---|---|---|---|
{runs}
"""


def main() -> None:
    """Run what is missing, then write the page."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--home", type=Path, default=ROOT / "runs" / "proof")
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--only", default="", help="experiments whose title holds this; the page is not written")
    options.add_argument("--page", action="store_true", help="write the page of what was run, and run nothing")
    given = options.parse_args()
    over, runs = [], []
    for title, recipe, overrides in EXPERIMENTS:
        if given.only not in title:
            continue
        seen = []
        for seed in range(given.seeds):
            out = given.home / f"{title.replace(', ', '-').replace(' ', '_')}-{seed}"
            told = [*overrides, f"seed={seed}", f"out={out}"]
            if not given.page:
                subprocess.run([*RUN, str(ROOT / "recipes" / f"{recipe}.toml"), *told], check=True, cwd=ROOT)
            run = _seen(out)
            seen += [run.shares] if run else []
            cells = run.cells() if run else ["not run"] * 6
            runs.append(f"| {title} | {recipe} | {' '.join(overrides)} | {seed} | {' | '.join(cells)} |")
        over.append(f"| {title} | {len(seen)} | {' | '.join(_over(seen))} |")
    if not given.only:
        asked = ["git", "rev-parse", "--short", "HEAD"]
        page = HEAD.format(
            commit=subprocess.check_output(asked, text=True, cwd=ROOT).strip(),
            python=platform.python_version(),
            torch=version("torch"),
            seeds=f"0 to {given.seeds - 1}",
            over="\n".join(over),
            runs="\n".join(runs),
        )
        (ROOT / "docs" / "train-proof.md").write_text(page, encoding="utf-8")


def _seen(out: Path) -> Seen | None:
    """What a run came to; None of one that is not whole."""
    if not (out / "metrics.jsonl").is_file():
        return None
    lines, spent = (
        [json.loads(x) for x in (out / f"{n}.jsonl").read_text().splitlines()] for n in ("metrics", "timing")
    )
    if len(lines) < json.loads((out / "recipe.json").read_text())["steps"]:
        return None
    accuracy = [float(line["accuracy"]) for line in lines]
    around = [accuracy[n - 5 : n + 5] for n in (len(lines) // 4, len(lines) // 2)]
    curve = bars(accuracy, width=len(lines) // 5, least=0.0, most=1.0)
    return Seen([fmean(x) for x in (accuracy[:1], *around, accuracy[-10:])], curve, sum(x["seconds"] for x in spent))


def _over(seen: Sequence[Sequence[float]]) -> list[str]:
    """The range of each share over seeds, and the mean of the last."""
    if not seen:
        return ["not run"] * 5
    spans = [f"{min(column):.2f} to {max(column):.2f}" for column in zip(*seen, strict=True)]
    return [*spans, f"{fmean(shares[-1] for shares in seen):.2f}"]


main()
