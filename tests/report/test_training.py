"""What people look at while a model trains."""

import io

from rich.console import Console

from rl_sentinel.report.training import Live


def _console() -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, width=200, highlight=False), out


def test_without_a_terminal_there_is_a_line_now_and_then() -> None:
    console, out = _console()
    with Live(console, 40, shown=False) as live:
        live.warming(1, 2)
        for step in range(1, 41):
            live.step({"step": step, "reward": 0.25, "kl": 0.1}, {"tokens_per_second": 1234.5})
    told = out.getvalue().splitlines()
    assert told[:2] == ["warm start 1 of 2", "step 1 reward 0.250 kl 0.1000 1234 tokens/s"]
    assert [line.split()[1] for line in told[1:]] == [str(n) for n in (1, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40)]
