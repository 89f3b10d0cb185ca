"""SkyRL's vLLM servers: the value of each option of the engine, from the configuration of a run."""

import inspect
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

from rl_sentinel.adapters.kit.arriving_settings import bind_arriving
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.server_flags import engine_options, flags_on_and_off
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.skyrl.arguments import config
from rl_sentinel.adapters.skyrl.generator import has_setting
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.call import Function
from rl_sentinel.core.case import Settings

PATH = "skyrl.backends.skyrl_train.inference_servers.utils.build_vllm_cli_args"
ENGINE = "skyrl.train.config.InferenceEngineConfig"

_SECTION = "generator.inference_engine"

#: Setting of a run -> its value, and the option of vLLM that gets it; no value is a default.
VALUES: Mapping[str, tuple[float | str, str]] = {
    "trainer.seed": (7, "seed"),
    f"{_SECTION}.model_dtype": ("float16", "dtype"),
    f"{_SECTION}.max_num_batched_tokens": (512, "max_num_batched_tokens"),
    f"{_SECTION}.max_num_seqs": (48, "max_num_seqs"),
    f"{_SECTION}.served_model_name": ("policy", "served_model_name"),
    f"{_SECTION}.engine_init_kwargs.max_model_len": (96, "max_model_len"),
}

#: Flags of the engine, which have the same name in the configuration.
FLAGS = (
    "enforce_eager",
    "enable_chunked_prefill",
    "enable_prefix_caching",
    "enable_return_routed_experts",
    "language_model_only",
)

#: Words after a field of the configuration that take back what the field promises.
_IGNORED = "not plumbed through"

_DOCS = (
    "config.py, InferenceEngineConfig: options of the engine, engine_init_kwargs for any other; TrainerConfig: seed; "
    "vLLM, engine arguments: enable_prefix_caching and enable_chunked_prefill are on unless they are set"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the options that are numbers or texts, and of the flags that are on or off."""
    if not target.has(PATH) or not target.has(ENGINE):
        return
    if why := target.fails(PATH) or target.fails(ENGINE):
        yield Unbound(PATH, "config", why)
        return
    values = {name: value for name, (value, _) in VALUES.items() if has_setting(target, name)}
    yield from bindable(target, _boundary("values", values, {VALUES[name][1]: name for name in values}))
    source = inspect.getsource(target.find(ENGINE))
    flags = {flag: f"{_SECTION}.{flag}" for flag in FLAGS if is_promised(source, flag)}
    for name, settings in flags_on_and_off(flags.values()).items():
        yield from bindable(target, _boundary(name, settings, flags))


def is_promised(source: str, name: str) -> bool:
    """Whether a class has a field, unless the text below the field says that the engine does not get it."""
    field = re.search(rf'^    {name}: [^\n]*\n(?P<about>    """.*?""")?', source, re.MULTILINE | re.DOTALL)
    return field is not None and _IGNORED not in (field["about"] or "")


class Parser:
    """A fake of vLLM's parser of an empty command line."""

    def parse_args(self, args: list[str]) -> Namespace:
        """The flags with vLLM's defaults."""
        return Namespace(args=args, **dict.fromkeys(FLAGS))


def with_arguments(parser: Parser) -> Parser:
    """The parser, whose options have defaults already."""
    return parser


def vllm_modules() -> dict[str, ModuleType]:
    """Fakes of the modules of vLLM that SkyRL imports to build the arguments."""
    arguments = SimpleNamespace(add_cli_args=with_arguments)
    contents: Mapping[str, Mapping[str, object]] = {
        "vllm": {"AsyncEngineArgs": arguments},
        "vllm.config": {"WeightTransferConfig": SimpleNamespace},
        "vllm.entrypoints.openai.cli_args": {"FrontendArgs": arguments},
        "vllm.platforms": {"current_platform": SimpleNamespace(device_type="cuda")},
        "vllm.utils": {"FlexibleArgumentParser": Parser},
        "vllm.utils.argparse_utils": {"FlexibleArgumentParser": Parser},
    }
    modules = {name: ModuleType(name) for name in contents}
    for name, module in modules.items():
        vars(module).update(contents[name])
    return modules


def arrived_options(
    build: Callable[..., Namespace],
    config: Any,  # noqa: ANN401 - SkyRL's class
    options: Settings,
    places: Mapping[str, str],
) -> dict[str, float]:
    """Build the arguments of a server; return what arrives at each option of the engine."""
    with patch.dict(sys.modules, vllm_modules()):
        arguments = build(config)
    return engine_options(vars(arguments), options, places)


def _boundary(name: str, settings: Settings, places: Mapping[str, str]) -> Boundary:
    return bind_arriving(
        PATH,
        arrived_options,
        {"build": Constant(Function(PATH)), "config": config(settings)},
        places,
        settings={name: settings},
        cite=_DOCS,
        reach=", ".join(f"{option}={value}" for option, value in settings.items()),
    )
