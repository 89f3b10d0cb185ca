"""``rl-sentinel``: the commands, and the one-line form of every error."""

import sys

import typer

from rl_sentinel.cli import audit, look, replay
from rl_sentinel.core.errors import SentinelError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Audit the training signal of LLM reinforcement learning.",
)
app.command("audit")(audit.audit)
app.command("explain")(look.explain)
app.command("laws")(look.laws)
app.command("boundaries")(look.boundaries)
app.command("influence")(look.influence)
app.command("replay")(replay.replay)


def run() -> None:
    """Entry point: an error that is the user's to mend is one line on standard error, status 2."""
    try:
        app()
    except SentinelError as error:
        line = " ".join(str(error).split())
        print(f"rl-sentinel: {line}", file=sys.stderr)  # noqa: T201 - the command line's own output
        sys.exit(2)
