"""AReaL's commands that start vLLM and SGLang: the value of each option that the server gets."""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import partial
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.arriving_settings import arrives, bind_arriving
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.server_flags import flags_on_and_off, option_of_server, options_of_command
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.call import Function
from rl_sentinel.core.case import Settings

MODULE = "areal.api.cli_args"

#: Options of a command that change what a server samples, or the log-probs that it returns.
VALUES: Mapping[str, Settings] = {
    "vLLM": {"seed": 5, "dtype": "float16", "max_num_seqs": 48, "max_model_len": 96},
    "SGLang": {"random_seed": 5, "dtype": "float16", "context_length": 96, "max_running_requests": 48},
}
FLAGS: Mapping[str, tuple[str, ...]] = {
    "vLLM": (
        "enforce_eager",
        "disable_sliding_window",
        "enable_chunked_prefill",
        "no_enable_chunked_prefill",
        "enable_prefix_caching",
        "no_enable_prefix_caching",
    ),
    "SGLang": ("disable_radix_cache", "disable_overlap_schedule", "enable_mixed_chunk", "allow_auto_truncate"),
}

#: Arguments of ``build_cmd`` beside the configuration, of which a release requires some: one server on one device.
PLACE: Mapping[str, object] = {
    "tp_size": 1,
    "pp_size": 1,
    "base_gpu_id": 0,
    "host": "localhost",
    "port": 8000,
    "dist_init_addr": "localhost:8001",
}

_CITE = (
    "areal/api/cli_args.py, vLLMConfig and SGLangConfig: the fields are options of the server, written by get_py_cmd; "
    "vLLM, engine arguments: a flag that is on by default is turned off by --no-NAME; SGLang, server arguments: all "
    "flags are off by default"
)


#: AReaL's checks of an installed package -> their result for the version that AReaL asks for.
CHECKS: Mapping[str, bool] = {
    "is_version_greater_or_equal": True,
    "is_version_equal": True,
    "is_version_less": False,
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of each server's command: values, and flags that are on or off."""
    for server in VALUES:
        owner = f"{MODULE}.{server}Config"
        if not target.has(f"{owner}.build_cmd"):
            continue
        if why := target.fails(owner):
            yield Unbound(f"{owner}.build_cmd", "config", why)
            continue
        known = {field.name for field in fields(target.find(owner))}
        for name, options in {"values": VALUES[server], **flags_on_and_off(FLAGS[server])}.items():
            yield from bindable(target, _boundary(owner, name, {n: v for n, v in options.items() if n in known}))


def _answer(result: bool, *_package: object) -> bool:  # noqa: FBT001 - bound by position
    """The result of a check of a package's version."""
    return result


def started(config: Any, options: Settings, places: Mapping[str, str]) -> dict[str, float]:  # noqa: ANN401 - AReaL's class
    """Build the command of a server; return what arrives at each place (see :func:`arrives`)."""
    build = config.build_cmd
    takes = inspect.signature(build).parameters
    required = [name for name, parameter in takes.items() if parameter.default is inspect.Parameter.empty]
    arguments = {name: PLACE[name] for name in required[1:]}
    checks: dict[str, Any] = {name: partial(_answer, result) for name, result in CHECKS.items()}
    fakes = {"pkg_version": SimpleNamespace(**checks), **checks}
    module = build.__globals__
    with replaced_globals(module, **{name: fake for name, fake in fakes.items() if name in module}):
        command = build(config(**options), **arguments)
    words = options_of_command(command)
    arrived = {place: option_of_server(words, option, options[option]) for place, option in places.items()}
    return {place: arrives(options[option], arrived[place]) for place, option in places.items()}


def _boundary(owner: str, name: str, settings: Settings) -> Boundary:
    section = owner.rpartition(".")[2].removesuffix("Config").lower()
    return bind_arriving(
        f"{owner}.build_cmd",
        started,
        {"config": Constant(Function(owner))},
        {f"option {option}": option for option in settings},
        settings={name: settings},
        cite=_CITE,
        reach=", ".join(f"{section}.{option}={value}" for option, value in settings.items()),
    )
