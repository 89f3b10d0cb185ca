"""SkyRL's clients of the inference engines: sampling parameters of requests, and the order of replies."""

import asyncio
import copy
import inspect
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
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
from rl_sentinel.adapters.skyrl.inference_fakes import FIRST, Servers
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

#: Source text of clients that continue a request after a weight update aborted it, of those that return token ids, and
#: of those that return no log-probs.
_RETRIES, _READS_TOKENS, _ONLY_TOKENS = '== "abort"', ('response_ids"]', '["token_ids"]'), "response_logprobs=None,"

#: Group -> field of ``generator.sampling_params`` -> two values of it.
FIELDS: Mapping[str, Mapping[str, tuple[Scalar, Scalar]]] = {
    "distribution": {"temperature": (0.7, 0.3), "top_p": (0.9, 0.5), "top_k": (20, 5), "min_p": (0.1, 0.3)},
    "penalty": {"repetition_penalty": (1.2, 1.5)},
    "stop words": {"stop": ("first", "other")},
}

#: Engines, or servers, among which the client divides requests.
_ENGINES = 2

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
            continue
        refuses = "is unsupported" in inspect.getsource(target.find(f"{client}.generate"))  # while requests are paused
        retries = _RETRIES in source and not refuses
        columns = ("token",) if _ONLY_TOKENS in source else ("rollout_logprob", "token")
        yield from bindable(target, _responses(client, sampling, columns, retries=retries))
        yield from bindable(target, _responses(client, sampling, columns, retries=False, batched=True))
        for group, values in FIELDS.items():
            known = {name: pair for name, pair in values.items() if _has(target, name)}
            if known:
                yield from bindable(target, _parameters(client, sampling, columns, group, known))


def _has(target: Target, name: str) -> bool:
    """Whether the section of sampling parameters has a field."""
    try:
        Config(CONFIG, {f"generator.sampling_params.{name}": None}).check(target)
    except Unbindable:
        return False
    return True


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
            [FIRST + n, *row["prompt"]], row["tokens"], row["logprobs"], row.get("versions", [0] * len(row["tokens"]))
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


def _unused(columns: tuple[str, ...], *others: str) -> frozenset[str]:
    """The columns that no output depends on: ``others``, and the log-probs of a client that returns none."""
    return frozenset({"rollout_logprob"} - set(columns) | set(others))


def _responses(
    client: str, sampling: str, columns: tuple[str, ...], *, retries: bool, batched: bool = False
) -> Boundary:
    """The boundary of the responses that the client returns; if it ``retries``, weight updates may abort requests."""
    return Boundary(
        path=f"{client}.generate",
        stage="batch",
        steps=(_step(client, sampling, versions=retries),),
        unused=_unused(columns, *(["version"] if retries else [])),
        outputs=row_outputs(Use("responses"), *columns),
        settings={"one request" if batched else "a request per response": {"batched": batched}},
        claims=claims(_DOCS, conserves=True),
        reach="generator.batched=true" if batched else "every run",
        requires=(no_empty_response, *((versions_never_decrease,) if retries else ())),
    )


def _parameters(
    client: str,
    sampling: str,
    columns: tuple[str, ...],
    group: str,
    knobs: Mapping[str, tuple[Scalar, Scalar]],
) -> Boundary:
    """The boundary of the request of each response, with the sampling parameters of the configuration."""
    outputs = row_outputs(Use("responses"), *columns)
    parameters = Output("B", "", at=Use("responses")["parameters"], form=PerRow("list"))
    return Boundary(
        path=f"{sampling} -> {client}.generate",
        stage="batch",
        steps=(_step(client, sampling, versions=False),),
        unused=_unused(columns),
        outputs=outputs | {"parameters of the request": parameters},
        settings={group: {"batched": False}},
        claims=claims(_DOCS, conserves=True) | claims(_FIELDS, knobs=knobs),
        reach=", ".join(f"generator.sampling_params.{name}" for name in knobs),
        requires=(no_empty_response,),
    )
