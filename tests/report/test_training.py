"""What people look at while a model trains."""

import io

from rich.console import Console

from rl_sentinel.report.training import Live, table

LINES = [{"step": n + 1, "reward": n / 10, "accuracy": n / 20, "kl": 0.5} for n in range(10)]


def _console() -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, width=200, highlight=False), out


def test_without_a_terminal_there_is_a_line_now_and_then() -> None:
    """The first, the last, and each tenth of the way."""
    console, out = _console()
    with Live(console, 40, shown=False) as live:
        live.warming(1, 2)
        for step in range(1, 41):
            live.step({"step": step, "reward": 0.25, "kl": 0.1}, {"tokens_per_second": 1234.5})
    told = out.getvalue().splitlines()
    assert told[:2] == ["warm start 1 of 2", "step 1 reward 0.250 kl 0.1000 1234 tokens/s"]
    assert [line.split()[1] for line in told[1:]] == [str(n) for n in (1, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40)]


def test_table_tells_both_ends_of_each_run() -> None:
    """Means over the first and the last steps; a metric that a run lacks is a dash."""
    console, out = _console()
    console.print(table([("one", LINES), ("two", [{"step": 1, "reward": 1.0}])], window=2))
    head, one, two = (line.split() for line in out.getvalue().splitlines())
    assert head == ["run", "steps", "reward", "accuracy", "kl"]
    assert one == ["one", "10", "0.050", "->", "0.850", "0.025", "->", "0.425", "0.5000", "->", "0.5000"]
    assert two == ["two", "1", "1.000", "->", "1.000", "-", "->", "-", "-", "->", "-"]
