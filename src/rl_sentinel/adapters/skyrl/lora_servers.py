"""SkyRL's servers with a LoRA adapter: the weights that sample after a sleep and a reload of the adapter."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived
from rl_sentinel.adapters.skyrl.inference_clients import CLIENTS
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use

#: The name of the adapter, and the number of updates before the servers sleep and after they wake up.
_NAME, _BEFORE, _AFTER = "adapter", 1, 2

#: The method that loads an adapter, newest first.
_LOADS = ("load_lora_adapter", "update_lora_from_disk")

#: Outputs -> the attribute of a server.
_PARTS: Mapping[str, str] = {"base model": "base", "update of the adapter": "adapter"}

_CALLER = (
    "worker_dispatch.py, save_weights_for_sampler, and fsdp_worker.py, _save_lora_adapters_and_sync: the adapter is "
    "written and loaded after wake_up; main_base.py and the dispatch: client.sleep(), with its default level"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the client of the servers, in releases in which the client loads adapters."""
    for client in CLIENTS:
        load = next((name for name in _LOADS if target.has(f"{client}.{name}")), "")
        if not load or not target.has(f"{client}.sleep"):
            continue
        if why := target.fails(client):
            yield Unbound(f"{client}.{load}", "batch", why)
        else:
            yield from bindable(target, _sampled(client, load))


@dataclass(slots=True)
class Server:
    """A fake vLLM server with LoRA.

    Sleep at level 1 keeps the weights in CPU memory, at level 2 it discards them (vllm, sleep mode). A loaded adapter
    is loaded again only in place, or after it was unloaded; otherwise the request fails (vllm, serving/models).

    Attributes:
        written: the number of the update whose adapter is on disk.
        base: 1 while the server has the weights of the base model, else 0.
        adapter: the number of the update whose adapter samples.
        loaded: the names of the loaded adapters.
    """

    written: int = 0
    base: float = 1.0
    adapter: float = 0.0
    loaded: set[str] = field(default_factory=set)

    def answer(self, url: str, json: Mapping[str, Any] | None, params: Mapping[str, Any] | None) -> int:
        """Process a request, and return its status."""
        body = json or {}
        if url.endswith("/sleep") and str((params or {}).get("level", 1)) == "2":
            self.base = 0.0
        if url.endswith("/unload_lora_adapter"):
            if body["lora_name"] not in self.loaded:
                return 404
            self.loaded.discard(body["lora_name"])
        if url.endswith("/load_lora_adapter"):
            in_place = body.get("load_inplace") or "/skyrl/" in url
            if body["lora_name"] in self.loaded and not in_place:
                return 400
            self.loaded.add(body["lora_name"])
            self.adapter = float(self.written)
        return 200


class Session:
    """A fake of aiohttp's session that is connected to these servers."""

    closed = False

    def __init__(self, servers: Mapping[str, Server]) -> None:
        """Store the servers by address."""
        self.servers = servers

    @asynccontextmanager
    async def request(
        self, _method: str, url: str, json: Any = None, params: Any = None, **_options: object  # noqa: ANN401 - JSON
    ) -> AsyncIterator[Any]:  # fmt: skip
        """The reply to a request."""
        server = next(one for address, one in self.servers.items() if url.startswith(f"{address}/"))
        status = server.answer(url, json, params)

        async def parsed(**_about: object) -> dict[str, Any]:
            return {"error": {"message": f"status {status}"}}

        async def text(**_about: object) -> str:
            return ""

        yield SimpleNamespace(status=status, json=parsed, text=text, content_length=0, raise_for_status=lambda: None)

    def post(self, url: str, **options: Any) -> Any:  # noqa: ANN401 - as aiohttp
        """The reply to a POST request."""
        return self.request("POST", url, **options)


def weights_of_servers(owner: Callable[..., Any], load: str, count: int) -> dict[str, list[float]]:
    """Update the adapter, let the servers sleep and wake up, and update the adapter again.

    Returns, per server, ``resumed.base`` and ``resumed.adapter``: the attributes of :class:`Server` at the end; and
    ``uninterrupted.base`` and ``uninterrupted.adapter``: their correct values.
    """
    servers = {f"server{number}": Server() for number in range(count)}
    known = inspect.signature(owner).parameters
    arguments = {
        "proxy_url": "proxy",
        "server_urls": list(servers),
        "data_parallel_size": 1,
        "active_lora_name": _NAME,
        "uses_lora_weight_sync": True,
    }
    client = owner(**{name: value for name, value in arguments.items() if name in known})

    async def session() -> Session:
        return Session(servers)

    client._get_session = session  # noqa: SLF001 - the transport
    load_adapter = getattr(client, load)
    named = {"lora_name": _NAME} if "lora_name" in inspect.signature(load_adapter).parameters else {}

    async def update(number: int) -> None:
        for server in servers.values():
            server.written = number
        await load_adapter(lora_path="path", **named)

    async def run() -> None:
        await update(_BEFORE)
        await client.sleep()
        await client.wake_up()
        await update(_AFTER)

    asyncio.run(run())
    ones = [1.0] * count
    return {
        "uninterrupted.base": ones,
        "uninterrupted.adapter": [float(_AFTER)] * count,
        "resumed.base": [server.base for server in servers.values()],
        "resumed.adapter": [server.adapter for server in servers.values()],
    }


def _sampled(client: str, load: str) -> Boundary:
    kinds = {"uninterrupted": "", "resumed": " after sleep and update"}
    names = {f"{name}{when}": f"{kind}.{part}" for name, part in _PARTS.items() for kind, when in kinds.items()}
    return one_call(
        path=f"{client}.{load}",
        stage="batch",
        call=weights_of_servers,
        name="weights",
        arguments={
            "owner": Constant(Function(client)),
            "load": Constant(load),
            "count": Derived(lambda inputs: inputs.batch.rows),
        },
        produced_by={"count": _CALLER},
        remembered=True,
        reads=frozenset({"group"}),
        outputs={
            name: Output("B", "", quantity, at=Use("weights")[quantity], form=PerRow("list"))
            for name, quantity in names.items()
        },
        reach="trainer.policy.model.lora.rank above 0, on servers that share the devices of the trainer",
    )
