"""Entry point of ``rl-sentinel``: register the commands, print errors in one line."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated

import typer

import rl_sentinel
from rl_sentinel.cli import audit, curves, export, history, information, recall, replay, train, twin
from rl_sentinel.cli.command import Command
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.phrasing import bound

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(requested: bool) -> None:  # noqa: FBT001 - the signature that typer needs
    if requested:
        print(f"rl-sentinel {rl_sentinel.__version__}")  # noqa: T201 - the command line's own output
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Audit the training signal of LLM reinforcement learning, or train a model with a signal that is audited first."""
    del version


for _function in (
    audit.audit,
    information.explain,
    information.laws,
    information.boundaries,
    information.influence,
    replay.replay,
    history.history,
    recall.recall,
    train.train,
    twin.twin,
    curves.curves,
    export.export,
):
    app.command(_function.__name__, cls=Command)(_function)

#: The exception for a wrong option. Typer ships a private copy of click, so the class is looked up by name.
_USAGE: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if issubclass(kind, Exception) and kind.__name__ == "ClickException"
)

#: Signals that end this process; its worker must end too.
_END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run() -> None:
    """Run the command line; an error that the user can fix is printed as one line on standard error, with status 2."""
    try:
        with _ending_worker_first():
            sys.exit(app(prog_name="rl-sentinel", standalone_mode=False))
    except _Ended as ended:
        status = int(str(ended.code))
        _fail(f"ended by {signal.Signals(status - 128).name}", status)
    except SentinelError as error:
        _fail(str(error), error.status)
    except _USAGE as error:
        _fail_usage(error)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        _fail(f"{place}{error.strerror or error}")


@contextmanager
def _ending_worker_first() -> Iterator[None]:
    """Turn a signal that ends the process into an exception, unless the signal is ignored."""
    handlers = {n: signal.getsignal(n) for n in _END_SIGNALS}
    for number, handler in handlers.items():
        if handler in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _ended)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


class _Ended(SystemExit):
    """A signal ended the process; the message is printed last, after the progress bar is gone."""


def _ended(number: int, _frame: FrameType | None) -> None:
    """Raise, so that context managers end the processes that were started."""
    raise _Ended(128 + number)


def _fail(message: str, status: int = 2) -> None:
    line = " ".join(message.split())
    print(f"rl-sentinel: {line}", file=sys.stderr)  # noqa: T201 - the command line's own output
    sys.exit(status)


def _fail_usage(error: Exception) -> None:
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        print(context.get_help() if context else error, file=sys.stderr)  # noqa: T201
        sys.exit(2)
    command = context.command_path if context else "rl-sentinel"
    message = getattr(error, "format_message", error.__str__)().rstrip(".")
    place, should, text = message.replace("Value error, ", "").partition("Input should be ")
    message = f"{place}expected {bound(text)}" if should else place
    _fail(f"{message}: see {command} --help")
