"""Boundaries of the launch of verl's vLLM servers: the options of the engine, and the random numbers of replicas."""

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

from rl_sentinel.adapters.kit.arriving_settings import arrives, arriving_outputs
from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.replacement import bare_instance, nothing
from rl_sentinel.adapters.kit.server_flags import flag_of_server
from rl_sentinel.adapters.kit.value_codecs import AllSettings, Constant, Derived, IfSet, constants
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.engine_imports import engine_installed
from rl_sentinel.adapters.verl.rollout_servers import CONFIG, SERVERS
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

OWNER = SERVERS["vllm"].owner
PATH = f"{OWNER}.launch_server"
MODULE = OWNER.rpartition(".")[0]

#: Field of the rollout's configuration -> the value that is set; no two are equal, and none is a default.
OPTIONS: Settings = {
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": 20,
    "max_model_len": 96,
    "max_num_seqs": 48,
    "dtype": "float16",
    "logprobs_mode": "raw_logprobs",
}


#: Fields of the rollout's configuration that are on or off in the engine.
FLAGS = ("enforce_eager", "enable_chunked_prefill", "enable_prefix_caching")

#: Setting of the boundary -> the options that it sets.
FAMILIES: Mapping[str, Settings] = {
    "options of the engine": OPTIONS,
    **{f"flags that are {word}": dict.fromkeys(FLAGS, word == "on") for word in ("on", "off")},
}

