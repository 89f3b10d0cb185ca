"""Boundaries of verl's workers before 0.8: the tokenizer that they load beside the model."""

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, redirect_stdout, suppress
from functools import partial
from typing import Any
from unittest.mock import patch

from rl_sentinel.adapters.kit.arriving_settings import arrives, bind_arriving
from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.replacement import bare_instance, nothing, replaced_globals
from rl_sentinel.adapters.kit.value_codecs import Knob, constants, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.config_files import default_config
from rl_sentinel.adapters.verl.model_processors import Models
from rl_sentinel.adapters.verl.run_tokenizers import itself
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.case import Settings

#: Modules of workers, and the default configuration of each.
MODULES: Mapping[str, str] = {
    "verl.workers.fsdp_workers": "ppo_trainer",
    "verl.workers.megatron_workers": "ppo_megatron_trainer",
}

#: Method that builds a model -> its section of the configuration, and the configuration's place in this section.
BUILDERS: Mapping[str, str] = {
    "ActorRolloutRefWorker._build_model_optimizer": "actor_rollout_ref",
    "CriticWorker._build_critic_model_optimizer": "critic",
}

#: The option, and its values.
OPTION, MODEL, TOKENIZER = "tokenizer_path", "a/model", "a/tokenizer"

_DOCS = (
    "trainer/config/model/hf_model.yaml and critic/critic.yaml: tokenizer_path, the tokenizer if it is not that of the "
    "model's path; workers: its special tokens override those of the model's configuration"
)


class _LoadedError(Exception):
    """Ends the method after it loads the tokenizer."""


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the workers whose configuration has a path of the tokenizer."""
    for module, trainer in MODULES.items():
        for method, section in BUILDERS.items():
            path = f"{module}.{method}"
            if target.has(path) and not target.fails(path.rpartition(".")[0]) and _offered(target, section):
                yield from try_bind(target, path, "config", partial(_tokenizers, target, path, section, trainer))


def _offered(target: Target, section: str) -> bool:
    """Whether the configuration files have the path of the tokenizer of this section."""
    folder = target.root / "verl" / "trainer" / "config"
    names = ("critic/critic.yaml",) if section == "critic" else ("model/hf_model.yaml",)
    files = [folder / name for name in names if (folder / name).is_file()]
    return any(re.search(rf"^ *{OPTION}:", file.read_text(encoding="utf-8"), re.MULTILINE) for file in files)


def loaded_from(
    build: Callable[..., Any],
    owner: type,
    config: Any,  # noqa: ANN401 - a section of the trainer's configuration
    options: Settings,
    places: Mapping[str, str],
) -> dict[str, float]:
    """Build the model of a worker until it loads the tokenizer; return whether this is the tokenizer of the option."""
    loaded: list[str] = []

    def load(path: str, *_about: object, **_options: object) -> None:
        loaded.append(path)
        raise _LoadedError

    method = inspect.unwrap(build)
    fakes: dict[str, Any] = {"hf_tokenizer": load, "copy_to_local": itself, "log_gpu_memory_usage": nothing}
    roles = {"_is_actor": True, "_is_rollout": True, "_is_ref": False}
    worker = bare_instance(owner, config=config, dtype=None, **roles)
    given: dict[str, Any] = {"config": config, "model_path": MODEL, "role": "actor"}
    parameters = list(inspect.signature(method).parameters.values())[1:]
    arguments = {p.name: given.get(p.name, {}) for p in parameters if p.default is p.empty or p.name in given}
    with ExitStack() as stack:
        for name in ("verl.utils", "verl.utils.fs"):  # some methods import the functions when they run
            module = importlib.import_module(name)
            stack.enter_context(patch.multiple(module, create=True, hf_tokenizer=load, copy_to_local=itself))
        stack.enter_context(patch.dict(sys.modules, transformers=Models("transformers")))
        stack.enter_context(replaced_globals(method.__globals__, **fakes))
        stack.enter_context(redirect_stdout(None))
        stack.enter_context(suppress(_LoadedError))
        build(worker, **arguments)
    (path,) = loaded
    return {place: arrives(options[setting], path) for place, setting in places.items()}


def _tokenizers(target: Target, path: str, section: str, trainer: str) -> Iterator[Boundary]:
    name = f"{section}.model.{OPTION}"
    fields = {**constants(**{"model.path": MODEL}), f"model.{OPTION}": Knob(name)}
    yield bind_arriving(
        path,
        loaded_from,
        {
            **functions(build=path, owner=path.rpartition(".")[0]),
            "config": default_config(target, section, fields, trainer, resolved=True),
        },
        {OPTION: name},
        settings={"a tokenizer of its own": {name: TOKENIZER}},
        cite=_DOCS,
        reach=f"{name}={TOKENIZER}, and workers before verl 0.8",
    )
