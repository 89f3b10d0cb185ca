"""verl's migration of legacy reward settings: whether each value arrives at its new place."""

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rl_sentinel.adapters.kit.arriving_settings import arrives, bind_arriving
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.config_files import default_config, untraced
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.call import Function
from rl_sentinel.core.case import Settings

PATH = "verl.experimental.reward_loop.reward_loop.migrate_legacy_reward_impl"

#: Where an option is set, by a user in an old place or by default in a new one -> where it is read.
PLACES: Mapping[str, str] = {
    "reward_model.num_workers": "reward.num_workers",
    "reward_model.reward_manager": "reward.reward_manager.name",
    "reward_model.reward_kwargs.max_resp_len": "reward.reward_kwargs.max_resp_len",
    "reward_model.reward_kwargs.overlong_buffer_cfg.len": "reward.reward_kwargs.overlong_buffer_cfg.len",
    "reward_model.rollout.response_length": "reward.reward_model.rollout.response_length",
    "reward.reward_model.rollout.prompt_length": "reward.reward_model.rollout.prompt_length",
    "sandbox_fusion.max_concurrent": "reward.sandbox_fusion.max_concurrent",
    "reward.sandbox_fusion.memory_limit_mb": "reward.sandbox_fusion.memory_limit_mb",
}

#: Options that a user sets in their old place, and defaults of the same sections in their new place.
_GIVEN: Settings = dict(zip(PLACES, (3, "dapo", 96, 32, 64, 2048, 5, 1024), strict=True))

_DOCS = (
    "reward_loop.py, migrate_legacy_reward_impl, docstring and comments: migrates the legacy settings, each to its new "
    "place; reward_manager/dapo.py: reads config.reward.reward_kwargs"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the migration, in releases that have it."""
    if target.has(PATH) and not target.fails(PATH):
        yield from bindable(target, _migrated(target))


@untraced()
def _with_options(config: Any, options: Settings) -> Any:  # noqa: ANN401 - the trainer's configuration
    from omegaconf import OmegaConf  # noqa: PLC0415 - installed only with the target

    config = copy.deepcopy(config)
    for name, value in options.items():
        OmegaConf.update(config, name, value, force_add=True)
    return config


@untraced()
def _read(config: Any, name: str) -> object:  # noqa: ANN401 - the trainer's configuration
    from omegaconf import OmegaConf  # noqa: PLC0415 - installed only with the target

    found: object = OmegaConf.select(config, name)
    return found


def migrated(
    migrate: Callable[..., Any],
    config: Any,  # noqa: ANN401 - the trainer's configuration
    options: Settings,
    places: Mapping[str, str],
) -> dict[str, float]:
    """The number that each setting has at its new place after the migration; for a text, 1 if it arrives, else 0."""
    moved = migrate(_with_options(config, options))
    return {place: arrives(options[name], _read(moved, place)) for place, name in places.items()}


def _migrated(target: Target) -> Boundary:
    return bind_arriving(
        PATH,
        migrated,
        {"migrate": Constant(Function(PATH)), "config": default_config(target, "", {})},
        {place: name for name, place in PLACES.items()},
        settings={"an option of each section in its old place": _GIVEN},
        cite=_DOCS,
        reach="options of reward_model and sandbox_fusion on the command line, as in the examples of earlier releases",
    )
