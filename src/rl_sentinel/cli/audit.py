"""``rl-sentinel audit``: run a target's real functions against the laws."""

import json
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from rl_sentinel.audit import known as knowledge
from rl_sentinel.audit.driver import events, request
from rl_sentinel.audit.findings import LEVELS, Audit, Finding, findings
from rl_sentinel.audit.target import Named, named
from rl_sentinel.audit.worker.main import laws
from rl_sentinel.cli.options import LevelOption, SeedOption
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.report import issue, repro, text
from rl_sentinel.report.json import as_json


def audit(  # noqa: PLR0913 - the options of the command
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET...",
            help="verl==0.9.1, verl, slime@PATH, slime@PATH#REV, pkg.module:function, rl_sentinel",
        ),
    ],
    *,
    law: Annotated[list[str] | None, typer.Option(help="Only this law; may be given again.")] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="Leave this law out; may be given again.")] = None,
    boundary: Annotated[str, typer.Option(metavar="GLOB", help="Only boundaries whose path matches.")] = "",
    level: LevelOption = "contested",
    seed: SeedOption = 0,
    budget: Annotated[int, typer.Option(min=2, max=100_000, help="Random cases per pair.")] = 16,
    jobs: Annotated[int, typer.Option(min=1, max=64, help="Processes at a time.")] = 2,
    python: Annotated[str, typer.Option(help="Interpreter of the environment to audit in.")] = sys.executable,
    known: Annotated[Path | None, typer.Option(help="Your known findings; they leave the exit status alone.")] = None,
    known_update: Annotated[bool, typer.Option("--known-update", help="Write what is found to --known.")] = False,
    expect: Annotated[Path | None, typer.Option(help="Exit 0 if exactly these findings appear.")] = None,
    report: Annotated[
        list[str] | None, typer.Option(metavar="KIND=PATH", help="issue or repro; repro takes a folder.")
    ] = None,
    json_path: Annotated[Path | None, typer.Option("--json", metavar="PATH", help="One JSON object.")] = None,
    stage: Annotated[str, typer.Option(help="Stage of a function of your own: advantage, policy-loss ...")] = "",
) -> None:
    """Run TARGET's real functions against the laws; exit 0 none, 1 findings, 2 could not run."""
    _check_laws([*(law or []), *(ignore or [])])
    wanted = [named(t) for t in targets]
    asked = _reports(report or [])
    if known_update and known is None:
        raise SentinelError("--known-update writes to --known, which is not given: name a file with --known FILE")
    mine = knowledge.read(known) if known and (known.exists() or not known_update) else knowledge.KnownFile()
    expected = knowledge.read(expect) if expect else None
    console = Console(highlight=False, soft_wrap=True)
    more = {
        "laws": tuple(law or ()),
        "ignore": tuple(ignore or ()),
        "boundary": boundary,
        "seed": seed,
        "budget": budget,
        "jobs": jobs,
        "stage": stage,
    }
    status, objects, shown_all = 0, [], list[Finding]()
    for target in wanted:
        began = time.monotonic()
        seen, version = _audited(target, python, more)
        annotated = [*knowledge.entries(mine, accepted=True), *knowledge.shipped(target.framework.name)]
        every = findings(seen, annotated, version)
        shown = [f for f in every if LEVELS.index(f.level) <= LEVELS.index(level)]
        seconds = time.monotonic() - began
        text.show(console, target.text, seen, shown, seconds)
        full = not (law or ignore or boundary)
        for old in (
            knowledge.stale(annotated, [f.signature for f in every], target.framework.name, version) if full else []
        ):
            console.print(f"stale: {old} is known of this release and did not appear", markup=False)
        objects.append(as_json(target.text, seen, shown, seconds))
        shown_all += shown
        _write_reports(asked, shown, target)
        status = max(status, _status(console, seen, shown, expected))
    if json_path:
        json_path.write_text(json.dumps(objects[0] if len(objects) == 1 else objects, indent=1), encoding="utf-8")
    if known_update and known:
        known.write_text(knowledge.written((f.signature, f.level) for f in shown_all), encoding="utf-8")
    raise typer.Exit(status)


def _check_laws(codes: list[str]) -> None:
    have = laws()
    for code in codes:
        if code not in have:
            raise SentinelError(f"law is {code!r}, expected one of {', '.join(have)}")


def _reports(given: list[str]) -> list[tuple[str, Path]]:
    pairs = []
    for text_ in given:
        kind, _, path = text_.partition("=")
        if kind not in ("issue", "repro") or not path:
            raise SentinelError(f"--report is {text_!r}, expected issue=PATH or repro=FOLDER")
        pairs.append((kind, Path(path)))
    return pairs


def _audited(target: Named, python: str, more: dict[str, object]) -> tuple[Audit, str]:
    quiet = not sys.stderr.isatty()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    seen = Audit()
    with Progress(*columns, console=Console(stderr=True), disable=quiet, transient=True) as progress:
        bar = progress.add_task(f"fetching {target.text}", total=None)
        job, source = request(target, "audit", python=python, **more)
        progress.update(bar, description=f"loading {target.text}")
        for event in events(job, python):
            seen.take(event)
            if event["event"] == "plan":
                progress.update(bar, total=event["pairs"], description=target.text)
            elif event["event"] == "verdict":
                progress.advance(bar)
    if not seen.verdicts:
        raise SentinelError(
            f"audit of {target.text} has no pair of law and boundary: --boundary, --law or --stage leave none"
        )
    return seen, source.version


def _status(console: Console, seen: Audit, shown: list[Finding], expected: knowledge.KnownFile | None) -> int:
    if expected is None:
        if any(f.level != "hazard" and not f.accepted for f in shown):
            return 1
        return 2 if seen.counts["errored"] else 0
    wanted = {(e.signature, e.level) for e in expected.finding}
    found = {(f.signature, f.level) for f in shown}
    problems = [f"missing: {s} ({v})" for s, v in sorted(wanted - found)]
    problems += [f"not expected: {s} ({v})" for s, v in sorted(found - wanted)]
    for name in ("not_applicable", "errored"):
        count = getattr(expected, name)
        if count is not None and count != seen.counts[name]:
            problems.append(f"{name}: {seen.counts[name]}, expected {count}")
    for line in problems:
        console.print(line, markup=False)
    console.print(
        "exactly the expected findings" if not problems else f"{len(problems)} differences from what is expected"
    )
    return 1 if problems else 0


def _write_reports(asked: list[tuple[str, Path]], shown: list[Finding], target: Named) -> None:
    packages = target.framework.packages(target.version)
    for kind, path in asked:
        if kind == "issue":
            path.write_text(issue.as_issue(shown, packages), encoding="utf-8")
            continue
        path.mkdir(parents=True, exist_ok=True)
        for f in shown:
            name = f"{f.law}-{f.boundary.rpartition('.')[2]}-{f.setting}".replace("/", "-")
            (path / f"{name}.py").write_text(repro.script(f, packages), encoding="utf-8")
            (path / f"{name}.json").write_text(json.dumps(dict(f.evidence), indent=1), encoding="utf-8")
