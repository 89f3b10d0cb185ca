"""AReaL's clients of an inference server: for the trainer, for the inference service, and in the first releases."""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Self

from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.target import Target

#: The method of the trainer's client that samples a response, and of the inference service's.
GENERATE = "areal.infra.remote_inf_engine.RemoteInfEngine.agenerate"
BRIDGE = "areal.experimental.inference_service.inf_bridge.InfBridge.agenerate"

#: Name of a server -> its client, in releases until November 2025, which have one client per server.
EARLIER = {
    "SGLang": "areal.engine.sglang_remote.RemoteSGLangEngine.agenerate",
    "vLLM": "areal.engine.vllm_remote.RemotevLLMEngine.agenerate",
}

#: Client -> name of a server -> the class that translates requests and replies for it.
BACKENDS = {
    GENERATE: {
        "SGLang": "areal.engine.sglang_remote.SGLangBackend",
        "vLLM": "areal.engine.vllm_remote.VLLMBackend",
    },
    BRIDGE: {
        "SGLang": "areal.experimental.inference_service.sglang.bridge.SGLangBridgeBackend",
        "vLLM": "areal.experimental.inference_service.vllm.bridge.VLLMBridgeBackend",
    },
}


def clients(target: Target) -> dict[str, Mapping[str, str]]:
    """Client -> server -> path of the class that translates requests; the path is empty if there is no such class."""
    earlier = {} if target.has(GENERATE) else {client: {name: ""} for name, client in EARLIER.items()}
    known = {**BACKENDS, **earlier}
    return {client: known[client] for client in known if target.has(client) and not target.fails(client)}


def server_reply(tokens: list[int], logprobs: list[float], reason: str, *, sglang: bool) -> dict[str, Any]:
    """The reply of a server in the format of SGLang or vLLM: tokens, their log-probs, and the finish reason."""
    if sglang:
        pairs = [[p, t, None] for p, t in zip(logprobs, tokens, strict=True)]
        return {"meta_info": {"finish_reason": {"type": reason}, "output_token_logprobs": pairs}}
    words = [f"token:{token}" for token in tokens]
    return {"choices": [{"finish_reason": reason, "logprobs": {"tokens": words, "token_logprobs": logprobs}}]}


class Session:
    """A fake of aiohttp's session; the request itself is replaced."""

    async def __aenter__(self) -> Self:
        """The session."""
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""


def send(  # noqa: PLR0913 - the client of the target, and its fakes
    method: Callable[..., Any],
    request: Any,  # noqa: ANN401 - AReaL's class
    backend: Any,  # noqa: ANN401 - a backend of AReaL, or a fake of one
    respond: Callable[..., Any],
    version: Callable[[], int],
    *,
    experts: bool = False,
) -> Any:  # noqa: ANN401 - AReaL's response
    """Run one of AReaL's clients on a request.

    ``respond`` is the server; ``version()`` is the version of the weights that the client knows when a reply arrives.
    With ``experts``, the trainer's client asks for the experts of each token.
    """
    owner = method.__globals__[method.__qualname__.partition(".")[0]]
    if hasattr(owner, "set_version") and "pause_state" in inspect.signature(owner).parameters:
        return _through_bridge(method, owner, request, backend, respond, version)
    session = Session()
    engine = SimpleNamespace(
        config=SimpleNamespace(use_lora=False, request_retries=1, request_timeout=1.0, return_routed_experts=experts),
        backend=backend,
        rid_to_address={},
        rid_queue=[],
        choose_server=lambda: "server",
        workflow_executor=SimpleNamespace(
            is_paused=lambda: False, paused=SimpleNamespace(is_set=lambda: False), session=session
        ),
        get_version=version,
        lora_initialized=False,
        lora_init=False,
        _create_session=lambda: session,
    )
    context = SimpleNamespace(get_aiohttp_session=_no_session, get=lambda: SimpleNamespace(is_eval=False))
    http = SimpleNamespace(ClientSession=lambda **_options: session, ClientTimeout=SimpleNamespace)
    fakes = {"aiohttp": http, "get_default_connector": lambda: None, "workflow_context": context}
    with replaced_globals(method.__globals__, arequest_with_retry=respond, **fakes):
        return asyncio.run(method(engine, request))


def _through_bridge(  # noqa: PLR0913 - as send
    method: Callable[..., Any],
    owner: type,
    request: Any,  # noqa: ANN401
    backend: Any,  # noqa: ANN401
    respond: Callable[..., Any],
    version: Callable[[], int],
) -> Any:  # noqa: ANN401
    """Run the inference service's client. It is never paused, and has the weight version of the server."""

    async def transport(http_request: Any, **_options: object) -> Any:  # noqa: ANN401 - AReaL's classes
        reply = await respond(payload=http_request.payload)
        bridge.set_version(version())
        return reply

    async def is_paused() -> bool:
        return False

    retries = inspect.signature(owner).parameters["max_resubmit_retries"].default
    bridge = bare_instance(
        owner,
        backend=backend,
        backend_addr="server",
        pause_state=SimpleNamespace(is_paused=is_paused),
        max_resubmit_retries=retries,
        resubmit_wait=0.0,
        _send_request=transport,
    )
    bridge.set_version(version())
    return asyncio.run(method(bridge, request))


async def _no_session() -> None:
    """Return no HTTP session, because the fake server needs none."""
