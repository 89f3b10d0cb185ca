"""``rl-sentinel recall``: count the known bugs that an audit reports before their fix, but not after it."""

import json
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rl_sentinel.audit.source.interpreter import check_interpreter
from rl_sentinel.cli.output_paths import put, writable
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.phrasing import nearest
from rl_sentinel.recall.bugs import Bug, read_bugs
from rl_sentinel.recall.earlier_rows import earlier_rows
from rl_sentinel.recall.histories import Histories
from rl_sentinel.recall.measurement import Row, measure
from rl_sentinel.recall.page import as_json, as_markdown, share, summary


def recall(  # noqa: PLR0913 - the options of the command
    corpus: Annotated[Path, typer.Argument(metavar="CORPUS", help="A JSONL file of known bugs, one per line.")],
    *,
    git: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Git histories of the frameworks; without it, releases.")
    ] = None,
    rows: Annotated[
        list[str] | None, typer.Option("--rows", metavar="ID", help="Only this bug; may be repeated.")
    ] = None,
    framework: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only bugs of this framework; may be repeated.")
    ] = None,
    cpu: Annotated[
        list[str] | None, typer.Option(metavar="yes|hard|no", help="Only bugs that show on a CPU: yes, hard or no.")
    ] = None,
    python: Annotated[
        list[str] | None,
        typer.Option(
            help="Python interpreter of the environment to audit in; may be repeated: the first one that can read the "
            "syntax of a revision is used.",
            show_default=sys.executable,
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, max=64, help="Number of bugs that are audited at a time.")] = 2,
    controls: Annotated[
        bool, typer.Option(help="Also run two controls: the functions of another bug, and a commit that fixes nothing.")
    ] = True,
    page: Annotated[Path | None, typer.Option("--page", metavar="PATH", help="Write a Markdown page.")] = None,
    json_path: Annotated[
        Path | None, typer.Option("--json", metavar="PATH", help="Write one JSON object, after each bug.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Audit only the bugs that --json PATH does not have yet.")
    ] = False,
) -> None:
    """Audit the code before and after the fix of each bug in CORPUS; exit 0, or 2 if nothing could be audited."""
    if resume and json_path is None:
        raise SentinelError("--resume needs --json: name the file to continue with --json FILE")
    paths = {path: writable(path, option) for path, option in ((page, "--page"), (json_path, "--json")) if path}
    pythons = [check_interpreter(name) for name in python or [sys.executable]]
    corpus_bugs = read_bugs(corpus)
    bugs = _selected(corpus_bugs, rows, framework, cpu)
    histories = Histories(git) if git is not None else None
    console = Console(highlight=False, soft_wrap=True, emoji=False)
    known = earlier_rows(json_path, corpus_bugs) if resume and json_path is not None else {}
    left = [bug for bug in bugs if bug.id not in known]
    for row in measure(left, corpus_bugs, histories, jobs=jobs, controls=controls, pythons=pythons):
        known[row.bug.id] = row
        console.print(_line(row), markup=False)
        if json_path is not None:
            put(paths[json_path], json.dumps(as_json([*known.values()]), indent=1))
    results = [known[bug.id] for bug in bugs]
    console.print(_total(results), markup=False)
    if page is not None:
        put(paths[page], as_markdown(results))
    raise typer.Exit(2 if all(row.comparison.outcome == "failed" for row in results) else 0)


def _selected(
    corpus_bugs: Sequence[Bug], rows: Sequence[str] | None, framework: Sequence[str] | None, cpu: Sequence[str] | None
) -> list[Bug]:
    """The bugs that match the options.

    Raises:
        SentinelError: if the corpus lacks a named value, or no bug is left.
    """
    for option, values, allowed in (
        ("--rows", rows, {b.id for b in corpus_bugs}),
        ("--framework", framework, {b.framework for b in corpus_bugs}),
        ("--cpu", cpu, {"yes", "hard", "no"}),
    ):
        _validate(option, values or (), allowed)
    bugs = [
        b
        for b in corpus_bugs
        if (not rows or b.id in rows) and (not framework or b.framework in framework) and (not cpu or b.cpu in cpu)
    ]
    if not bugs:
        raise SentinelError("the corpus has no bug for these options: drop one of --rows, --framework and --cpu")
    return bugs


def _validate(option: str, values: Sequence[str], allowed: Collection[str]) -> None:
    for value in values:
        if value not in allowed:
            raise SentinelError(f"{option} is {value!r}, {nearest(value, sorted(allowed))}")


def _line(row: Row) -> str:
    laws = " ".join(sorted({v.law for v in row.comparison.found}))
    detail = " ".join(row.comparison.detail.split())
    return f"{row.comparison.outcome}: {row.bug.id}{f' {laws}' if laws else ''}{f' ({detail})' if detail else ''}"


def _total(results: Sequence[Row]) -> str:
    counts = summary(results)
    controls = counts["controls"]
    control_counts = "; ".join(f"{name.replace('_', ' ')} {share(c)}" for name, c in controls.items())
    return f"caught {counts['outcomes'].get('caught', 0)} of {counts['rows']}; controls that changed: {control_counts}"
