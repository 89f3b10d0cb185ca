"""SkyRL's settings that are given as a dict of overrides, on their way into the configuration."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rl_sentinel.adapters.kit.arriving_settings import arrives
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.configs import Config, get_field
from rl_sentinel.adapters.kit.forms import Number
from rl_sentinel.adapters.kit.value_codecs import AllSettings, Constant
from rl_sentinel.adapters.skyrl.arguments import CONFIG
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Scalar, Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.errors import Unbindable

SUPERVISED = "skyrl.train.config.sft_config.SFTConfig"

#: The list of stop strings: a setting has its only one.
STOP = "generator.sampling_params.stop"

TEMPERATURE = "generator.sampling_params.temperature"

#: Class -> setting -> overrides, by their paths: numbers, and texts that are something else in YAML.
FAMILIES: Mapping[str, Mapping[str, Settings]] = {
    CONFIG: {
        "numbers": {
            TEMPERATURE: 0.7,
            "generator.sampling_params.top_p": 0.9,
            "generator.n_samples_per_prompt": 3,
            "trainer.algorithm.eps_clip_high": 0.3,
            "trainer.policy.optimizer_config.lr": 1e-05,
        },
        "texts": {"trainer.run_name": "1e5", "trainer.project_name": "null"},
        "a line break": {STOP: "\n\n"},
        "a tag": {STOP: "</answer>"},
    },
    SUPERVISED: {
        "numbers": {"optimizer_config.lr": 1e-05, "batch_size": 8, "seed": 7},
        "texts": {"run_name": "1e5", "project_name": "null"},
    },
}

#: Where a setting arrives besides its own path.
ALSO: Mapping[str, str] = {TEMPERATURE: "trainer.algorithm.temperature"}

_DOCS = (
    "config.py, from_cli_overrides, docstring: a dict that maps dot-notation keys to values; SamplingParams, "
    "docstring: the temperature is propagated to trainer.algorithm.temperature"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The overrides, in releases whose configurations are made from a dict."""
    for owner, families in FAMILIES.items():
        path = f"{owner}.from_cli_overrides"
        if not target.has(path) or target.fails(owner):
            continue
        if "dict" in inspect.getsource(target.find(path)):
            for name, settings in families.items():
                known = {option: value for option, value in settings.items() if _has(target, owner, option)}
                yield from bindable(target, *([_boundary(path, name, known)] if known else []))


def _has(target: Target, owner: str, option: str) -> bool:
    """Whether the configuration of this release has the field, and each other one at which it arrives."""
    try:
        Config(owner, dict.fromkeys(_places(option))).check(target)
    except Unbindable:
        return False
    return True


def arrived(make: Callable[..., Any], options: Settings) -> dict[str, float]:
    """What the configuration has of each override, at each place at which it arrives."""
    config = make({path: _value(path, value) for path, value in options.items()})
    return {
        place: arrives(value, get_field(config, place)) for path, value in options.items() for place in _places(path)
    }


def _value(path: str, value: Scalar) -> Any:  # noqa: ANN401 - as the field has it
    return [value] if path == STOP else value


def _places(path: str) -> list[str]:
    return [path, *([ALSO[path]] if path in ALSO else [])]


def _boundary(path: str, name: str, settings: Settings) -> Boundary:
    step = Step(
        call=arrived,
        name="arrived",
        arguments={"make": Constant(Function(path)), "options": AllSettings()},
        remembered=True,
    )
    return Boundary(
        path=path,
        stage="config",
        steps=(step,),
        outputs={
            place: Output("", "", f"setting.{option}", at=Use("arrived")[place], form=Number())
            for option in settings
            for place in _places(option)
        },
        settings={f"overrides, {name}": settings},
        claims=claims(_DOCS),
        reach=", ".join(f"{option}={value!r}" for option, value in settings.items()),
    )
