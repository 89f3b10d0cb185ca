"""The text report: coverage, one block per cause, one line per known finding, and a final table."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape

from rl_sentinel.audit.causes import group_by_cause
from rl_sentinel.audit.findings import Audit, Finding
from rl_sentinel.report.finding_block import block, level
from rl_sentinel.report.formatting import WIDTH, counted, one_line, short_name, wrapped

#: Most reasons that are printed for pairs that were not checked.
MOST = 12

_STYLE = {"fault": "bold red", "contested": "bold yellow", "hazard": "bold cyan"}


#: Indent of the reason of a known finding, as wide as level and law before its place.
_REASON = " " * 19

#: Printed if nothing was compared.
INCONCLUSIVE = "inconclusive: no law could run"

#: Most characters of the reason why a pair errored; it is long because its end says what the user must state.
_LONGEST = 400

_UNCLAIMED = "no algorithm is stated, so no formula and no law that needs an algorithm was checked: state one,"


@dataclass(frozen=True, slots=True)
class Hints:
    """Hints on how to see more: hazards, why laws do not apply, the laws of an algorithm, and every reason."""

    hazards: str = "--level hazard"
    reasons: str = "--verbose"
    algorithm: str = "--algorithm {}"
    every: str = "--json PATH"


def show(  # noqa: PLR0913 - a report has these parts
    console: Console,
    target: str,
    audit: Audit,
    shown: Sequence[Finding],
    seconds: float,
    hidden: int = 0,
    *,
    verbose: bool = False,
    quiet: bool = False,
    unclaimed: str = "",
    hints: Hints = Hints(),
) -> None:
    """Print the report.

    Args:
        console: the console to print to; it must not wrap lines itself (``soft_wrap=True``).
        target: the target as the user wrote it.
        audit: the results.
        shown: the findings to show, worst level first.
        seconds: how long the audit took.
        hidden: number of findings below the level that is shown.
        verbose: show known findings in full, and why laws do not apply.
        quiet: leave out the coverage, the list of known findings and the closing table.
        unclaimed: an algorithm that could be stated for a user's function without a stated algorithm.
        hints: how to see more.
    """
    judged = audit.counts["holds"] + audit.counts["broken"] > 0
    if not quiet:
        _coverage(console, target, audit, seconds, hints)
        if verbose or not judged:
            _not_applicable(console, audit, hints)
        elif audit.boundaries == 1 and audit.counts["not_applicable"]:
            console.print(f"  {hints.reasons} lists why laws do not apply", highlight=False)
    else:
        _errored(console, audit, hints)
        if not judged:
            _not_applicable(console, audit, hints)
    listed = [f for f in shown if not verbose and (f.known or f.known_from)]
    blocks = group_by_cause(f for f in shown if f not in listed)
    console.print(f"\n{summary(shown) if judged or shown else INCONCLUSIVE}", highlight=False)
    if hidden:
        console.print(f"{hidden} broken at a lower level, not shown: {hints.hazards} shows all", highlight=False)
    if unclaimed and judged and not quiet:
        _print(
            console, wrapped(f"{_UNCLAIMED} as in {hints.algorithm.format(unclaimed)} (docs/claims.md)", hanging="  ")
        )
    for findings in blocks:
        console.print()
        head, *lines = block(findings)
        level_name = level(findings[0])
        style = _STYLE[findings[0].level]
        console.print(f"[{style}]{level_name}[/]{escape(head.removeprefix(level_name))}", highlight=False)
        _print(console, lines)
    if not quiet:
        _table(console, [f for findings in blocks for f in findings])
        _known(console, listed)


def _coverage(console: Console, target: str, audit: Audit, seconds: float, hints: Hints) -> None:
    """Print the extent of the audit, the counts of verdicts, notes, and why pairs are errored."""
    counts = audit.counts
    console.print(f"[bold]rl-sentinel audit[/] {escape(target)}", highlight=False)
    numbers = f"{counts['holds']} hold, {counts['broken']} broken, {counts['not_applicable']} not applicable"
    text = f"{_extent(audit)} in {seconds:.0f} s: {numbers}, {counts['errored']} errored"
    _print(console, wrapped(text, hanging="  "))
    for note in audit.notes:
        _print(console, wrapped(f"note: {note}", indent="  ", hanging="    "))
    if audit.stored or audit.unchanged:
        _print(console, [stored_line(audit)])
    _errored(console, audit, hints)


def _extent(audit: Audit) -> str:
    """Number of laws, or of pairs of a law and a boundary, that were checked."""
    pairs = [(v.boundary, v.law) for v in audit.verdicts]
    if audit.boundaries == 1 and len(set(pairs)) == len(pairs):
        return counted(len(pairs), "law")
    return f"{counted(len(pairs), 'pair')} of law and boundary at {counted(audit.boundaries, 'boundary', 'boundaries')}"


def stored_line(audit: Audit) -> str:
    """A line on how many verdicts come from the store."""
    if audit.stored:
        text = f"{audit.boundaries} of {counted(audit.boundaries, 'boundary', 'boundaries')}"
    else:
        number = sum((v.boundary, v.setting) in audit.unchanged for v in audit.verdicts)
        text = f"{number} of {counted(len(audit.verdicts), 'pair')}, because their code did not change"
    return f"verdicts from the store: {text} (--fresh runs all)"


def _print(console: Console, lines: Sequence[str]) -> None:
    for line in lines:
        console.print(line, highlight=False, markup=False)


def _errored(console: Console, audit: Audit, hints: Hints) -> None:
    errors = Counter((v.boundary, v.reason) for v in audit.verdicts if v.outcome == "errored")
    for (boundary, reason), number in list(errors.items())[:MOST]:
        text = f"errored, {counted(number, 'pair')} at {boundary}: {one_line(reason, _LONGEST)}"
        _print(console, wrapped(text, indent="  ", hanging="    "))
    _more(console, len(errors) - MOST, hints)


def _not_applicable(console: Console, audit: Audit, hints: Hints) -> None:
    reasons = Counter(v.reason for v in audit.verdicts if v.outcome == "not-applicable")
    for reason, number in reasons.most_common(MOST):
        text = f"not applicable, {counted(number, 'pair')}: {one_line(reason)}"
        _print(console, wrapped(text, indent="  ", hanging="    "))
    _more(console, len(reasons) - MOST, hints)


def _more(console: Console, count: int, hints: Hints) -> None:
    if count > 0:
        console.print(f"  and {counted(count, 'reason')} more: {hints.every} has all", highlight=False)


def summary(findings: Sequence[Finding]) -> str:
    """The number of findings of each level, and of the places folded under them."""
    levels = Counter(f.level for f in findings)
    parts = ", ".join(f"{levels[level]} {level}" for level in _STYLE if levels[level]) or "none"
    folded = sum(len(f.also) for f in findings)
    places = f"; {counted(folded, 'more place')} with the same causes" if folded else ""
    return f"{counted(len(findings), 'finding')}: {parts}{places}"


def _table(console: Console, findings: Sequence[Finding]) -> None:
    """A table with the level, law and place of each finding; nothing for a single finding."""
    if len(findings) < 2:
        return
    console.print()
    _print(console, [f"{'level':<11}{'law':<8}place", *(_row(f) for f in findings)])


def _row(f: Finding) -> str:
    start = f"{level(f):<11}{f.law:<8}"
    return start + one_line(_short(f), WIDTH - len(start))


def _short(f: Finding) -> str:
    """The boundary without its packages, and the setting."""
    name = short_name(f.boundary)
    return name if f.setting == "default" else f"{name} [{f.setting}]"


def _known(console: Console, findings: Sequence[Finding]) -> None:
    """The places of known findings, by level, law and reason."""
    if not findings:
        return
    console.print(f"\n{counted(len(findings), 'known finding')} (--verbose shows each with its case)", highlight=False)
    by_reason: defaultdict[tuple[str, str, str], list[Finding]] = defaultdict(list)
    for f in findings:
        by_reason[level(f), f.law, f.known or f.known_from].append(f)
    for (_, _, reason), same in by_reason.items():
        _print(console, [*map(_row, same), *wrapped(reason, indent=_REASON, hanging=_REASON, lines=3)])
