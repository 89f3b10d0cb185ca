"""Show the progress of a training run on the terminal: a line per step and a progress bar."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from rl_sentinel.report.completions import completions_table

#: Parts of a step's line: the metric, its number format, and its label.
COLUMNS = (
    ("reward", "{:.3f}", "reward"),
    ("accuracy", "{:.3f}", "accuracy"),
    ("kl", "{:.4f}", "kl"),
    ("clip_fraction", "{:.3f}", "clipped"),
    ("entropy", "{:.3f}", "entropy"),
    ("response_length", "{:.1f}", "length"),
)


class Live:
    r"""Progress bar and a line per step on a terminal; without a terminal, a line every few steps.

    Example:
        >>> import io
        >>> from rich.console import Console
        >>> from rl_sentinel.report.training import Live
        >>> console = Console(file=io.StringIO(), width=200)
        >>> with Live(console, 1, shown=False) as live:
        ...     live.step({"step": 1, "reward": 0.5}, {"tokens_per_second": 7.0})
        >>> console.file.getvalue()
        'step 1 reward 0.500 7 tokens/s\n'
    """

    def __init__(self, console: Console, steps: int, *, shown: bool) -> None:
        """Store the console and the number of steps; ``shown`` is True if the output is a terminal."""
        bar = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._console, self._steps, self._shown = console, steps, shown
        self._progress = Progress(*bar, console=console, disable=not shown, transient=True)
        self._bar: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        """Show the bar."""
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the bar."""
        self._progress.stop()

    def warming(self, done: int, whole: int) -> None:
        """Show a step of the warm start."""
        self._advanced("warm start", done, whole)
        if not self._shown and _now_and_then(done, whole):
            self._console.print(f"warm start {done} of {whole}", soft_wrap=True)

    def step(self, metrics: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
        """Show a step of reinforcement learning."""
        self._advanced("training", int(metrics["step"]), self._steps)
        if self._shown or _now_and_then(int(metrics["step"]), self._steps):
            parts = [f"{name} {form.format(metrics[key])}" for key, form, name in COLUMNS if key in metrics]
            line = f"step {metrics['step']} {' '.join(parts)} {timing['tokens_per_second']:.0f} tokens/s"
            self._console.print(line, soft_wrap=True)

    def completions(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Show a few responses at the first step, the last step and some steps between."""
        if lines and _now_and_then(int(lines[0]["step"]), self._steps):
            self._console.print(completions_table(lines))

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show the metrics of a held-out evaluation."""
        parts = " ".join(f"{name} {value:.3f}" for name, value in metrics.items())
        self._console.print(f"evaluation after step {step}: {parts}", soft_wrap=True)

    def say(self, line: str) -> None:
        """Print a line of text."""
        self._console.print(line, soft_wrap=True, markup=False)

    def _advanced(self, name: str, done: int, whole: int) -> None:
        if name not in self._bar:
            self._bar[name] = self._progress.add_task(name, total=whole)
        self._progress.update(self._bar[name], completed=done)


def _now_and_then(done: int, whole: int) -> bool:
    return done in {1, whole} or done % max(1, whole // 10) == 0