_DOCS = claims(
    "trainer/config/rollout/rollout.yaml: sampling parameters, max_model_len, max_num_seqs, dtype, logprobs_mode, "
    "enforce_eager, enable_chunked_prefill and enable_prefix_caching of the rollout engine"
)
_SAMPLES = (
    "rollout.yaml, n: responses sampled per prompt; replica.py, RolloutReplica: replica_rank, the rank of a replica. "
    "Engines with equal seeds draw equal random numbers for equal requests"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the engine's options, and of the samples that several replicas draw for one prompt."""
    if not target.has(CONFIG) or target.fails(CONFIG):
        return
    with engine_installed("vllm"):
        found = target.has(PATH)  # imports its module
    if found:
        for name, options in FAMILIES.items():
            yield from try_bind(target, PATH, "config", partial(_options, target, name, options))
        yield from try_bind(target, PATH, "batch", lambda: [_samples(target)])


class Parser:
    """A fake of vLLM's parser of the command line, which returns the options as texts."""

    def __init__(self, **_about: object) -> None:
        """Ignore the description."""

    def add_subparsers(self, **_about: object) -> None:
        """Add nothing, because there is one command."""

    def parse_args(self, args: list[str]) -> SimpleNamespace:
        """The options by name; a flag is ``"True"``."""
        options: dict[str, str] = {}
        names = [place for place, word in enumerate(args) if word.startswith("--")]
        for place, after in zip(names, [*names[1:], len(args)], strict=True):
            options[args[place].removeprefix("--").replace("-", "_")] = " ".join(args[place + 1 : after]) or "True"
        return SimpleNamespace(subparser="serve", model_tag=args[1], **options)


@dataclass(frozen=True, slots=True)
class EngineArguments:
    """The flags among vLLM's engine arguments, with vLLM's types and defaults; None is resolved to True."""

    enforce_eager: bool = False
    enable_chunked_prefill: bool | None = None
    enable_prefix_caching: bool | None = None


#: vLLM's module with its engine arguments, which verl reads to know the flags that are on by default.
ENGINE_MODULE = "vllm.engine.arg_utils"

#: Names of the server's module -> fakes: vLLM's command line has no commands, nothing is printed, and workers
#: have no addresses.
FAKES: Mapping[str, Any] = {
    "vllm": SimpleNamespace(
        __version__="9999.0", entrypoints=SimpleNamespace(cli=SimpleNamespace(serve=SimpleNamespace(cmd_init=list)))
    ),
    "FlexibleArgumentParser": Parser,
    "pprint": lambda *_about, **_more: None,
    "ray": SimpleNamespace(get=lambda addresses: ["" for _ in addresses]),
}


def engine_module() -> ModuleType:
    """A fake of vLLM's module with its engine arguments."""
    module = ModuleType(ENGINE_MODULE)
    vars(module).update(AsyncEngineArgs=EngineArguments, EngineArgs=EngineArguments)
    return module


def launched(owner: type, config: Any, rank: int) -> dict[str, Any]:  # noqa: ANN401 - verl's class
    """The options with which a replica starts its engine."""
    options: list[Any] = []

    async def run_server(args: Any) -> None:  # noqa: ANN401 - as the parser returns
        options.append(args)

    server = bare_instance(
        owner,
        config=config,
        model_config=SimpleNamespace(
            local_path="model", trust_remote_code=False, lora_rank=0, lora={}, hf_config=SimpleNamespace()
        ),
        replica_rank=rank,
        node_rank=0,
        nnodes=1,
        gpus_per_node=1,
        workers=[SimpleNamespace(get_zeromq_address=SimpleNamespace(remote=nothing))],
        run_server=run_server,
        profiler_controller=SimpleNamespace(config=None, tool_config=None),
        _should_profile=lambda: False,
        _disaggregation_role="null",
        **dict.fromkeys(("_master_sock", "_dp_rpc_sock", "_dp_master_sock"), SimpleNamespace(close=nothing)),
        **dict.fromkeys(("_master_address", "_master_port", "_dp_rpc_port", "_dp_master_port")),
    )
    with patch.dict(sys.modules, {ENGINE_MODULE: engine_module()}):
        asyncio.run(server.launch_server())
    arguments: dict[str, Any] = vars(options[0])
    return arguments


def engine_options(owner: type, config: Any, options: Settings) -> dict[str, float]:  # noqa: ANN401 - verl's class
    """The value of each option that arrives at the engine; for a text, 1 if it arrives, else 0."""
    arguments = launched(owner, config, rank=0)
    arguments |= json.loads(arguments.get("override_generation_config", "{}"))
    return {name: arrives(value, _arrived(arguments, name, value)) for name, value in options.items()}


def _arrived(arguments: Mapping[str, object], name: str, given: object) -> object:
    """The value of an option in the engine: a number or a flag if the setting is one, else as it was written."""
    if isinstance(given, bool):
        return flag_of_server(arguments, name)
    text = arguments.get(name)
    return float(text) if isinstance(text, str) and not isinstance(given, str) else text


def samples_of_replicas(owner: type, config: Any, rows: int) -> list[float]:  # noqa: ANN401 - verl's class
    """How often each of ``rows`` samples is drawn, if each replica draws one; equal seeds draw the same sample."""
    seeds = [launched(owner, config, rank).get("seed", "0") for rank in range(rows)]
    sample_of = {seed: sample for sample, seed in enumerate(dict.fromkeys(seeds))}
    uses = [0.0] * rows
    for seed in seeds:
        uses[sample_of[seed]] += 1.0
    return uses


def _fakes(target: Target) -> dict[str, Any]:
    """The fakes of names that the server's module has."""
    module = vars(target.module(MODULE))
    return {f"{MODULE}.{name}": fake for name, fake in FAKES.items() if name in module}


def _options(target: Target, name: str, options: Settings) -> list[Boundary]:
    known = vars(target.find(CONFIG)).get("__dataclass_fields__", {})
    settings = {option: value for option, value in options.items() if option in known}
    return [_boundary(target, name, settings)] if settings else []


def _boundary(target: Target, name: str, settings: Settings) -> Boundary:
    config = Object(CONFIG, {"name": Constant("vllm"), **{option: IfSet(option) for option in settings}}, shared=True)
    return one_call(
        path=PATH,
        stage="config",
        call=engine_options,
        name="started",
        fakes=_fakes(target),
        arguments={"owner": Constant(Function(OWNER)), "config": config, "options": AllSettings()},
        remembered=True,
        outputs=arriving_outputs(Use("started"), {option: option for option in settings}),
        settings={name: settings},
        claims=_DOCS,
        reach="rollout.name=vllm, " + ", ".join(f"rollout.{option}={value}" for option, value in settings.items()),
    )


def _samples(target: Target) -> Boundary:
    return one_call(
        path=PATH,
        stage="batch",
        call=samples_of_replicas,
        name="drawn",
        fakes=_fakes(target),
        arguments={
            "owner": Constant(Function(OWNER)),
            "config": Object(CONFIG, constants(name="vllm", max_model_len=64), shared=True),
            "rows": Derived(lambda inputs: inputs.batch.rows),
        },
        produced_by={"rows": "replica.py: one server per replica; the requests of a prompt are spread over replicas"},
        remembered=True,
        reads=frozenset({"group"}),
        outputs={"uses": Output("B", "", "uses", at=Use("drawn"), form=PerRow("list"))},
        settings={"a replica for each sample": {}},
        claims=claims(_SAMPLES),
        reach="rollout.name=vllm, several replicas, rollout.n above 1",
    )
