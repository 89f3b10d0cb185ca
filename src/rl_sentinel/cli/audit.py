"""``rl-sentinel audit``: run a target's real functions against the laws."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rl_sentinel.audit import known as knowledge
from rl_sentinel.audit.law_codes import codes
from rl_sentinel.audit.source.target_spec import parse_target
from rl_sentinel.cli.against import base_of, compare
from rl_sentinel.cli.audit_run import AuditRun, print_total
from rl_sentinel.cli.options import (
    AlgorithmOption,
    AxesOption,
    BindOption,
    BoundaryOption,
    BudgetOption,
    ClaimOption,
    FunctionOptions,
    LevelOption,
    NumberOption,
    SeedOption,
    StageOption,
)
from rl_sentinel.cli.outputs import STDOUT, Outputs
from rl_sentinel.cli.plan import plan_of_project, plan_of_targets
from rl_sentinel.cli.progress import fetch
from rl_sentinel.cli.recipe_audit import recipe_options
from rl_sentinel.core.errors import SentinelError

#: Random cases per pair of law and boundary with ``--thorough``.
THOROUGH = 24


def audit(  # noqa: PLR0913 - the options of the command
    context: typer.Context,
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TARGET...]",
            help="verl==0.9.1, verl, slime@PATH, slime@PATH#REV, pkg.module:function, FILE.py:function, rl_sentinel; "
            "without a target, the functions of pyproject.toml",
        ),
    ] = None,
    *,
    law: Annotated[list[str] | None, typer.Option(help="Only this law; may be repeated.")] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="Leave this law out; may be repeated.")] = None,
    boundary: BoundaryOption = None,
    level: LevelOption = "contested",
    seed: SeedOption = 0,
    budget: BudgetOption = None,
    thorough: Annotated[
        bool, typer.Option("--thorough", help=f"All small cases and {THOROUGH} random ones per pair.")
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, max=64, help="Number of processes that run at a time.")] = 2,
    python: Annotated[str, typer.Option(help="Python interpreter of the environment to audit in.")] = sys.executable,
    known: Annotated[
        Path | None, typer.Option(help="File of your known findings; they do not change the exit status.")
    ] = None,
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
        str, typer.Option(metavar="TARGET", help="Audit this target too, and print new, gone and unchanged findings.")
    ] = "",
    fresh: Annotated[bool, typer.Option("--fresh", help="Run all checks again; do not use stored verdicts.")] = False,
    recipe: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Audit rl_sentinel.train with the components of this recipe.")
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
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print only findings, and the pairs that could not be checked.")
    ] = False,
) -> None:
    """Run TARGET's real functions against the laws; exit 0: no findings, 1: findings, 2: could not run."""
    chosen, ignored, cases = codes(law), codes(ignore), _cases(budget, thorough=thorough)
    if chosen and set(chosen) <= set(ignored):
        raise SentinelError(
            f"--ignore leaves out every law of --law ({', '.join(chosen)}): drop one of the two options"
        )
    specs = [parse_target(t) for t in targets or ()]
    function_options = FunctionOptions.parsed(
        stage=stage, algorithm=algorithm, claim=claim, bind=bind, axes=axes, number=number
    )
    if against:
        conflicting = {"--known": known, "--known-update": known_update, "--expect": expect, "--report": report}
        specs.append(base_of(specs, against, [option for option, value in conflicting.items() if value]))
    options = {
        "laws": chosen,
        "ignore": ignored,
        "boundaries": tuple(boundary or ()),
        "seed": seed,
        "budget": cases,
        "jobs": jobs,
    }
    options |= recipe_options(recipe, specs) if recipe else {}
    if specs:
        plan = plan_of_targets(specs, function_options, options, level)
    else:
        unset = {"seed": None if _is_default(context, "seed") else seed}
        plan = plan_of_project(function_options, {**options, **unset}, None if _is_default(context, "level") else level)
        known = known or plan.known
    outputs = _outputs(report or [], json_path, known, update=known_update)
    run = AuditRun(
        console=Console(highlight=False, soft_wrap=True, emoji=False, stderr=json_path == STDOUT),
        python=python,
        fresh=fresh,
        known=known,
        accepted=outputs.accepted,
        expected=knowledge.read(expect, "--expect") if expect else None,
        verbose=verbose,
        quiet=quiet,
        must_print=bool(not specs or len(specs) > 1 or json_path or report),
    )
    # Fetch all targets before the first audit, so that a wrong name fails early.
    fetched = [fetch(planned.target, python, planned.options) for planned in plan.planned]
    if against:
        raise typer.Exit(compare(run.console, fetched, python, level, json_path, fresh=fresh))
    statuses = list[int]()
    for planned, one in zip(plan.planned, fetched, strict=True):
        results = run.audit(planned, one)
        statuses.append(results.status)
        outputs.add(one.target, results, one.source.known_version)
    if not specs:
        print_total(run.console, statuses)
    outputs.write()
    raise typer.Exit(max(statuses))


def _outputs(report: Sequence[str], json_path: Path | None, known: Path | None, *, update: bool) -> Outputs:
    """The files to write, with the known findings of ``known``; with ``update``, ``known`` is written as well."""
    outputs = Outputs.checked(report, json_path, known if update else None)
    if update and known is None:
        raise SentinelError("--known-update needs --known: name the file with --known FILE")
    if known and (known.exists() or not update):
        outputs.accepted = knowledge.read(known)
    return outputs


def _cases(budget: int | None, *, thorough: bool) -> int | None:
    """The number of random cases per pair; None if no option states it."""
    if thorough and budget is not None:
        raise SentinelError(
            f"--thorough means --budget {THOROUGH}, but --budget is {budget}: drop one of the two options"
        )
    return THOROUGH if thorough else budget


def _is_default(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is None or source.name == "DEFAULT"
