"""``docs/mutants.md``: the figures, and every mutant that no law noticed."""

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

#: By who else was asked: name of a mutant -> what was seen.
Beside = Mapping[str, Mapping[str, Result]]

OTHERS = """\
## Beside the laws

The same mutants, before others. *The tests of its module* are its own test file and its functions' cases against
the oracle, in `tests/signal`. polgrad 0.2.1, a package for the conformance of policy-gradient losses, is asked where
it has a function that corresponds to one that runs the mutated code: six losses by its own check (`assert_conforms`:
values and gradients); GRPO, RLOO, REINFORCE++ baseline, GAE, four KLs, a KL in the reward, three aggregations and the
value loss by its functions, on its random batches, since it has no check of these. Of all else it has none.
"""

HEAD = """\
# Mutants of the signal library

How much would the laws notice? Small faults are put into `rl_sentinel.signal`, one at a time, and each
faulty library is audited as any framework is: canary, then every law at every boundary that runs the changed
function, with the cases that an audit tries by default. No test of the library takes part. `make mutants`
does this anew and rewrites this page; a run that was stopped goes on where it was.

- **killed**: some law is broken at some boundary.
- **loud**: the change cannot go unnoticed, law or no law: the module does not import, the call raises, an output
  never moves, or a batch is refused that was answered before. These count neither way.
- **survived**: it runs, and every law holds. Listed below; *equivalent* are those for which it is argued that no
  result can differ by more than rounding.
"""


FRESH = """\
## A second draw

The survivors of the first were looked at one by one, and laws and cases mended where they showed a kind of fault that
none noticed; that figure is of the draw too. This one was drawn after that, and nothing was mended for it: what it says
is what to expect of a mutant that nobody has seen. Whoever mends something for its survivors draws another (`--fresh`).
"""


class Fresh(NamedTuple):
    """A draw for which nothing has been mended, and its seed."""

    tried: Tried
    seed: int


#: What a reader of the table must know of one law.
OF_CFG003 = """\
CFG003 is what the library refuses and what it must take: nonsense by name, and each function by its signature (kinds
and shapes of what it gives, numbers off the mask, nothing trained, packed rows against padded ones).
"""


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
    """Mutants that are called equivalent, and were killed or were loud."""
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
        f"{len(tried)} of {every} possible mutants were tried (drawn with seed {seed}): {counts['loud']} are loud, "
        f"{runs} run.\nOf these {runs}, the laws kill {counts['killed']} ({counts['killed'] / max(1, runs):.1%}); "
        f"{counts['survived']} survive, of which {equal} are equivalent.\nWithout the equivalent ones, "
        f"{rate(tried):.1%} are killed: {by[False]} by a relation between calls, {by[True]} only where a quantity\n"
        f"is recomputed from its definition ({', '.join(RECOMPUTED)}, which are asked last)."
    )


def page(tried: Tried, every: int, seed: int, beside: Beside, fresh: Fresh) -> str:
    """The whole page."""
    figures = ["## Figures\n", summary(tried, every, seed), ""]
    second = [FRESH, summary(fresh.tried, every, fresh.seed), ""]
    tables = [*_others(tried, beside), *_laws(tried), *_operators(tried)]
    left = ["## Survivors\n", *_left(tried), "## Survivors of the second draw\n", *_left(fresh.tried)]
    return "\n".join([HEAD, *figures, *second, *tables, *left])


def _others(tried: Tried, beside: Beside) -> list[str]:
    """Of the mutants that run and are not equivalent, what others see, and what the laws see of the same ones."""
    same = equivalents()
    running = {m.name: r["outcome"] for m, r in tried if r["outcome"] != "loud" and m.name not in same}
    lines = [
        OTHERS,
        "| who | asked of | kills | the laws kill of these | both | neither |",
        "|---|---|---|---|---|---|",
    ]
    for who, seen in beside.items():
        asked = [n for n in running if seen[n]["outcome"] != "no such function"]
        own, laws = ({n for n in asked if x[n] == "killed"} for x in ({n: seen[n]["outcome"] for n in asked}, running))
        counts = (len(asked), len(own), len(laws), len(own & laws), len(set(asked) - own - laws))
        lines.append(f"| {who} | {' | '.join(map(str, counts))} |")
    return [*lines, ""]


def _laws(tried: Tried) -> list[str]:
    first = Counter(str(r["law"]) for _, r in tried if r["outcome"] == "killed")
    lines = ["## The law that killed first\n", OF_CFG003, "| law | mutants |", "|---|---|"]
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
        ["Not argued to be equivalent, so that a law or a case may be missing:\n", *open_ones, ""] if open_ones else []
    )
    for why in sorted({same[m.name] for m in survived if m.name in same}):
        lines += [f"Equivalent: {why}\n", *(_item(m) for m in survived if same.get(m.name) == why), ""]
    return lines


def _item(mutant: Mutant) -> str:
    """The change, and the line that it was made in."""
    line = (SOURCES / mutant.module).read_text(encoding="utf-8").splitlines()[mutant.line - 1].strip()
    return f"- {mutant.module} {mutant.function}: `{mutant.before}` -> `{mutant.after}` in `{line}`"
