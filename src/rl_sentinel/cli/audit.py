"""``rl-sentinel audit``: run a target's real functions against the laws."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rl_sentinel.audit import known as knowledge
from rl_sentinel.audit.expectation import differences
from rl_sentinel.audit.findings import LEVELS, Audit, Finding, findings
from rl_sentinel.audit.law_codes import codes
from rl_sentinel.audit.source.target_spec import named
from rl_sentinel.cli.against import compare, validate_against
from rl_sentinel.cli.options import (
    AlgorithmOption,
    AxesOption,
    BindOption,
    BoundaryOption,
    ClaimOption,
    FunctionOptions,
    LevelOption,
    NumberOption,
    SeedOption,
    StageOption,
)
from rl_sentinel.cli.outputs import STDOUT, Outputs
from rl_sentinel.cli.plan import plan_of_project, plan_of_targets
from rl_sentinel.cli.progress import fetch, require_pairs, run_audit
from rl_sentinel.cli.recipe_audit import recipe_options
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.report import text
from rl_sentinel.report.formatting import counted
from rl_sentinel.report.results import Results, fails


def audit(  # noqa: PLR0913 - the options of the command
    context: typer.Context,
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TARGET...]",
            help="verl==0.9.1, verl, slime@PATH, slime@PATH#REV, pkg.module:function, FILE.py:function, rl_sentinel; "
            "without one, the functions of pyproject.toml",
        ),
    ] = None,
    *,
    law: Annotated[list[str] | None, typer.Option(help="Only this law; may be given again.")] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="Leave this law out; may be given again.")] = None,
    boundary: BoundaryOption = None,
    level: LevelOption = "contested",
    seed: SeedOption = 0,
    budget: Annotated[int, typer.Option(min=2, max=100_000, help="Random cases per pair.")] = 16,
    jobs: Annotated[int, typer.Option(min=1, max=64, help="Processes at a time.")] = 2,
    python: Annotated[str, typer.Option(help="Interpreter of the environment to audit in.")] = sys.executable,
    known: Annotated[Path | None, typer.Option(help="Your known findings; they do not change the exit status.")] = None,
    known_update: Annotated[bool, typer.Option("--known-update", help="Write the findings to --known.")] = False,
    expect: Annotated[Path | None, typer.Option(help="Exit 0 if the findings are exactly those of this file.")] = None,
    report: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND=PATH", help="html, junit, markdown or sarif file; issue or repro folder."),
    ] = None,
    json_path: Annotated[
        Path | None, typer.Option("--json", metavar="PATH", help="One JSON object; - for standard output.")
    ] = None,
    against: Annotated[
        str, typer.Option(metavar="TARGET", help="Audit this one too, and print which findings came, went and stayed.")
    ] = "",
    fresh: Annotated[bool, typer.Option("--fresh", help="Run all checks again; do not use stored verdicts.")] = False,
    recipe: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Audit rl_sentinel.train as this recipe composes it.")
    ] = None,
    stage: StageOption = "",
    algorithm: AlgorithmOption = "",
    claim: ClaimOption = None,
    bind: BindOption = None,
    axes: AxesOption = None,
    number: NumberOption = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show known findings in full, and why laws do not apply.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print findings only.")] = False,
) -> None:
    """Run TARGET's real functions against the laws; exit 0: no findings, 1: findings, 2: could not run."""
    only, without = codes(law), codes(ignore)
    if only and set(only) <= set(without):
        raise SentinelError(f"--ignore leaves out every law of --law ({', '.join(only)}): drop one")
    wanted = [named(t) for t in targets or ()]
    said = FunctionOptions.parsed(stage=stage, algorithm=algorithm, claim=claim, bind=bind, axes=axes, number=number)
    if against:
        lacking = {"--known": known, "--known-update": known_update, "--expect": expect, "--report": report}
        validate_against(wanted, named(against), [option for option, value in lacking.items() if value])
        wanted.append(named(against))
    options = {
        "laws": only,
        "ignore": without,
        "boundaries": tuple(boundary or ()),
        "seed": seed,
        "budget": budget,
        "jobs": jobs,
    }
    options |= recipe_options(recipe, wanted) if recipe else {}
    if wanted:
        plan = plan_of_targets(wanted, said, options, level)
    else:
        unset = {name: None for name in ("seed", "budget") if _is_default(context, name)}
        plan = plan_of_project(said, {**options, **unset}, None if _is_default(context, "level") else level)
        known = known or plan.known
    outputs = Outputs.checked(report or [], json_path, known if known_update else None)
    if known_update and known is None:
        raise SentinelError("--known-update needs --known: name the file with --known FILE")
    mine = knowledge.read(known) if known and (known.exists() or not known_update) else knowledge.KnownFile()
    outputs.accepted = mine
    expected = knowledge.read(expect, "--expect") if expect else None
    console = Console(highlight=False, soft_wrap=True, emoji=False, stderr=json_path == STDOUT)
    # Fetch all targets before the first audit, so that a wrong name fails early.
    brought = [fetch(one.target, python, one.options) for one in plan.planned]
    if against:
        raise typer.Exit(compare(console, brought, python, level, json_path, fresh=fresh))
    statuses = list[int]()
    for one, (target, job, source) in zip(plan.planned, brought, strict=True):
        began = time.monotonic()
        seen, version = run_audit(target, job, python, fresh=fresh), source.version or source.stated
        annotated = [
            *knowledge.entries(mine, accepted=True, source=str(known)),
            *knowledge.shipped(target.framework.name),
        ]
        require_pairs(target, job, seen)
        every = findings(seen, annotated, version)
        shown = [f for f in every if LEVELS.index(f.level) <= LEVELS.index(one.level)]
        seconds = time.monotonic() - began
        text.show(
            console,
            target.text,
            seen,
            shown,
            seconds,
            len(every) - len(shown),
            verbose=verbose,
            quiet=quiet,
            unclaimed=one.unclaimed,
        )
        full = not (job.laws or job.ignore or boundary)
        judged = [v.boundary for v in seen.verdicts if v.outcome != "errored"]
        signatures = [signature for f in every for signature in f.signatures]
        for old in knowledge.stale(annotated, signatures, judged, target.framework.name, version) if full else []:
            console.print(f"stale: {old} is listed for this release and did not appear", markup=False)
        own = _status(console, seen, shown, expected)
        statuses.append(own)
        results = Results(target=target.text, audit=seen, found=shown, seconds=seconds, seed=job.seed, status=own)
        outputs.add(target, results, version)
    if not wanted:
        _print_total(console, statuses)
    outputs.write()
    raise typer.Exit(max(statuses))


