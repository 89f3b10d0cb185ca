"""``docs/mutants.md``: the figures, and every mutant that survived."""

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import rl_sentinel
from mutants.operators import OPERATORS
from mutants.results import Result
from mutants.sites import Mutant
from mutants.trial import RECOMPUTED

EQUIVALENT = Path(__file__).with_name("equivalent.toml")

SOURCES = Path(rl_sentinel.__file__).parent / "signal"

Tried = Sequence[tuple[Mutant, Result]]

#: Judge -> name of a mutant -> its outcome.
Beside = Mapping[str, Mapping[str, Result]]

OTHERS = """\
## Besides the laws

The same mutants before other judges. *The tests of its module* are its own test file and its functions' cases against
the formulas, in `tests/signal`. polgrad 0.2.1 is a package for the conformance of policy-gradient losses. It runs where
it has a function that corresponds to one that runs the mutated code: six losses by its own check (`assert_conforms`:
values and gradients); GRPO, RLOO, REINFORCE++ baseline, GAE, four KLs, a KL in the reward, three aggregations and the
value loss by its functions on its random batches. It has no function for the rest.
"""

HEAD = """\
# Mutants of the signal library

How many small faults do the laws find? One fault at a time is put into `rl_sentinel.signal`. There are two figures:

1. **Laws on the signal**: faults in what is computed. Each faulty library is audited as any framework is: a smoke
   check, then every law at every boundary that runs the changed function, on all small cases and 16 random ones. No
   unit test takes part.
2. **Contract checks**: faults in what is refused (argument checks). The laws do not judge these; the unit tests do.

`make mutants` repeats this and rewrites this page; an interrupted run continues where it stopped.

The seed of the draw is the last commit that changed `signal` (as a number), so nobody chooses it.

- **killed**: some law is broken at some boundary (or, for contract checks, some unit test fails).
- **loud**: the fault shows without a law: the module does not import, a call raises, an output never moves, or a batch
  is refused that was answered before. These are not counted.
- **survived**: it runs, and every law holds. Listed below; *equivalent* are those whose results are argued to differ by
  no more than rounding.
"""


class Draw(NamedTuple):
    """Mutants that were drawn and their outcomes, how many there are to draw from, and the seed."""

    tried: Tried
    every: int
    seed: int


class Figures(NamedTuple):
    """The draws of the page: of the signal, and of contract checks."""

    signal: Draw
    contracts: Draw


def equivalents() -> dict[str, str]:
    """Name of a mutant -> why it is equivalent."""
    entries = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8")).get("argument", [])
    return {name: e["why"] for e in entries for name in e["mutants"]}


def rate(tried: Tried) -> float:
    """Share of killed ones among those that run and are not equivalent."""
    same = equivalents()
    counted = [r["outcome"] == "killed" for m, r in tried if r["outcome"] != "loud" and m.name not in same]
    return float(sum(counted) / max(1, len(counted)))


def mistaken(tried: Tried) -> list[str]:
    """Mutants that are listed as equivalent, and were killed or loud."""
    same = equivalents()
    return [m.name for m, r in tried if m.name in same and r["outcome"] != "survived"]


def summary(tried: Tried, every: int, seed: int) -> str:
    """The figures in a few lines."""
    counts = Counter(str(r["outcome"]) for _, r in tried)
    same = equivalents()
    equal = sum(r["outcome"] == "survived" and m.name in same for m, r in tried)
    runs = counts["killed"] + counts["survived"]
    by = Counter(r["law"] in RECOMPUTED for _, r in tried if r["outcome"] == "killed")
    return (
        f"{len(tried)} of {every} possible mutants were tried (drawn with seed {seed}, commit {seed:07x}): "
        f"{counts['loud']} are loud, {runs} run.\n"
        f"Of these {runs}, the laws kill {counts['killed']} ({counts['killed'] / max(1, runs):.1%}); "
        f"{counts['survived']} survive, of which {equal} are equivalent.\nWithout the equivalent ones, "
        f"{rate(tried):.1%} are killed: {by[False]} by a relation between calls, {by[True]} only where a quantity\n"
        f"is recomputed from its definition ({', '.join(RECOMPUTED)}, which are asked last)."
    )


