"""The text report: coverage first, then findings, causes before symptoms."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rl_sentinel.audit.findings import Audit, Finding
from rl_sentinel.core.batch import EXCLUDED
from rl_sentinel.remedies import remedy

#: So many reasons are told of pairs that were not judged.
MOST = 12

_STYLE = {"fault": "bold red", "contested": "bold yellow", "hazard": "bold cyan"}

#: Columns of a case that say what the batch is; they are shown before the ones that count.
_FIRST = ("group", "mask", "reward")


#: A counterexample larger than this says that it could not be shrunk further.
ROWS, TOKENS = 3, 4


def show(  # noqa: PLR0913 - a report has these parts
    console: Console, target: str, audit: Audit, found: Sequence[Finding], seconds: float, hidden: int = 0
) -> None:
    """Print coverage, what could not be judged, then each finding; ``hidden`` ones are below the level."""
    counts = audit.counts
    console.print(f"[bold]rl-sentinel audit[/] {escape(target)}", highlight=False)
    console.print(
        f"{counted(len(audit.verdicts), 'pair')} of law and boundary at "
        f"{counted(audit.boundaries, 'boundary', 'boundaries')} in {seconds:.0f} s: "
        f"{counts['holds']} hold, {counts['broken']} broken, {counts['not_applicable']} not applicable, "
        f"{counts['errored']} errored",
        highlight=False,
    )
    _errored(console, audit)
    if audit.boundaries == 1 or not counts["holds"] + counts["broken"]:
        _not_applicable(console, audit)
    folded = sum(len(f.also) for f in found)
    levels = Counter(f.level for f in found)
    said = ", ".join(f"{levels[k]} {k}" for k in _STYLE if levels[k]) or "none"
    through = f" (and {counted(folded, 'place')} that they show through)" if folded else ""
    console.print(f"\n{counted(len(found), 'finding')}: {said}{through}", highlight=False)
    if hidden:
        console.print(f"{hidden} more below the level that is shown: --level hazard", highlight=False)
    for finding in found:
        console.print()
        _finding(console, finding)


def counted(number: int, one: str, many: str = "") -> str:
    """A number and its noun.

    Example:
        >>> from rl_sentinel.report.text import counted
        >>> counted(1, "pair"), counted(0, "pair"), counted(2, "boundary", "boundaries")
        ('1 pair', '0 pairs', '2 boundaries')
    """
    return f"{number} {one if number == 1 else many or one + 's'}"


def _errored(console: Console, audit: Audit) -> None:
    lost = Counter((v.boundary, v.reason) for v in audit.verdicts if v.outcome == "errored")
    for (boundary, reason), number in list(lost.items())[:MOST]:
        where = f"{counted(number, 'pair')} at {escape(boundary)}"
        console.print(f"  errored, {where}: {escape(one_line(reason))}", highlight=False)
    _more(console, len(lost) - MOST)


def one_line(reason: str) -> str:
    r"""A reason as one line of at most 200 characters.

    Example:
        >>> from rl_sentinel.report.text import one_line
        >>> one_line("no\n  such thing")
        'no such thing'
    """
    return " ".join(reason.split())[:200]


def _not_applicable(console: Console, audit: Audit) -> None:
    """Why, where little or nothing was tried."""
    why = Counter(v.reason for v in audit.verdicts if v.outcome == "not-applicable")
    for reason, number in why.most_common(MOST):
        console.print(f"  not applicable, {counted(number, 'pair')}: {escape(one_line(reason))}", highlight=False)
    _more(console, len(why) - MOST)


def _more(console: Console, left: int) -> None:
    if left > 0:
        console.print(f"  and {counted(left, 'reason')} more: --json PATH has all", highlight=False)


def _finding(console: Console, f: Finding) -> None:
    e = f.evidence
    style = _STYLE[f.level]
    mark = "accepted" if f.accepted else f.level
    setting = "" if f.setting == "default" else f" [{f.setting}]"
    head = f"[{style}]{mark}[/] [bold]{f.law}[/] {e['law_name']} at [bold]{escape(f.boundary)}[/]{escape(setting)}"
    console.print(head, highlight=False)
    console.print(f"  {e['source']['file']}:{e['source']['line']}", highlight=False)
    console.print(
        f"  {escape(str(e['expectation']['sentence']))}",
        highlight=False,
    )
    for line in results(e):
        console.print(f"    {line}", highlight=False, markup=False)
    large = ", and on none smaller that was tried" if f.rows > ROWS or f.tokens > TOKENS else ""
    console.print(f"  on this batch ({counted(f.rows, 'row')} x {counted(f.tokens, 'token')}{large}):", highlight=False)
    for name, values in scenario(e):
        console.print(f"    {name:<16}{numbers(values)}{legend(name, values)}", highlight=False, markup=False)
    if f.level == "contested" and e["could_be_intended"]:
        console.print(f"  the other side: {escape(str(e['could_be_intended']))}", highlight=False)
    if e["reach"]:
        console.print(f"  reached by {escape(str(e['reach']))}", highlight=False)
        if told := remedy(str(e["target"]["framework"]), str(e["reach"])):
            console.print(f"  remedy: {told}", highlight=False)
    if f.known or f.known_from:
        whose = f" ({f.known_from})" if f.known_from else ""
        console.print(f"  known{escape(whose)}: {escape(f.known or 'no reason is given')}", highlight=False)
    if f.elsewhere:
        console.print(f"  new here: {escape(f.elsewhere)}", highlight=False)
    for other in f.also[:6]:
        console.print(f"  also through {escape(other)}", highlight=False)
    if len(f.also) > 6:
        console.print(f"  also through {len(f.also) - 6} more", highlight=False)


def scenario(evidence: Any) -> list[tuple[str, Any]]:  # noqa: ANN401 - JSON
    """The columns of a stored case that tell the story, the most telling ones first."""
    batch = evidence["constructed_scenario"]["batch"]
    columns = {n: c["values"] for n, c in batch.items()}
    quiet = {"prompt_length", "version", "token", "logits"}
    told = {"mask", "group", "length", "excluded", "scored", *evidence.get("reads", columns)}
    hidden = {n for n in columns if n in quiet or n not in told}
    if not _length_counts(columns):
        hidden.add("length")
    if not any(columns.get("excluded", [])):
        hidden.add("excluded")
    if all(columns.get("scored", [])):
        hidden.add("scored")
    names = sorted((n for n in columns if n not in hidden), key=lambda n: (n not in _FIRST, n))
    return [(n, columns[n]) for n in names]


def results(evidence: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
    """What was expected and what was observed, of each output that was compared."""
    for result in evidence["expectation"]["results"]:
        if result["expected"] is not None:
            yield f"expected {numbers(result['expected'])}"
        yield f"observed {numbers(result['observed'])}"


def _length_counts(columns: dict[str, Any]) -> bool:
    """Whether some response ends elsewhere than its row does, or than its last trained token."""
    width, lengths = len(columns["mask"][0]), columns.get("length", [])
    last = [max((t + 1 for t, trained in enumerate(row) if trained), default=width) for row in columns["mask"]]
    return any(n != width or n != end for n, end in zip(lengths, last, strict=False))


def legend(name: str, values: Any) -> str:  # noqa: ANN401 - JSON
    """What the numbers of a column mean, where they are words in other places.

    Example:
        >>> from rl_sentinel.report.text import legend
        >>> legend("excluded", [0, 5])
        '  (why a row is not trained: 0 in, 5 rejected)'
    """
    if name != "excluded":
        return ""
    words = ", ".join(f"{n} {word}" for word, n in EXCLUDED.items() if n in values)
    return f"  (why a row is not trained: {words})"


def numbers(value: Any) -> str:  # noqa: ANN401 - JSON
    """Nested lists of numbers in few characters.

    Example:
        >>> from rl_sentinel.report.text import numbers
        >>> numbers([[0.5, 1.0], [True, False]])
        '[[0.5, 1], [1, 0]]'
    """
    if isinstance(value, list):
        return "[" + ", ".join(numbers(v) for v in value) + "]"
    if isinstance(value, bool):
        return str(int(value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def verdict_table(console: Console, audit: Audit) -> None:
    """A table of laws against outcomes: what was tried, and what was not."""
    table = Table(box=None, header_style="bold")
    for column in ("law", "holds", "broken", "not applicable", "errored"):
        table.add_column(column, justify="left" if column == "law" else "right")
    seen = Counter((v.law, v.outcome) for v in audit.verdicts)
    for law in sorted({v.law for v in audit.verdicts}):
        row = [str(seen[law, o] or "") for o in ("holds", "broken", "not-applicable", "errored")]
        table.add_row(law, *row)
    console.print(table)