def _is_default(context: typer.Context, name: str) -> bool:
    """Whether an option has its default value."""
    source = context.get_parameter_source(name)
    return source is None or source.name == "DEFAULT"


def _print_total(console: Console, statuses: list[int]) -> None:
    """One line on all functions of a project."""
    words = {0: "sound", 1: "with findings", 2: "not judged"}
    parts = [f"{statuses.count(status)} {word}" for status, word in words.items() if status in statuses]
    console.print(f"\n{counted(len(statuses), 'function')}: {', '.join(parts)}; exit status {max(statuses)}")


def _status(console: Console, seen: Audit, shown: list[Finding], expected: knowledge.KnownFile | None) -> int:
    if expected is None:
        if any(fails(f) for f in shown):
            return 1
        judged, errored = seen.counts["holds"] + seen.counts["broken"], seen.counts["errored"]
        if judged and not errored:
            return 0
        why = f"{counted(errored, 'pair')} errored (see above); " if errored else ""
        console.print(f"{why}exit status 2", markup=False)
        return 2
    problems = differences(expected, seen, shown)
    for line in problems:
        console.print(line, markup=False)
    differing = f"{counted(len(problems), 'difference')} from the expectation"
    console.print(differing if problems else "exactly the expected findings")
    return 1 if problems else 0
