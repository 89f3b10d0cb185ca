"""SkyRL's clients of the inference engines: sampling parameters of requests, and the order of replies."""

import asyncio
import copy
import inspect
import threading
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from json import dumps
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.configs import Config
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.requirements import no_empty_response, versions_never_decrease
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.row_outputs import row_fields, row_outputs
from rl_sentinel.adapters.kit.scripted_sampling import WRONG, ScriptedResponse, fit_to_length, sampling_option
from rl_sentinel.adapters.kit.value_codecs import AllSettings, Derived, functions
from rl_sentinel.adapters.skyrl.arguments import CONFIG
from rl_sentinel.adapters.skyrl.generator import SAMPLING
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Scalar, Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import Unbindable

#: The client of servers, and the client of engines in earlier releases.
CLIENTS = (
    "skyrl.backends.skyrl_train.inference_servers.remote_inference_client.RemoteInferenceClient",
    "skyrl.backends.skyrl_train.inference_engines.inference_engine_client.InferenceEngineClient",
)

#: Source text of clients that continue a request after a weight update aborted it, and of those that read token ids.
_RETRIES, _READS_TOKENS = '== "abort"', ('response_ids"]', '["token_ids"]')

#: Group -> field of ``generator.sampling_params`` -> two values of it.
FIELDS: Mapping[str, Mapping[str, tuple[Scalar, Scalar]]] = {
    "distribution": {"temperature": (0.7, 0.3), "top_p": (0.9, 0.5), "top_k": (20, 5), "min_p": (0.1, 0.3)},
    "penalty": {"repetition_penalty": (1.2, 1.5)},
    "stop words": {"stop": ("first", "other")},
}

#: Engines, or servers, among which the client divides requests; and the first token of prompt 0. The first token of
#: prompt n is ``_FIRST + n``, by which the fakes recognize it.
_ENGINES, _FIRST = 2, 1_000

