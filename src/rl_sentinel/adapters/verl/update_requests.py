"""Boundaries of verl's trainers: the options of an update that they send to the workers of actor and critic."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.arriving_settings import arrives, bind_arriving
from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.value_codecs import constants, functions, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.config_files import default_config
from rl_sentinel.adapters.verl.engine_passes import TRAINER
from rl_sentinel.adapters.verl.queue_fakes import QueuedBatch
from rl_sentinel.adapters.verl.queue_trainer import BASE
from rl_sentinel.adapters.verl.queue_trainer import TRAINER as V1_TRAINER
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.case import Settings

#: Class that defines the updates -> the class to instantiate, and how a user reaches it.
TRAINERS: Mapping[str, tuple[str, str]] = {
    TRAINER: (TRAINER, "trainer.use_v1=False, or a release without a v1 trainer"),
    BASE: (V1_TRAINER, "trainer.use_v1=True (the default); before 0.9: python -m verl.trainer.main_ppo_sync"),
}

#: The role, its section, and its options: the name of an option in the request, in the section, and a value.
ROLES: Mapping[str, tuple[str, Mapping[str, tuple[str, float | bool]]]] = {
    "actor": (
        "actor_rollout_ref.actor",
        {
            "calculate_entropy": ("calculate_entropy", True),
            "mini_batch_size": ("ppo_mini_batch_size", 8),
            "epochs": ("ppo_epochs", 3),
            "seed": ("data_loader_seed", 7),
            "shuffle": ("shuffle", True),
        },
    ),
    "critic": (
        "critic",
        {
            "mini_batch_size": ("ppo_mini_batch_size", 8),
            "epochs": ("ppo_epochs", 3),
            "seed": ("data_loader_seed", 7),
            "shuffle": ("shuffle", True),
        },
    ),
}

_DOCS = (
    "trainer/config/actor/actor.yaml and critic/critic.yaml, comments: ppo_epochs, shuffle, data_loader_seed, "
    "ppo_mini_batch_size; calculate_entropy, when true, the actor forward will request entropy from the model"
)


class _SentError(Exception):
    """Ends the method after the request is sent."""


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the updates whose request has the options, in releases with engine workers."""
    for defines, (owner, reach) in TRAINERS.items():
        if not target.has(defines) or target.fails(owner):
            continue
        for role, (section, options) in ROLES.items():
            path = f"{defines}._update_{role}"
            source = inspect.getsource(inspect.unwrap(target.find(path))) if target.has(path) else ""
            names = [name for name, (option, _) in options.items() if name in source and _offered(target, role, option)]
            if names and re.search(r"\bmini_batch_size(=|\")", source):
                chosen = {name: (f"{section}.{options[name][0]}", options[name][1]) for name in names}
                yield from try_bind(target, path, "config", partial(_requests, target, path, owner, chosen, reach))


def _offered(target: Target, role: str, option: str) -> bool:
    """Whether the configuration files of the role have the option."""
    folder = target.root / "verl" / "trainer" / "config"
    files = [*folder.glob(f"{role}/*.yaml"), *folder.glob("ppo_*trainer.yaml")]
    return any(re.search(rf"^ *{option}:", file.read_text(encoding="utf-8"), re.MULTILINE) for file in files)


def sent_options(
    method: Callable[..., Any],
    owner: type,
    config: Any,  # noqa: ANN401 - an OmegaConf configuration
    options: Settings,
    places: Mapping[str, str],
) -> dict[str, float]:
    """Run the update of a trainer until it calls its workers; return the options that the request carries."""
    request: dict[str, Any] = {}

    def send(data: Any) -> None:  # noqa: ANN401 - keys of the queue, or a TensorDict
        request.update(data.extra_info if isinstance(data, QueuedBatch) else _read(method, data))
        raise _SentError

    group = SimpleNamespace(update_actor=send, train_mini_batch=send)
    workers = {"actor_rollout_wg": group, "critic_wg": group, "use_legacy_worker_impl": "disable"}
    trainer = bare_instance(owner, config=config, distillation_config=None, **workers)
    code = inspect.unwrap(method)
    with replaced_globals(code.__globals__, left_right_2_no_padding=_unchanged), suppress(_SentError):
        if "metrics" in inspect.signature(code).parameters:
            method(trainer, QueuedBatch([]), {})
        else:
            method(trainer, SimpleNamespace(meta_info={}, to_tensordict=_empty))
    request |= dict(request.get("dataloader_kwargs", {}))
    return {place: arrives(options[setting], request.get(place)) for place, setting in places.items()}


def _read(method: Callable[..., Any], data: Any) -> dict[str, Any]:  # noqa: ANN401 - a TensorDict
    """The options as a worker reads them from its data."""
    read = inspect.unwrap(method).__globals__["tu"].get_non_tensor_data
    names = {name for _, options in ROLES.values() for name in options} | {"dataloader_kwargs"}
    present = {name: read(data=data, key=name, default=None) for name in names}
    return {name: value for name, value in present.items() if value is not None}


def _empty() -> Any:  # noqa: ANN401 - a TensorDict
    """A batch without columns: the options do not depend on its rows."""
    from tensordict import TensorDict  # noqa: PLC0415 - installed only with the target

    return TensorDict({}, batch_size=[2])


def _unchanged(batch: Any) -> Any:  # noqa: ANN401 - any batch
    return batch


def _requests(
    target: Target, path: str, owner: str, chosen: Mapping[str, tuple[str, float | bool]], reach: str
) -> Iterator[Boundary]:
    options: Settings = dict(chosen.values())
    fields = constants(**{"actor_rollout_ref.rollout.n": 1, "actor_rollout_ref.actor.entropy_coeff": 0})
    yield bind_arriving(
        path,
        sent_options,
        {
            **functions(method=path, owner=owner),
            "config": default_config(target, "", {**fields, **knobs(*options)}, resolved=True),
        },
        {name: option for name, (option, _) in chosen.items()},
        settings={"options of an update": options},
        cite=_DOCS,
        reach=f"{reach}; " + ", ".join(f"{option}={value}" for option, value in options.items()),
    )