def contract_summary(tried: Tried, every: int, seed: int) -> str:
    """The figure of contract checks."""
    same = equivalents()
    counted = [(m, r) for m, r in tried if m.name not in same]
    killed = sum(r["outcome"] == "killed" for _, r in counted)
    return (
        f"{len(tried)} of {every} possible mutants of contract checks were tried (drawn with seed {seed}, "
        f"commit {seed:07x}), of which {len(tried) - len(counted)} are equivalent.\n"
        f"Of the other {len(counted)}, the unit tests kill "
        f"{killed} ({killed / max(1, len(counted)):.1%})."
    )


def page(figures: Figures, beside: Beside) -> str:
    """The whole page."""
    signal, contracts = figures
    tables = [*_others(signal.tried, beside), *_laws(signal.tried), *_operators(signal.tried)]
    return "\n".join(
        [
            HEAD,
            "## Laws on the signal\n",
            summary(*signal),
            "",
            "## Contract checks\n",
            contract_summary(*contracts),
            "",
            *tables,
            "## Survivors\n",
            *_left(signal.tried),
            "## Contract checks that survived\n",
            *_left(contracts.tried),
        ]
    )


def _others(tried: Tried, beside: Beside) -> list[str]:
    """Of the mutants that run and are not equivalent: kills of the other judges and of the laws."""
    same = equivalents()
    running = {m.name: r["outcome"] for m, r in tried if r["outcome"] != "loud" and m.name not in same}
    lines = [
        OTHERS,
        "| who | asked of | kills | the laws kill of these | both | neither |",
        "|---|---|---|---|---|---|",
    ]
    for who, outcomes in beside.items():
        asked = [n for n in running if outcomes[n]["outcome"] != "no such function"]
        own, laws = (
            {n for n in asked if x[n] == "killed"} for x in ({n: outcomes[n]["outcome"] for n in asked}, running)
        )
        counts = (len(asked), len(own), len(laws), len(own & laws), len(set(asked) - own - laws))
        lines.append(f"| {who} | {' | '.join(map(str, counts))} |")
    return [*lines, ""]


def _laws(tried: Tried) -> list[str]:
    first = Counter(str(r["law"]) for _, r in tried if r["outcome"] == "killed")
    lines = ["## The law that killed first\n", "| law | mutants |", "|---|---|"]
    return [*lines, *(f"| {law} | {count} |" for law, count in sorted(first.items())), ""]


def _operators(tried: Tried) -> list[str]:
    lines = ["## The operators\n", "| operator | what it does | killed | survived | loud |", "|---|---|---|---|---|"]
    for name, operator in OPERATORS.items():
        counts = Counter(str(r["outcome"]) for m, r in tried if m.operator == name)
        what = (operator.__doc__ or "").strip().replace("|", "\\|")
        lines.append(f"| {name} | {what} | {counts['killed']} | {counts['survived']} | {counts['loud']} |")
    return [*lines, ""]


def _left(tried: Tried) -> list[str]:
    same = equivalents()
    survived = sorted((m for m, r in tried if r["outcome"] == "survived"), key=lambda m: m.name)
    open_ones = [_item(m) for m in survived if m.name not in same]
    lines = (
        ["Not argued to be equivalent, so a law, a case or a test may be missing:\n", *open_ones, ""]
        if open_ones
        else []
    )
    for why in sorted({same[m.name] for m in survived if m.name in same}):
        lines += [f"Equivalent: {why}\n", *(_item(m) for m in survived if same.get(m.name) == why), ""]
    return lines


def _item(mutant: Mutant) -> str:
    """The change, and its line."""
    line = (SOURCES / mutant.module).read_text(encoding="utf-8").splitlines()[mutant.line - 1].strip()
    return f"- {mutant.module} {mutant.function}: `{mutant.before}` -> `{mutant.after}` in `{line}`"
