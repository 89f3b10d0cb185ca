"""Flags on the command line of an inference server, which are on or off."""

from collections.abc import Container

#: Flags that vLLM has on unless the command has ``--no-NAME`` (its engine arguments; None means on for these).
ON_BY_DEFAULT = ("enable_chunked_prefill", "enable_prefix_caching")


def flag_of_server(options: Container[str], name: str) -> bool:
    """Whether a flag is on in a server that is started with the options; ``no_NAME`` is the opposite of ``NAME``.

    Example:
        >>> from rl_sentinel.adapters.kit.server_flags import flag_of_server
        >>> flag_of_server({"seed"}, "enable_prefix_caching"), flag_of_server({"seed"}, "enforce_eager")
        (True, False)
    """
    if name.startswith("no_"):
        return not flag_of_server(options, name.removeprefix("no_"))
    return f"no_{name}" not in options and (name in options or name in ON_BY_DEFAULT)
