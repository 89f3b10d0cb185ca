"""Boundaries of the constructors of verl's inference servers: whether they keep the options of the rollout."""

import inspect
import os
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from rl_sentinel.adapters.kit.arriving_settings import arrives, arriving_outputs
from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.value_codecs import AllSettings, Constant, IfSet
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.engine_imports import engine_installed
from rl_sentinel.adapters.verl.launched_servers import OPTIONS
from rl_sentinel.adapters.verl.rollout_servers import CONFIG, SERVERS
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

#: Engines whose server is constructed without a GPU.
NAMES = ("vllm", "sglang")

#: The maximum length that the model allows; the rollout's ``max_model_len`` is below it.
LONGEST = 4096

#: The attribute that is set after the configuration is complete.
_AFTER = "workers"

#: Arguments of the constructors that are read before then; others are None.
_ARGUMENTS = {"replica_rank": 0, "node_rank": 0, "cuda_visible_devices": "0", "disaggregation_role": "null"}

_DOCS = claims(
    "trainer/config/rollout/rollout.yaml: sampling parameters, max_model_len (null: the model's own maximum), "
    "max_num_seqs and dtype of the rollout engine"
)
_CALLER = "replica.py, RolloutReplica.launch_servers: the server is created with the configuration of the rollout"


class _KeptError(Exception):
    """Ends the constructor after the configuration is complete."""


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the servers whose constructor gets a configuration of the rollout."""
    if not target.has(CONFIG) or target.fails(CONFIG):
        return
    known = vars(target.find(CONFIG)).get("__dataclass_fields__", {})
    settings = {option: value for option, value in OPTIONS.items() if option in known}
    for name in NAMES:
        path = f"{SERVERS[name].owner}.__init__"
        with engine_installed(name):
            found = target.has(path)  # imports its module
        if found and settings:
            yield from try_bind(target, path, "config", partial(_kept, name, path, settings))


def unchanged(config: Any, *_about: object, **_options: object) -> Any:  # noqa: ANN401 - a configuration
    """The configuration itself, which is already an object of its dataclass."""
    return config


def kept_options(owner: type, config: Any, options: Settings) -> dict[str, float]:  # noqa: ANN401 - verl's class
    """The value of each option in the server's configuration; for a text, 1 if it is kept, else 0."""
    build = owner.__init__  # type: ignore[misc] # the target's own constructor

    def complete(_server: object, name: str, value: object) -> None:
        if name == _AFTER:
            raise _KeptError
        object.__setattr__(_server, name, value)

    server: Any = object.__new__(type("Constructed", (owner,), {"__setattr__": complete}))
    model = SimpleNamespace(hf_config=SimpleNamespace(max_position_embeddings=LONGEST))
    arguments = dict.fromkeys(list(inspect.signature(build).parameters)[1:])
    given: dict[str, Any] = {"config": config, "model_config": model, **_ARGUMENTS}
    arguments |= {name: value for name, value in given.items() if name in arguments}
    context = SimpleNamespace(get_runtime_context=lambda: SimpleNamespace(get_job_id=lambda: "job"))
    fakes = {"ray": context, "omega_conf_to_dataclass": unchanged}
    with (
        patch.dict(os.environ),
        redirect_stdout(None),
        replaced_globals(build.__globals__, **fakes),
        suppress(_KeptError),
    ):
        build(server, **arguments)
    return {name: arrives(value, getattr(server.config, name, None)) for name, value in options.items()}


def _kept(name: str, path: str, settings: Settings) -> list[Boundary]:
    config = Object(CONFIG, {"name": Constant(name), **{option: IfSet(option) for option in settings}}, shared=True)
    return [
        one_call(
            path=path,
            stage="config",
            call=kept_options,
            name="kept",
            arguments={
                "owner": Constant(Function(SERVERS[name].owner)),
                "config": config,
                "options": AllSettings(),
            },
            produced_by={"config": _CALLER},
            remembered=True,
            outputs=arriving_outputs(Use("kept"), {option: option for option in settings}),
            settings={"options of the rollout": settings},
            claims=_DOCS,
            reach=f"rollout.name={name}, "
            + ", ".join(f"rollout.{option}={value}" for option, value in settings.items()),
        )
    ]
