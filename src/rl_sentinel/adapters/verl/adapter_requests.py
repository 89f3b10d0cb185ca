"""Boundary of verl's inference servers under LoRA: whether a request asks for the adapter that is trained."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import partial
from typing import Any

from rl_sentinel.adapters.kit.arriving_settings import arriving_outputs
from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.scripted_sampling import ScriptedResponse
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob, constants
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.engine_imports import engine_installed
from rl_sentinel.adapters.verl.rollout_servers import CONFIG, SERVERS, Server
from rl_sentinel.adapters.verl.server_fakes import Engine, Options, server_of
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

#: Server -> texts. The files of its folder contain one of them if its rollout sends an adapter to the engine.
SENT: Mapping[str, tuple[str, ...]] = {"vllm": (".add_lora(", "lora_as_adapter"), "sglang": ("lora_as_adapter",)}

_RANK = "docs/advance/ppo_lora.rst: actor_rollout_ref.model.lora_rank, set to a value greater than 0, enables LoRA"


class AdapterEngine(Engine):
    """A fake engine that has loaded an adapter and records which adapter each request asks for."""

    def __init__(self, script: ScriptedResponse, adapter: object) -> None:
        """Start without a request; ``adapter`` is the id of the adapter."""
        super().__init__(script, 1)
        self.adapter, self.asked = adapter, list[object]()

    async def list_loras(self) -> list[Any]:
        """The id of the adapter."""
        return [self.adapter]

    def generate(self, prompt: Mapping[str, Any], sampling_params: Options, **about: object) -> AsyncIterator[Any]:
        """Return the reply in the form of vLLM."""
        self.asked.append(about.get("lora_request"))
        return super().generate(prompt, sampling_params)

    def generate_request(self, request: Any, web_request: object) -> AsyncIterator[dict[str, Any]]:  # noqa: ANN401
        """Return the reply in the form of SGLang."""
        self.asked.append(getattr(request, "lora_path", None))
        return super().generate_request(request, web_request)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of one request to each server whose rollout sends an adapter to the engine."""
    if not target.has(CONFIG) or target.fails(CONFIG):
        return
    for name, texts in SENT.items():
        server = SERVERS[name]
        path = f"{server.owner}.generate"
        with engine_installed(name):
            found = target.has(path)
        if found and _sends(target, server.owner, texts):
            yield from try_bind(target, path, "config", partial(_request, target, name, server))


def rank_that_samples(server: type, rollout: Any, rank: int) -> dict[str, float]:  # noqa: ANN401 - of the target
    """Send a request; return the rank of the adapter that it asks for, or 0 if it asks for the model alone."""
    engine = AdapterEngine(ScriptedResponse([0], [1], [-1.0], [0]), _own_number(server))
    serving = server_of(server, rollout, engine)
    serving.model_config.lora_rank = rank
    asyncio.run(serving.generate(prompt_ids=[0], sampling_params={"temperature": 1.0}, request_id="request"))
    return {"adapter": float(rank if engine.asked[0] is not None else 0)}


def _own_number(server: Any) -> object:  # noqa: ANN401 - a class of the target
    return server.generate.__globals__.get("VLLM_LORA_INT_ID", 0)


def _sends(target: Target, owner: str, texts: tuple[str, ...]) -> bool:
    folder = target.root.joinpath(*owner.split(".")[:-2])
    return any(text in file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.py")) for text in texts)


def _request(target: Target, name: str, server: Server) -> Iterator[Boundary]:
    module = server.owner.rpartition(".")[0]
    request = f"{module}.LoRARequest"
    fakes: dict[str, Callable[..., Any]] = {
        **server.fakes,
        **({request: Options} if target.has(request) else {}),
    }
    yield one_call(
        path=f"{server.owner}.generate",
        stage="config",
        call=rank_that_samples,
        name="sent",
        fakes=fakes,
        arguments={
            "server": Constant(Function(server.owner)),
            "rollout": Object(CONFIG, constants(name=name, max_model_len=64), shared=True),
            "rank": Knob("model.lora_rank"),
        },
        remembered=True,
        produced_by={"rank": "workers/config/model.py, HFModelConfig.lora_rank"},
        outputs=arriving_outputs(Use("sent"), {"adapter": "model.lora_rank"}),
        settings={"the trained adapter": {"model.lora_rank": 8}, "no adapter": {"model.lora_rank": 0}},
        claims=claims(_RANK),
        reach=f"rollout.name={name}, actor_rollout_ref.model.lora_rank=8",
    )