_DOCS = (
    "inference_engine_client.py and remote_inference_client.py, generate: one response per prompt, in the order of the "
    "prompts, with its token ids and log-probs"
)
_FIELDS = "configuration, generator.sampling_params: the sampling parameters of the rollout"
_PRODUCED = {
    "rows": "skyrl_gym_generator.py, agent_loop and generate_batched: prompt_token_ids, session_ids with one prompt "
    "per trajectory, sampling_params from get_sampling_params_for_backend; the engine samples with log-probs"
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of each client of the release that reads token ids.

    One request per response, one request for all responses, and sampling parameters.
    """
    sampling = next((path for path in SAMPLING if target.has(path)), "")
    for client in CLIENTS:
        if not sampling or not target.has(f"{client}.generate") or target.fails(client):
            continue
        source = inspect.getsource(target.find(client))
        if not any(words in source for words in _READS_TOKENS):
            continue  # the first client of servers tokenizes the text of a response again
        refuses = "is unsupported" in inspect.getsource(target.find(f"{client}.generate"))  # while requests are paused
        retries = _RETRIES in source and not refuses
        yield from bindable(target, _responses(client, sampling, retries=retries))
        yield from bindable(target, _responses(client, sampling, retries=False, batched=True))
        for group, values in FIELDS.items():
            known = {name: pair for name, pair in values.items() if _has(target, name)}
            if known:
                yield from bindable(target, _parameters(client, sampling, group, known))


def _has(target: Target, name: str) -> bool:
    """Whether the section of sampling parameters has a field."""
    try:
        Config(CONFIG, {f"generator.sampling_params.{name}": None}).check(target)
    except Unbindable:
        return False
    return True


@dataclass(slots=True)
class Servers:
    """Fakes of the engines, which return known responses; the first request gets its reply last.

    ``room`` is the maximum length of a response.
    """

    scripts: list[ScriptedResponse]
    room: int
    parameters: list[Mapping[str, Any]] = field(default_factory=list)

    async def generate(self, request: Mapping[str, Any], **_options: object) -> dict[str, Any]:
        """The reply of an engine to a request for several prompts."""
        params = request["sampling_params"]
        replies = [self.reply(ids, params) for ids in request["prompt_token_ids"]]
        await self._wait()
        return {
            "responses": [""] * len(replies),
            "response_ids": [reply[0] for reply in replies],
            "response_logprobs": [reply[1] for reply in replies] if params.get("logprobs") is not None else None,
            "stop_reasons": [reply[2] for reply in replies],
        }

    @asynccontextmanager
    async def post(self, _url: str, json: Mapping[str, Any], **_options: object) -> AsyncIterator[Any]:
        """The reply of a server over HTTP: one response, or an empty text if the request is to decode tokens."""
        body = {"prompt": ""} if "tokens" in json else await self._choice(json)

        async def parsed(**_options: object) -> dict[str, Any]:
            return body

        async def raw() -> bytes:
            return dumps(body).encode()

        yield SimpleNamespace(status=200, json=parsed, read=raw, raise_for_status=lambda: None)

    async def _choice(self, json: Mapping[str, Any]) -> dict[str, Any]:
        params = json["sampling_params"]
        tokens, logprobs, reason = self.reply(json["token_ids"], params)
        await self._wait()
        content = {"content": [{"logprob": logprob} for logprob in logprobs]}
        about = content if params.get("logprobs") is not None else None
        return {"choices": [{"token_ids": tokens, "finish_reason": reason, "logprobs": about}]}

    async def session(self) -> Any:  # noqa: ANN401 - a fake of aiohttp's
        """The HTTP session of the client."""
        return SimpleNamespace(post=self.post, closed=False)

    def reply(self, ids: list[int], params: Mapping[str, Any]) -> tuple[list[int], list[float], str]:
        """Tokens, log-probs and stop reason of the row that the first token of the prompt encodes; else of row 0."""
        self.parameters.append(dict(params))
        row = ids[0] - _FIRST if ids and 0 <= ids[0] - _FIRST < len(self.scripts) else 0
        tokens, logprobs, reason, _ = self.scripts[row].sample(list(ids), int(params["max_tokens"]), self.room)
        return tokens, logprobs, reason

    async def _wait(self) -> None:
        for _ in range(max(0, 2 * len(self.scripts) - len(self.parameters))):
            await asyncio.sleep(0)


def sample(  # noqa: PLR0913 - functions and classes of the target, and their arguments
    client: Callable[..., Any],
    sampling: Callable[..., dict[str, Any]],
    config: Any,  # noqa: ANN401 - the target's section
    rows: list[dict[str, Any]],
    room: int,
    options: Settings,
) -> dict[str, list[Any]]:
    """Sample each response; return its tokens and log-probs, and a digest of the parameters of the first request.

    The option ``batched`` requests all responses at once; the other options are fields of the sampling parameters.
    """
    section = copy.deepcopy(config.sampling_params)
    section.max_generate_length = room
    if getattr(section, "logprobs", 0) is None:
        section.logprobs = 0
    for name, value in options.items():
        if name != "batched":
            setattr(section, name, sampling_option(name, value))
    params = sampling("vllm", section)
    scripts = [
        ScriptedResponse(
            [_FIRST + n, *row["prompt"]], row["tokens"], row["logprobs"], row.get("versions", [0] * len(row["tokens"]))
        )
        for n, row in enumerate(rows)
    ]
    servers = Servers(scripts, room)
    replies = asyncio.run(_request(_client_of(client, servers), servers, params, batched=bool(options.get("batched"))))
    sizes = [len(row["tokens"]) for row in rows]
    return {
        "tokens": [fit_to_length(tokens, size, WRONG) for (tokens, _), size in zip(replies, sizes, strict=True)],
        "logprobs": [
            fit_to_length(logprobs or [], size, float("inf"))
            for (_, logprobs), size in zip(replies, sizes, strict=True)
        ],
        "parameters": [digest(servers.parameters[0])] * len(rows),
    }


def _client_of(owner: Any, servers: Servers) -> Any:  # noqa: ANN401 - the target's classes
    """The client of the servers. The constructor of an engine client is not run, because it starts an endpoint."""
    known = inspect.signature(owner).parameters
    tokenizer = SimpleNamespace(
        decode=lambda _ids, **_options: "", batch_decode=lambda ids, **_options: [""] * len(ids)
    )
    if "engines" in known:
        event = threading.Event()
        return bare_instance(
            owner,
            engines=[servers] * _ENGINES,
            tokenizer=tokenizer,
            generation_paused_event=event,
            enable_http_endpoint=False,
        )
    urls = [f"server{n}" for n in range(_ENGINES)]
    arguments = {"proxy_url": "proxy", "server_urls": urls, "data_parallel_size": 1, "tokenizer": tokenizer}
    client = owner(**{name: value for name, value in arguments.items() if name in known})
    client._get_session = servers.session  # noqa: SLF001 - the transport
    return client


async def _request(
    client: Any,  # noqa: ANN401 - the target's class
    servers: Servers,
    params: Mapping[str, Any],
    *,
    batched: bool,
) -> list[tuple[list[int], list[float] | None]]:
    """Tokens and log-probs of each response, from one request for all responses or from simultaneous requests."""
    prompts = [script.prompt for script in servers.scripts]
    if batched:
        outputs = [await client.generate({"prompt_token_ids": prompts, "sampling_params": dict(params)})]
    else:
        requests = [
            {"prompt_token_ids": [prompt], "session_ids": [str(n)], "sampling_params": dict(params)}
            for n, prompt in enumerate(prompts)
        ]
        outputs = list(await asyncio.gather(*(client.generate(request) for request in requests)))
    return [
        (list(tokens), logprobs)
        for output in outputs
        for tokens, logprobs in zip(
            output["response_ids"],
            output["response_logprobs"] or [None] * len(output["response_ids"]),
            strict=True,
        )
    ]


def digest(params: Mapping[str, Any]) -> float:
    """A number that is equal for equal parameters."""
    return float(zlib.crc32(repr(sorted((name, repr(value)) for name, value in params.items())).encode()) % 100_000)


def _step(client: str, sampling: str, *, versions: bool) -> Step:
    row: dict[str, Codec] = row_fields("prompt", "tokens", "logprobs")
    return Step(
        call=sample,
        name="responses",
        arguments={
            **functions(client=client, sampling=sampling),
            "config": Config(CONFIG, section="generator"),
            "rows": EachRow(Table(row | ({"versions": RowTokens("version", "int")} if versions else {}))),
            "room": Derived(lambda inputs: inputs.mini_batch.width),
            "options": AllSettings(),
        },
        produced_by=_PRODUCED,
    )


def _responses(client: str, sampling: str, *, retries: bool, batched: bool = False) -> Boundary:
    """The boundary of the responses that the client returns; if it ``retries``, weight updates may abort requests."""
    return Boundary(
        path=f"{client}.generate",
        stage="batch",
        steps=(_step(client, sampling, versions=retries),),
        unused=frozenset({"version"}) if retries else frozenset(),
        outputs=row_outputs(Use("responses"), "rollout_logprob", "token"),
        settings={"one request" if batched else "a request per response": {"batched": batched}},
        claims=claims(_DOCS, conserves=True),
        reach="generator.batched=true" if batched else "every run",
        requires=(no_empty_response, *((versions_never_decrease,) if retries else ())),
    )


def _parameters(client: str, sampling: str, group: str, knobs: Mapping[str, tuple[Scalar, Scalar]]) -> Boundary:
    """The boundary of the request of each response, with the sampling parameters of the configuration."""
    outputs = row_outputs(Use("responses"), "rollout_logprob", "token")
    parameters = Output("B", "", at=Use("responses")["parameters"], form=PerRow("list"))
    return Boundary(
        path=f"{sampling} -> {client}.generate",
        stage="batch",
        steps=(_step(client, sampling, versions=False),),
        outputs=outputs | {"parameters of the request": parameters},
        settings={group: {"batched": False}},
        claims=claims(_DOCS, conserves=True) | claims(_FIELDS, knobs=knobs),
        reach=", ".join(f"generator.sampling_params.{name}" for name in knobs),
        requires=(no_empty_response,),
    )
