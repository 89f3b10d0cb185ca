"""slime's SGLang engines: the value of each option that a server gets from the command line of a run."""

import argparse
import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, ClassVar, Never

from rl_sentinel.adapters.kit.arriving_settings import bind_arriving
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.replacement import nothing, replaced_globals
from rl_sentinel.adapters.kit.server_flags import engine_options, flags_on_and_off
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.call import Function
from rl_sentinel.core.case import Settings

FOLDER = "slime.backends.sglang_utils"
OPTIONS = f"{FOLDER}.arguments.add_sglang_arguments"
ENGINE = f"{FOLDER}.sglang_engine.SGLangEngine"
PATH = f"{ENGINE}.init"

#: Options of SGLang -> the value that is set; no value is a default.
VALUES: Settings = {
    "dtype": "float16",
    "context_length": 96,
    "max_running_requests": 48,
    "kv_cache_dtype": "fp8_e5m2",
    "chunked_prefill_size": 512,
}

#: The option of slime that a server gets under another name.
SEED, OF_SEED = "seed", "random_seed"

#: Options of SGLang that are on or off, and off by default.
FLAGS = ("disable_radix_cache", "disable_cuda_graph", "enable_deterministic_inference", "enable_mixed_chunk")

#: The parameter of an engine with the options of its group of servers.
OVERRIDES = "sglang_overrides"

_DOCS = (
    "slime/backends/sglang_utils/arguments.py, add_sglang_arguments: the options of SGLang's server, with the prefix "
    "--sglang-; --sglang-config: overrides of a group of servers; slime/utils/arguments.py, --seed; SGLang, server "
    "arguments: all of these flags are off by default"
)

#: Options of slime that the arguments of a server depend on: one server on one device, beside the trainer.
RUN: Mapping[str, object] = {
    "hf_checkpoint": "model",
    SEED: 1,
    "colocate": True,
    "offload": False,
    "offload_rollout": False,
    "rollout_external": False,
    "rollout_num_gpus_per_engine": 1,
    "num_gpus_per_node": 8,
    "rollout_num_gpus_per_node": 8,
    "debug_rollout_only": False,
    "use_critic": False,
    "use_rollout_routing_replay": False,
    "fp16": False,
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of values and flags of the command line, and of the overrides for a group of servers."""
    if not target.has(PATH) or not target.has(OPTIONS):
        return
    if why := target.fails(ENGINE) or target.fails(OPTIONS):
        yield Unbound(PATH, "config", why)
        return
    yield from bindable(target, *(_boundary(name, flags) for name, flags in flags_on_and_off(FLAGS).items()))
    source = inspect.getsource(target.find(OPTIONS))
    values = {
        name: value for name, value in VALUES.items() if f'"{name}"' not in source
    }  # the source names skipped ones
    yield from bindable(target, _boundary("values", {**values, SEED: 5}))
    if OVERRIDES in inspect.signature(target.find(ENGINE)).parameters:
        yield from bindable(target, _boundary("overrides", VALUES, overrides=True))


@dataclasses.dataclass(kw_only=True)
class ServerArguments:
    """A fake of SGLang's ``ServerArgs``: the fields that slime sets, and some options."""

    model_path: str = ""
    trust_remote_code: bool = False
    random_seed: int | None = None
    host: str = "localhost"
    port: int = 0
    nccl_port: int = 0
    nnodes: int = 1
    node_rank: int = 0
    dist_init_addr: str | None = None
    tp_size: int = 1
    dp_size: int = 1
    pp_size: int = 1
    ep_size: int = 1
    dtype: str = "auto"
    kv_cache_dtype: str = "auto"
    context_length: int | None = None
    max_running_requests: int | None = None
    chunked_prefill_size: int | None = None
    disable_radix_cache: bool = False
    disable_cuda_graph: bool = False
    enable_deterministic_inference: bool = False
    enable_mixed_chunk: bool = False

    #: Long names of options on the command line, by field; others have the name of the field.
    names: ClassVar[Mapping[str, str]] = {
        f"{short}_size": f"{long}-parallel-size"
        for short, long in {"tp": "tensor", "dp": "data", "pp": "pipeline", "ep": "expert"}.items()
    }

    @classmethod
    def add_cli_args(cls, parser: Any) -> None:  # noqa: ANN401 - a parser with a replaced method
        """Add the options to a parser."""
        for field in dataclasses.fields(cls):
            name = f"--{field.name.replace('_', '-')}"
            if field.type is bool:
                parser.add_argument(name, action="store_true")
            else:
                long = [f"--{cls.names[field.name]}"] if field.name in cls.names else []
                kind = str if "str" in str(field.type) else int
                parser.add_argument(*long, name, type=kind, default=field.default)


class Launched(Exception):  # noqa: N818 - it ends the start of an engine
    """The arguments with which slime starts a server."""


def launch(arguments: object) -> Never:
    """Raise the arguments, in place of starting a server."""
    raise Launched(arguments)


#: Names of slime's modules -> fakes of SGLang's classes, of the start of a server, and of the device's number.
FAKES: Mapping[str, Any] = {
    "ServerArgs": ServerArguments,
    "RouterArgs": SimpleNamespace(add_cli_args=nothing),
    "launch_server_process": launch,
    "accelerator": SimpleNamespace(resolve_visible_device_id=int),
    "_to_local_gpu_id": int,
    "get_host_info": lambda: ("localhost", "localhost"),
}


def command_line(options: Settings) -> list[str]:
    """The options of SGLang's server as words; a flag that is off is left out."""
    words: list[str] = []
    for name, value in options.items():
        option = f"--sglang-{name.replace('_', '-')}"
        if not isinstance(value, bool):
            words += [option, str(value)]
        elif value:
            words.append(option)
    return words


def started(
    add: Callable[[Any], Any],
    owner: type,
    overrides: bool,  # noqa: FBT001 - of the boundary
    options: Settings,
    places: Mapping[str, str],
) -> dict[str, float]:
    """Read a command line, and start an engine; return what arrives at each option of its server."""
    own = {name: value for name, value in options.items() if name != SEED}
    modules = add.__globals__, vars(sys.modules[owner.__module__])
    parser = argparse.ArgumentParser()
    with replaced_globals(*modules, **FAKES):
        parser = add(parser) or parser
        args = parser.parse_args([] if overrides else command_line(own))
        vars(args).update({**RUN, **{name: value for name, value in options.items() if name == SEED}})
        modules[0]["validate_args"](args)
        engine: Any = owner(args, 0, **({OVERRIDES: own} if overrides else {}))
        try:
            engine.init("localhost:1", 2, 3)
        except Launched as launched:
            return engine_options(vars(launched.args[0]), options, places)
    raise RuntimeError("the engine started no server")


def _boundary(name: str, settings: Settings, *, overrides: bool = False) -> Boundary:
    given = " ".join(command_line({name: value for name, value in settings.items() if name != SEED}))
    seed = f" --seed {settings[SEED]}" if SEED in settings else ""
    return bind_arriving(
        f"{OPTIONS} -> {PATH}",
        started,
        {"add": Constant(Function(OPTIONS)), "owner": Constant(Function(ENGINE)), "overrides": Constant(overrides)},
        {OF_SEED if option == SEED else option: option for option in settings},
        settings={name: settings},
        cite=_DOCS,
        reach=f"--sglang-config, overrides {settings}" if overrides else given + seed or "the defaults",
    )
