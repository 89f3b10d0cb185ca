"""Curves of runs: a table with small text curves for the terminal, and a PNG if matplotlib is installed."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from rl_sentinel.core.errors import SentinelError

#: The metrics that are shown, and their number formats.
METRICS = (
    ("reward", "{:.3f}"),
    ("accuracy", "{:.3f}"),
    ("kl", "{:.4f}"),
    ("clip_fraction", "{:.3f}"),
    ("entropy", "{:.3f}"),
    ("response_length", "{:.1f}"),
)

#: A run: its name, and the lines of its ``metrics.jsonl``.
Run = tuple[str, Sequence[Mapping[str, Any]]]

_BARS = "▁▂▃▄▅▆▇█"


def table(runs: Sequence[Run], evaluations: Sequence[Run] = (), *, window: int = 10, width: int = 24) -> Table:
    """A table of runs: each metric's mean over the first and the last steps, and its curve.

    Args:
        runs: the runs.
        evaluations: the lines of their ``evaluation.jsonl``, of which the first and the last are shown.
        window: number of steps of the mean at each end.
        width: the most characters of a curve; each is the mean of a part of the steps.

    Example:
        >>> from rl_sentinel.report.curves import table
        >>> table([("a", [{"step": 1, "reward": 0.0}, {"step": 2, "reward": 1.0}])], window=1).row_count
        1
    """
    rows = Table(box=None, pad_edge=False)
    for name in ("metric", "run", "steps", "first", "last", "curve"):
        rows.add_column(name, justify="right" if name in {"steps", "first", "last"} else "left", overflow="fold")
    for key, form in METRICS:
        _add_metric(rows, key, key, form, runs, window=window, width=width)
    for key in _evaluated(evaluations):
        _add_metric(rows, key, f"held-out {key}", "{:.3f}", evaluations, window=1, width=width)
    return rows


def _evaluated(evaluations: Sequence[Run]) -> list[str]:
    """The metrics of evaluations that are shown: accuracy, reward and pass@k."""
    keys = dict.fromkeys(key for _, lines in evaluations for line in lines for key in line)
    return [key for key in keys if key in {"accuracy", "reward"} or key.startswith("pass@")]


def _add_metric(  # noqa: PLR0913 - the table, the metric, the runs and the sizes
    table: Table, key: str, label: str, form: str, runs: Sequence[Run], *, window: int, width: int
) -> None:
    """Add a row per run that has the metric."""
    series = [(name, [float(line[key]) for line in lines if key in line]) for name, lines in runs]
    finite = [value for _, values in series for value in values if math.isfinite(value)] or [0.0]
    for name, values in series:
        if values:
            ends = (form.format(_mean(part)) for part in (values[:window], values[-window:]))
            curve = bars(values, width=width, least=min(finite), most=max(finite))
            table.add_row(label, escape(name), str(len(values)), *ends, curve)


def bars(values: Sequence[float], *, width: int, least: float, most: float) -> str:
    """A curve of block characters, on a scale from ``least`` to ``most``; blank where a mean is not finite.

    Example:
        >>> from rl_sentinel.report.curves import bars
        >>> bars([0.0, 0.0, 1.0, 1.0], width=2, least=0.0, most=1.0)
        '▁█'
    """
    size = min(width, len(values))
    bounds = [len(values) * n // size for n in range(size + 1)]
    means = [_mean(values[a:b]) for a, b in pairwise(bounds)]
    span = most - least or 1.0
    return "".join(_bar((m - least) / span) for m in means)


def _bar(share: float) -> str:
    return _BARS[min(len(_BARS) - 1, int(share * len(_BARS)))] if math.isfinite(share) else " "


def picture(runs: Sequence[Run], path: Path, evaluations: Sequence[Run] = ()) -> None:
    """Draw the runs and their evaluations as a PNG with a panel per metric.

    Raises:
        ImportError: if matplotlib cannot be imported.
        SentinelError: if the file cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - an extra
    from matplotlib.figure import Figure  # noqa: PLC0415 - as above

    panels = [(key, key, runs) for key, _ in METRICS]
    panels += [(key, f"held-out {key}", evaluations) for key in _evaluated(evaluations)]
    rows = -(-len(panels) // 3)
    figure = Figure(figsize=(12, 3 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    subplots = list(figure.subplots(rows, 3).flat)
    for axes in subplots[len(panels) :]:
        axes.set_axis_off()
    for axes, (key, label, lines_of) in zip(subplots, panels, strict=False):
        for name, lines in lines_of:
            axes.plot([line["step"] for line in lines if key in line], [line[key] for line in lines if key in line])
            axes.lines[-1].set_label(name)
        axes.set_title(label)
        axes.set_xlabel("step")
        axes.grid(visible=True, alpha=0.3)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center")
    try:
        figure.savefig(path, format="png", dpi=110)
    except OSError as error:
        raise SentinelError(f"{path} cannot be written ({error.strerror or error}): name another path") from error


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
