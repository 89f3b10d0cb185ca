"""slime's option defaults: validation must keep options that are set, and fill in options that are not set."""

import json
from collections.abc import Callable, Iterator, Mapping
from tempfile import NamedTemporaryFile
from typing import Any

from rl_sentinel.adapters.kit.arriving_settings import arrives, bind_arriving
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.value_codecs import Constant, constants
from rl_sentinel.adapters.slime.checkpoints import OPTIONS, OWN, VALIDATE, validated
from rl_sentinel.adapters.slime.samples import module_source
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.call import Function
from rl_sentinel.core.case import Settings

#: An option that defaults to another option or to a number -> a value to set; all values differ.
GIVEN: Settings = {
    "start_rollout_id": 7,
    "eps_clip_high": 0.3,
    "over_sampling_batch_size": 3,
    "log_probs_max_tokens_per_gpu": 96,
    "eval_max_context_len": 80,
    "rollout_max_prompt_len": 40,
    "eval_reward_key": "accuracy",
    "eval_function_path": "mine.evaluate",
}

#: An option -> the option that it defaults to.
DEFAULTS_TO: Mapping[str, str] = {
    "eps_clip_high": "eps_clip",
    "over_sampling_batch_size": "rollout_batch_size",
    "log_probs_max_tokens_per_gpu": "max_tokens_per_gpu",
    "eval_max_context_len": "rollout_max_context_len",
    "eval_reward_key": "reward_key",
    "eval_function_path": "rollout_function_path",
}

#: The options that other options default to -> values to set.
_OF_DEFAULTS: Settings = {
    "eps_clip": 0.1,
    "rollout_batch_size": 2,
    "max_tokens_per_gpu": 48,
    "rollout_max_context_len": 64,
    "reward_key": "score",
    "rollout_function_path": "mine.generate",
}

#: Limits of length that are absent unless they are set: the help of one says "if set", and the limit of a whole
#: context is not the limit of a response, which every run sets.
UNSET = "null"
LIMITS: Settings = dict.fromkeys(("rollout_max_context_len", "rollout_max_prompt_len"), UNSET)

#: The option that names a file of options, and options in this file that also have a value without it.
_FILE = "custom_config_path"
IN_FILE: Settings = {"eps_clip": 0.375, "rollout_max_context_len": 72}

_DOCS = "slime/utils/arguments.py: the help of the options; slime_validate_args fills in options that are None"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the command-line options that validation fills in, in a new run and after a restart."""
    source = module_source(target, OPTIONS)
    if not target.has(VALIDATE):
        return
    known = {name: value for name, value in GIVEN.items() if _is_option(source, name) and f"args.{name} =" in source}
    places = {f"args.{name}": name for name in known}
    for when, restarted in (("new run", False), ("restart", True)):
        yield from bindable(target, _boundary(f"options given, {when}", known, places, restarted=restarted))
    pairs = {name: other for name, other in DEFAULTS_TO.items() if f"args.{name} = args.{other}" in source}
    settings = {other: _OF_DEFAULTS[other] for other in pairs.values()}
    places = {f"args.{name}": other for name, other in pairs.items()}
    yield from bindable(target, _boundary("options not given", settings, places, restarted=False))
    limits = {name: value for name, value in LIMITS.items() if _is_option(source, name)}
    if limits:
        places = {f"args.{name}": name for name in limits}
        yield from bindable(target, _boundary("limits not set", limits, places, restarted=False))
    if _is_option(source, _FILE):
        places = {f"args.{name}": name for name in IN_FILE}
        yield from bindable(target, _boundary("options of a file", IN_FILE, places, restarted=False, in_file=True))


def _is_option(source: str, name: str) -> bool:
    """Whether ``name`` is a command-line option."""
    return f'"--{name.replace("_", "-")}"' in source


def options_after(
    validate: Callable[..., Any],
    options: Settings,
    places: Mapping[str, str],
    restarted: bool,  # noqa: FBT001 - of the boundary
    in_file: bool = False,  # noqa: FBT001, FBT002 - of the boundary
) -> dict[str, float]:
    """Validate the options; return what arrives at each place (see :func:`arrives`).

    The options come from the command line or, with ``in_file``, from the file of options. An option whose value is
    :data:`UNSET` is not given, and must be absent afterwards too.
    """
    both: dict[str, Any] = {"rollout_max_context_len": 64, "use_dynamic_batch_size": True, "max_tokens_per_gpu": 48}
    with NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(dict(options), file)
        file.flush()
        given = {option: None if value == UNSET else value for option, value in options.items()}
        both |= {_FILE: file.name} if in_file else given
        args = vars(validated(validate, has_checkpoint=restarted, load=OWN if restarted else None, **both))
    arrived = {place: args.get(place.partition(".")[2]) for place in places}
    return {
        place: arrives(options[option], UNSET if arrived[place] is None else arrived[place])
        for place, option in places.items()
    }


def _boundary(
    name: str, settings: Settings, places: Mapping[str, str], *, restarted: bool, in_file: bool = False
) -> Boundary:
    given = " ".join(f"--{option.replace('_', '-')} {value}" for option, value in settings.items() if value != UNSET)
    return bind_arriving(
        VALIDATE,
        options_after,
        {"validate": Constant(Function(VALIDATE)), **constants(restarted=restarted, in_file=in_file)},
        places,
        settings={name: settings},
        cite=_DOCS,
        reach=f"--custom-config-path, a file with {settings}" if in_file else given or "the defaults",
    )
