"""Flags and options of an inference server, as they arrive on its command line or as keyword arguments."""

from collections.abc import Container, Iterable, Mapping, Sequence

from rl_sentinel.adapters.kit.arriving_settings import arrives
from rl_sentinel.core.case import Settings

#: Flags that vLLM has on unless the command has ``--no-NAME`` (its engine arguments; None means on for these).
ON_BY_DEFAULT = ("enable_chunked_prefill", "enable_prefix_caching")


def flags_on_and_off(names: Iterable[str]) -> dict[str, Settings]:
    """Two families of settings: all flags on, and all flags off.

    Example:
        >>> from rl_sentinel.adapters.kit.server_flags import flags_on_and_off
        >>> flags_on_and_off(["eager"])
        {'flags that are on': {'eager': True}, 'flags that are off': {'eager': False}}
    """
    listed = list(names)
    return {f"flags that are {word}": dict.fromkeys(listed, word == "on") for word in ("on", "off")}


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


def engine_options(passed: Mapping[str, object], options: Settings, places: Mapping[str, str]) -> dict[str, float]:
    """The value of each option in an engine that gets these keyword arguments (see :func:`arrives`).

    A flag that is absent or None has the engine's default.

    Args:
        passed: the engine's keyword arguments.
        options: the settings of the configuration.
        places: the name of an option in the engine -> the setting that it gets.

    Example:
        >>> from rl_sentinel.adapters.kit.server_flags import engine_options
        >>> engine_options({"seed": 5}, {"caching": False, "seed": 5}, {"enable_prefix_caching": "caching"})
        {'enable_prefix_caching': 1.0}
    """
    arrived = {place: passed.get(place) for place in places}
    flags = {place: place in ON_BY_DEFAULT for place, name in places.items() if isinstance(options[name], bool)}
    defaults = {place: on for place, on in flags.items() if arrived[place] is None}
    return {place: arrives(options[name], {**arrived, **defaults}[place]) for place, name in places.items()}


def options_of_command(words: Sequence[str]) -> dict[str, object]:
    """The options of a command by name, as texts; a flag is True.

    Example:
        >>> from rl_sentinel.adapters.kit.server_flags import options_of_command
        >>> options_of_command(["python3", "-m", "server", "--seed", "5", "--no-cache"])
        {'seed': '5', 'no_cache': True}
    """
    places = [place for place, word in enumerate(words) if word.startswith("--")]
    options: dict[str, object] = {}
    for place, after in zip(places, [*places, len(words)][1:], strict=True):
        name = words[place].removeprefix("--").replace("-", "_")
        options[name] = " ".join(words[place + 1 : after]) if after > place + 1 else True
    return options


def option_of_server(options: Mapping[str, object], name: str, value: object) -> object:
    """The value that a server has for an option of its command, in the type of the configuration's ``value``."""
    if isinstance(value, bool):
        return flag_of_server(options, name)
    text = options.get(name)
    return float(text) if isinstance(text, str) and not isinstance(value, str) else text
