"""The command class of the command line, which rejects an option with an empty value."""

from itertools import pairwise
from typing import Any

from typer.core import TyperCommand

from rl_sentinel.core.errors import SentinelError


class Command(TyperCommand):
    """A command that rejects an option with an empty value, which would be read like an absent option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer's private copy of click
        """Parse the arguments.

        Raises:
            SentinelError: if an option has an empty value, as in ``--against=`` or ``--against ""``.
        """
        valued = {name for p in self.params if not getattr(p, "is_flag", False) for name in p.opts if name[:2] == "--"}
        given = args[: args.index("--")] if "--" in args else args
        for argument, following in pairwise([*given, "-"]):
            option, equals, value = argument.partition("=")
            if option in valued and not (value if equals else following).strip():
                raise SentinelError(f"{option} has no value: state a value, or drop the option")
        return super().parse_args(ctx, args)
