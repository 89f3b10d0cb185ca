"""``rl-sentinel curves``: compare the curves of runs."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rl_sentinel.cli.output_paths import writable
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.phrasing import reason_of
from rl_sentinel.report.curves import picture, table
from rl_sentinel.train.run.journal import read_evaluations, read_metrics


def curves(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs.")],
    *,
    png: Annotated[Path | None, typer.Option(help="Also draw the curves into this file (needs matplotlib).")] = None,
) -> None:
    """Show the curves of one or more runs on one scale."""
    place = writable(png, "--png") if png else None
    runs = [path for n, path in enumerate(runs) if path.resolve() not in {one.resolve() for one in runs[:n]}]
    named_runs = [(_name(path, runs), read_metrics(path / "metrics.jsonl")) for path in runs]
    evaluations = read_evaluations([(_name(path, runs), path) for path in runs])
    Console(highlight=False, width=None).print(table(named_runs, evaluations))
    if place is None:
        return
    try:
        picture(named_runs, place, evaluations)
    except ImportError as error:
        fix = "pip install 'rl-sentinel[train]'"
        raise SentinelError(f"--png needs matplotlib, which cannot be imported ({reason_of(error)}): {fix}") from error


def _name(path: Path, runs: list[Path]) -> str:
    """The folder's name, or its path if two folders have the same name."""
    same = [p for p in runs if p.resolve().name == path.resolve().name]
    return path.resolve().name if len(same) == 1 else str(path)
