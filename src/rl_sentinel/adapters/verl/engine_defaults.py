"""The options with which verl's vLLM server samples, where the model has sampling options, as most published models."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rl_sentinel.adapters.kit.arriving_settings import arriving_outputs
from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.value_codecs import Constant, IfSet, constants
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.config_files import default_config
from rl_sentinel.adapters.verl.engine_imports import engine_installed
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import NotApplicable

MODULE = "verl.workers.rollout.vllm_rollout.vllm_async_server"
OWNER = f"{MODULE}.AsyncvLLMServer"
PATH = f"{OWNER}.init_engine"

#: The options of the model, in the file ``generation_config.json`` of a published model.
OF_MODEL: Mapping[str, float] = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "repetition_penalty": 1.1}

#: Options of the rollout's configuration.
OF_ROLLOUT: Settings = {"temperature": 0.7, "top_p": 0.9, "top_k": 30}

#: The penalty of the other engines, whose configuration has none: 1 is off.
LEFT_OFF: Settings = {"repetition_penalty": 1.0}

_DOCS = (
    "trainer/config/ppo_trainer.yaml, rollout: temperature, top_p, top_k, and no penalty; vllm_async_server.py, "
    "init_engine: the options of the server override the generation config of the model; vLLM, SamplingParams: "
    "repetition_penalty is 1.0 by default, as in the engine without a server"
)


class StartedError(Exception):
    """Raised in place of starting the engine: its options are known."""


class Sampling:
    """A fake of vLLM's SamplingParams, with the names of its options."""

    temperature = top_p = repetition_penalty = 1.0
    n, top_k, min_p, presence_penalty, frequency_penalty = 1, -1, 0.0, 0.0, 0.0
    seed = stop = logprobs = max_tokens = None
    ignore_eos = detokenize = False


class EngineArguments:
    """A fake of vLLM's engine arguments, which keeps the options."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - vLLM's options
        """Keep the options that override those of the model."""
        self.options = options

    def create_engine_config(self) -> None:
        """Stop here: the options of the model's file, where vLLM reads it, and those that override them."""
        from_file = dict(OF_MODEL) if self.options.get("generation_config", "auto") == "auto" else {}
        changed = self.options.get("override_generation_config") or {}
        raise StartedError(from_file | {name: value for name, value in changed.items() if value is not None})


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The boundary of the server's options, in releases whose server answers requests with its defaults."""
    with engine_installed("vllm"):
        found = target.has(PATH)  # imports its module
    if found:
        yield from try_bind(target, PATH, "config", lambda: [_options(target)])


def default_options(owner: type, config: Any) -> dict[str, float]:  # noqa: ANN401 - verl's class, a configuration
    """The options with which a request without options samples: vLLM updates the model's with the server's."""
    server = bare_instance(owner, config=config.actor_rollout_ref, vllm_dp_size=1, vllm_dp_rank=0, wg_prefix="")
    sent = asyncio.run(_started(server))
    return {name: float(sent.get(name, getattr(Sampling, name))) for name in OF_MODEL}


async def _started(server: Any) -> dict[str, Any]:  # noqa: ANN401 - a server of the target
    """The options with which the server starts its engine."""
    try:
        await server.init_engine()
    except StartedError as started:
        options: dict[str, Any] = started.args[0]
        return options
    raise NotApplicable("the server does not start an engine by vLLM's engine arguments")


def itself(path: str, **_options: object) -> str:
    """The path of a model that is on this machine."""
    return path


def _options(target: Target) -> Boundary:
    place = "actor_rollout_ref.rollout."
    fields: dict[str, Codec] = constants(**{"actor_rollout_ref.model.path": "a/model"})
    fields |= {f"{place}{name}": IfSet(f"{place}{name}") for name in OF_ROLLOUT}
    named = {f"{place}{name}": value for name, value in OF_ROLLOUT.items()}
    fakes: dict[str, Callable[..., Any]] = {
        f"{MODULE}.copy_to_local": itself,
        f"{MODULE}.SamplingParams": Sampling,
        f"{MODULE}.AsyncEngineArgs": EngineArguments,
    }
    return one_call(
        path=PATH,
        stage="config",
        call=default_options,
        name="sampled",
        arguments={
            "owner": Constant(Function(OWNER)),
            "config": default_config(target, "", fields, resolved=True),
        },
        remembered=True,
        fakes=fakes,
        outputs=arriving_outputs(
            Use("sampled"), {**{name: f"{place}{name}" for name in OF_ROLLOUT}, **{name: name for name in LEFT_OFF}}
        ),
        settings={"a model with sampling options": {**named, **LEFT_OFF}},
        claims=claims(_DOCS),
        reach="rollout.mode=async, rollout.name=vllm, and a model whose generation config has a penalty",
    )
