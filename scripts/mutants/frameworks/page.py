"""``docs/framework-mutants.md``: the figures of each framework, and every mutant with its change."""

import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from mutants.frameworks.operators import PATH_OPERATORS
from mutants.frameworks.planting import difference
from mutants.frameworks.trial import Result
from mutants.sites import Mutant

EQUIVALENT = Path(__file__).with_name("equivalent.toml")

HEAD = """\
# Mutants of frameworks

How many small faults does an audit find in a framework's own code? One fault at a time is planted into a copy of the
framework's tree: in a function of the signal path that some boundary enters. The copy is audited at the boundaries that
enter this function, with the cases that an audit tries by default, and so is the unchanged tree.

`make framework-mutants TARGET=verl==0.9.1` draws mutants and rewrites the target's section;
`python -m mutants.frameworks TARGET --again` tries those of the section once more. The seed of the draw is the commit,
or of a release the digest of its files, so nobody chooses it. A function is drawn first, then one of the operators that
find a place in it, then the place; no function is drawn twice. A later draw with the seed differs where boundaries
enter more functions.

- **found**: the audit of the copy has a finding (fault or contested) that the audit of the unchanged tree lacks.
- **loud**: the copy does not load, a call raises, an output never moves, or a law has no case left that the boundary
  answers. It shows without a law, and is not counted.
- **equivalent**: argued by hand to change no number that the function hands on
  (`scripts/mutants/frameworks/equivalent.toml`).
- **survived**: it runs, and no law is broken that was not broken before.

The last column is the figure of the first run, before any survivor was looked at; equivalent ones are counted there
as survivors. What the survivors showed was then changed for the class of the fault (an output that was not compared, a
claim, a case), never for the mutant; so the other figure is of the draw as much as of the laws. Mutants that were found
once were not all tried again after it.

"""


class Draw(NamedTuple):
    """The mutants of a target that were drawn with their results, and how many there are to draw from."""

    target: str
    seed: int
    every: int
    tried: Sequence[tuple[Mutant, Result]]
    root: Path

    @property
    def name(self) -> str:
        """The target's name on the page."""
        return page_name(self.target)


def page_name(target: str) -> str:
    """``verl 0.9.1``; of a checkout the revision instead."""
    framework, _, rest = target.partition("@")
    return f"{framework} {rest.rpartition('#')[2][:9]}" if rest else target.replace("==", " ")


def listed(text: str, name: str, every: Sequence[Mutant], root: Path) -> list[Mutant]:
    """The mutants in a target's section of the page, which stay the same where more functions can be drawn."""
    (section,) = (part for part in text.split("\n## ") if part.startswith(f"{name}\n"))
    items = re.findall(r"(?m)^- (\w+) in `(.+?)`, `(.+?)`.*\n\n  ```diff\n((?:  .*\n)+?)  ```", section)
    changes = {(*head, "\n".join(line[2:] for line in lines.splitlines())) for *head, lines in items}
    sources = {module: (root / module).read_text(encoding="utf-8") for _, module, _, _ in changes}
    found: dict[tuple[str, ...], Mutant] = {}
    for m in every:
        if m.module in sources:
            found.setdefault((m.operator, m.module, m.function, difference(sources[m.module], m)), m)
    return [m for change, m in found.items() if change in changes]


def equivalents(target: str) -> dict[str, str]:
    """Name of a mutant -> why it is equivalent."""
    framework = re.split("[=@]", target)[0]
    entries = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8")).get(framework, [])
    return {name: entry["why"] for entry in entries for name in entry["mutants"]}


def outcomes(draw: Draw) -> Counter[str]:
    """How many mutants ended how."""
    same = equivalents(draw.target)
    return Counter("equivalent" if r.outcome == "survived" and m.name in same else r.outcome for m, r in draw.tried)


def rate(draw: Draw) -> float:
    """Share of found ones among those that run and are not equivalent."""
    counts = outcomes(draw)
    return counts["found"] / max(1, counts["found"] + counts["survived"])


def mistaken(draw: Draw) -> list[str]:
    """Mutants that are listed as equivalent, and were found or are loud."""
    same = equivalents(draw.target)
    return [m.name for m, r in draw.tried if m.name in same and r.outcome != "survived"]


def summary(draw: Draw) -> str:
    """The figures in a few lines."""
    counts = outcomes(draw)
    return (
        f"{len(draw.tried)} of {draw.every} possible mutants were tried (drawn with seed {draw.seed}): "
        f"{counts['loud']} are loud, {counts['equivalent']} are equivalent.\n"
        f"Of the other {counts['found'] + counts['survived']}, {counts['found']} are found ({rate(draw):.0%})."
    )


def page(draw: Draw, before: str = "", *, again: bool = False) -> str:
    """The whole page, with the target's section new and those of other frameworks as they were.

    ``again`` keeps the figure of the first run.
    """
    first = re.split("\n## ", before, maxsplit=1)[0]
    rows = {name.partition(" ")[0]: row for row, name in re.findall(r"(?m)^(\| (\w+ \S+) \|.*)$", first)}
    sections = {text.partition(" ")[0]: f"\n## {text.rstrip()}\n" for text in before.split("\n## ")[1:]}
    framework, counts = draw.name.partition(" ")[0], outcomes(draw)
    numbers = [counts[name] for name in ("found", "survived", "equivalent", "loud")]
    row = f"| {draw.name} | {' | '.join(map(str, numbers))} | {rate(draw):.0%} |"
    # The figure of the first run was measured before any survivor was looked at: none was known to be equivalent.
    old = rows.get(framework, "")
    run = len(draw.tried) - counts["loud"]
    first_rate = old.split("|")[-2].strip() if again and old else f"{counts['found'] / max(1, run):.0%}"
    rows[framework] = f"{row} {first_rate} |"
    sections[framework] = _section(draw)
    table = ["| target | found | survived | equivalent | loud | found of those that run | in the first run |"]
    table += ["|---|---|---|---|---|---|---|"]
    operators = ["\n| operator | what it does |", "|---|---|"]
    operators += [f"| {name} | {o.__doc__} |" for name, o in PATH_OPERATORS.items()]
    return HEAD + "\n".join([*table, *rows.values(), *operators, *sections.values()])


def _section(draw: Draw) -> str:
    same, lines = equivalents(draw.target), [f"\n## {draw.name}\n", summary(draw), ""]
    order = ("survived", "equivalent", "found", "loud")
    of_kind: dict[str, list[str]] = {name: [] for name in order}
    for mutant, result in sorted(draw.tried, key=lambda pair: pair[0].name):
        kind: str = "equivalent" if result.outcome == "survived" and mutant.name in same else result.outcome
        of_kind[kind] += _item(draw, mutant, result, same.get(mutant.name, ""))
    for kind in order:
        lines += [f"### {kind.capitalize()}\n", *of_kind[kind]] if of_kind[kind] else []
    return "\n".join(lines).rstrip() + "\n"


def _item(draw: Draw, mutant: Mutant, result: Result, why: str) -> list[str]:
    source = (draw.root / mutant.module).read_text(encoding="utf-8")
    by = f"{result.law} at `{result.where}`: {result.detail}" if result.law else why or " ".join(result.detail.split())
    head = f"- {mutant.operator} in `{mutant.module}`, `{mutant.function}`" + (f": {by[:300]}" if by else "")
    return [head, "", "  ```diff", *_indented(difference(source, mutant)), "  ```", ""]


def _indented(text: str) -> list[str]:
    return [f"  {line}" for line in text.splitlines()]
