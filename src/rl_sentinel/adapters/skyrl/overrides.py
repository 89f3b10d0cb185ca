"""SkyRL's configuration from a dict of overrides: whether each override arrives."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rl_sentinel.adapters.kit.arriving_settings import arrives, bind_arriving
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.configs import Config, get_field
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.skyrl.arguments import CONFIG
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.call import Function
from rl_sentinel.core.case import Scalar, Settings
from rl_sentinel.core.errors import Unbindable

SUPERVISED = "skyrl.train.config.sft_config.SFTConfig"

#: The option for the list of stop strings; the settings below give its only entry.
STOP = "generator.sampling_params.stop"

TEMPERATURE = "generator.sampling_params.temperature"

#: Configuration class -> name of a setting -> overrides by path: numbers and texts, some of which YAML would convert.
FAMILIES: Mapping[str, Mapping[str, Settings]] = {
    CONFIG: {
        "numbers": {
            TEMPERATURE: 0.7,
            "generator.sampling_params.top_p": 0.9,
            "generator.sampling_params.max_generate_length": 99,
            "generator.n_samples_per_prompt": 3,
            "trainer.max_prompt_length": 600,
            "trainer.algorithm.eps_clip_high": 0.3,
            "trainer.policy.optimizer_config.lr": 1e-05,
        },
        "texts": {"trainer.run_name": "1e5", "trainer.project_name": "null", "trainer.policy.model.path": "policy"},
        "a line break": {STOP: "\n\n"},
        "a tag": {STOP: "</answer>"},
        "beside defaults": {
            "generator.max_input_length": 700,
            "generator.eval_sampling_params.temperature": 0.3,
            "generator.eval_sampling_params.max_generate_length": 88,
            "trainer.ref.model.path": "reference",
            "generator.sampling_params.max_generate_length": 99,
            "trainer.max_prompt_length": 600,
            "trainer.policy.model.path": "policy",
        },
    },
    SUPERVISED: {
        "numbers": {"optimizer_config.lr": 1e-05, "batch_size": 8, "seed": 7},
        "texts": {"run_name": "1e5", "project_name": "null"},
    },
}

#: Option -> another option whose default is its value, and the line of code in releases where this is so.
DEFAULTING: Mapping[str, tuple[str, str]] = {
    TEMPERATURE: (
        "trainer.algorithm.temperature",
        "self.trainer.algorithm.temperature = self.generator.sampling_params.temperature",
    ),
    "trainer.max_prompt_length": (
        "generator.max_input_length",
        "self.generator.max_input_length = self.trainer.max_prompt_length",
    ),
    "generator.sampling_params.max_generate_length": (
        "generator.eval_sampling_params.max_generate_length",
        "max_generate_length=self.sampling_params.max_generate_length",
    ),
    "trainer.policy.model.path": ("trainer.ref.model.path", "self.ref.model.path = self.policy.model.path"),
}

_DOCS = (
    "config.py, from_cli_overrides, docstring: a dict that maps dot-notation keys to values; __post_init__: settings "
    "that default to other settings, among them the temperature of the algorithm"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries that show whether each override arrives in the configuration.

    There are no boundaries in releases that do not build the configuration from a dict.
    """
    for owner, families in FAMILIES.items():
        path = f"{owner}.from_cli_overrides"
        if not target.has(path) or target.fails(owner):
            continue
        if "dict" in inspect.getsource(target.find(path)):
            source = _source(target, owner)
            for name, settings in families.items():
                known = {option: value for option, value in settings.items() if _has(target, owner, option)}
                yield from bindable(target, *([_boundary(path, name, known, _places(source, known))] if known else []))


def _source(target: Target, owner: str) -> str:
    """The source text of the module that defines a class; empty if the module is unknown."""
    module = inspect.getmodule(target.find(owner))
    return inspect.getsource(module) if module else ""


def _has(target: Target, owner: str, option: str) -> bool:
    """Whether the configuration of this release has the field."""
    try:
        Config(owner, {option: None}).check(target)
    except Unbindable:
        return False
    return True


def _places(source: str, settings: Settings) -> dict[str, str]:
    """Path to read -> overridden option: the path of the option itself, and paths of options that default to it."""
    options = {option: option for option in settings}
    defaulting = {
        place: option for option, (place, code) in DEFAULTING.items() if option in settings and code in source
    }
    return defaulting | options


def read_overrides(make: Callable[..., Any], options: Settings, places: Mapping[str, str]) -> dict[str, float]:
    """Build the configuration from overrides; return the value that arrives at each path (see :func:`arrives`)."""
    config = make({path: _value(path, value) for path, value in options.items()})
    return {place: arrives(options[path], get_field(config, place)) for place, path in places.items()}


def _value(path: str, value: Scalar) -> Any:  # noqa: ANN401 - as the field has it
    return [value] if path == STOP else value


def _boundary(path: str, name: str, settings: Settings, places: Mapping[str, str]) -> Boundary:
    return bind_arriving(
        path,
        read_overrides,
        {"make": Constant(Function(path))},
        places,
        settings={f"overrides, {name}": settings},
        cite=_DOCS,
        reach=", ".join(f"{option}={value!r}" for option, value in settings.items()),
    )
