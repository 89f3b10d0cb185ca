"""TRL's vLLM engines, in a server and in a trainer's process: the value of each option that the engine gets."""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.arriving_settings import arrives, bind_arriving
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.replacement import nothing
from rl_sentinel.adapters.kit.server_flags import (
    engine_options,
    flags_on_and_off,
    option_of_server,
    options_of_command,
)
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import TRAINERS
from rl_sentinel.adapters.trl.engine_log_probs import SERVER, WORKER, fake_vllm
from rl_sentinel.adapters.trl.release import fields_of
from rl_sentinel.adapters.trl.sampling import engines_of, is_inline, sampling_path
from rl_sentinel.adapters.trl.sampling_engine_fakes import VLLM
from rl_sentinel.adapters.trl.tiny_trainer import make_trainer
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.call import Function
from rl_sentinel.core.case import Settings

#: The function that builds the command of vLLM's own server, in releases that start it instead of a worker.
COMMAND = f"{SERVER}.build_command"

#: Option of the server's command or field of the trainer's configuration -> its value; no value is a default.
SERVER_VALUES: Settings = {
    "revision": "r2",
    "dtype": "float16",
    "max_model_len": 96,
    "kv_cache_dtype": "fp8",
    "gpu_memory_utilization": 0.5,
    "vllm_model_impl": "transformers",
}
TRAINER_VALUES: Settings = {
    "vllm_max_model_length": 96,
    "vllm_gpu_memory_utilization": 0.5,
    "vllm_model_impl": "transformers",
}

#: Options of the server's command and fields of the trainer's configuration that are on or off in the engine.
SERVER_FLAGS = ("enable_prefix_caching", "enforce_eager", "trust_remote_code")
TRAINER_FLAGS = ("vllm_enable_sleep_mode", "trust_remote_code")

#: Fields that a trainer needs where the engine's context is the sum of two lengths, until 0.21.
LIMITS: Mapping[str, int] = {"max_prompt_length": 8}

#: Names in TRL, without ``vllm_`` -> the option of vLLM, if the names differ.
_NAMES = {"max_model_length": "max_model_len"}

_SERVED = (
    "scripts/vllm_serve.py, ScriptArguments: options of the engine; vLLM, engine arguments: enable_prefix_caching is "
    "on unless it is set"
)
_OWN = "grpo_config.py, parameters of vLLM in colocate mode, and trust_remote_code: options of the engine"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of a server's engine, and of each trainer's engine in its own process: values, flags on and off."""
    paths = {COMMAND: commanded, WORKER: served} if target.has(f"{SERVER}.make_parser") else {}
    for path, call in paths.items():
        if not target.has(path) or target.fails(SERVER):
            continue
        known = vars(target.find(f"{SERVER}.ScriptArguments"))["__dataclass_fields__"]
        parts = {"entry": Constant(Function(path)), "parser": Constant(Function(f"{SERVER}.make_parser"))}
        for name, settings in _families(known, SERVER_VALUES, SERVER_FLAGS):
            reach = " ".join(f"--{option} {value}" for option, value in settings.items())
            yield from bindable(target, _boundary(path, call, parts, f"server, {name}", settings, reach))
    for kind, owner in TRAINERS.items():
        path = sampling_path(target, owner)
        if not target.has(path) or target.fails(owner) or "colocate" not in engines_of(target, path):
            continue
        starts = f"{owner}.__init__" + ("" if is_inline(target, path) else f" -> {VLLM}.VLLMGeneration._init_vllm")
        fields = fields_of(target, owner)
        limits = {name: length for name, length in LIMITS.items() if name in fields}
        for name, settings in _families(fields, TRAINER_VALUES, TRAINER_FLAGS):
            reach = ", ".join(f"{option}={value}" for option, value in settings.items())
            reach = f"use_vllm=True, vllm_mode=colocate, {reach}"
            own = {"kind": Constant(kind), "limits": Constant(limits)}
            yield from bindable(target, _boundary(starts, colocated, own, f"colocate, {name}", settings, reach))


def _families(known: Mapping[str, object], values: Settings, flags: tuple[str, ...]) -> Iterator[tuple[str, Settings]]:
    """The settings that a release has: its values, its flags that are on, and those that are off."""
    for name, options in {"values": values, **flags_on_and_off(flags)}.items():
        settings = {option: value for option, value in options.items() if option in known}
        if settings:
            yield name, settings


def option_of(name: str) -> str:
    """The name in vLLM of an option of TRL."""
    plain = name.removeprefix("vllm_")
    return _NAMES.get(plain, plain)


class Recorder:
    """A fake of vLLM's ``LLM``, which records its keyword arguments."""

    def __init__(self) -> None:
        """Record nothing yet."""
        self.passed: dict[str, Any] = {}

    def start(self, **passed: object) -> SimpleNamespace:
        """An engine that does nothing."""
        self.passed = passed
        return SimpleNamespace(sleep=nothing)


def words_of(options: Settings) -> list[str]:
    """The command line of a server."""
    return ["--model", "tiny", *(word for name, value in options.items() for word in (f"--{name}", str(value)))]


def commanded(
    entry: Callable[..., list[str]],
    parser: Callable[[], Any],
    options: Settings,
    places: Mapping[str, str],
) -> dict[str, float]:
    """Build the command of vLLM's own server by TRL's command; return what arrives at each of its options."""
    (arguments,) = parser().parse_args_and_config(words_of(options))
    words = options_of_command(entry(arguments))
    arrived = {place: option_of_server(words, place, options[name]) for place, name in places.items()}
    return {place: arrives(options[name], arrived[place]) for place, name in places.items()}


def served(
    entry: Callable[..., Any],
    parser: Callable[[], Any],
    options: Settings,
    places: Mapping[str, str],
) -> dict[str, float]:
    """Start the worker of a server by its command line; return what arrives at each option of its engine."""
    engine = Recorder()
    connection = SimpleNamespace(send=nothing, recv=lambda: {"type": "shutdown"})
    with fake_vllm(engine.start, SERVER):
        (arguments,) = parser().parse_args_and_config(words_of(options))
        entry(arguments, 0, 0, connection)
    return engine_options(engine.passed, options, places)


def colocated(kind: str, limits: Mapping[str, Any], options: Settings, places: Mapping[str, str]) -> dict[str, float]:
    """Build a trainer that starts an engine in its own process; return what arrives at each option of the engine."""
    module = importlib.import_module(f"trl.trainer.{kind}_trainer").__name__  # it imports the other one
    engine = Recorder()
    with fake_vllm(engine.start, module, *([VLLM] if VLLM in sys.modules else [])):
        make_trainer(kind, engine="colocate", **limits, **options)
    return engine_options(engine.passed, options, places)


def _boundary(  # noqa: PLR0913 - the parts of one description
    path: str,
    call: Callable[..., Any],
    arguments: Mapping[str, Constant],
    name: str,
    settings: Settings,
    reach: str,
) -> Boundary:
    return bind_arriving(
        path,
        call,
        arguments,
        {option_of(option): option for option in settings},
        settings={name: settings},
        cite=_OWN if call is colocated else _SERVED,
        reach=reach,
    )
