"""AReaL's requests to an inference server: sampling parameters, and the tokens that a backend reads from replies."""

import array
import base64
import inspect
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import partial
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.areal.engine_clients import GENERATE, clients, send, server_reply
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.forms import PerRow, Ragged
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response, versions_never_decrease
from rl_sentinel.adapters.kit.row_outputs import row_fields, row_outputs
from rl_sentinel.adapters.kit.scripted_sampling import WRONG, ScriptedResponse, fit_to_length, sampling_option
from rl_sentinel.adapters.kit.value_codecs import AllSettings, Constant, Derived, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Scalar, Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec

CONFIG = "areal.api.cli_args.GenerationHyperparameters"
REQUEST = "areal.api.io_struct.ModelRequest"

#: Group -> field of the configuration -> two values of it.
FIELDS: Mapping[str, Mapping[str, tuple[Scalar, Scalar]]] = {
    "distribution": {"temperature": (0.7, 0.3), "top_p": (0.9, 0.5), "top_k": (20, 5), "greedy": (True, False)},
    "ends": {"stop_token_ids": ("1", "2"), "ignore_eos": (True, False), "skip_special_tokens": (True, False)},
    "minimum": {"min_new_tokens": (2, 3)},
    "stop words": {"stop": ("first", "other")},
    "penalty": {"frequency_penalty": (0.1, 0.5)},
}

_DOCS = "remote_inf_engine.py, agenerate: tokens and log-probs of all replies to a request, and the version of each"
_EXPERTS = "sglang_remote.py, parse_generation_response: experts of each prompt and completion token, except the last"
_PRODUCED = {
    "rows": "areal/workflow/rlvr.py, arun_episode, and openai/client.py, create (inference service): ModelRequest with "
    "the prompt and gconfig"
}
_HELP = "cli_args.py, GenerationHyperparameters: the help of the field"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of requests that a weight update aborts and the client resumes.

    There is one boundary per client, backend and group of fields. For the trainer's client, there is another boundary
    for the routed experts of each token, if the backend reads them.
    """
    if not target.has(CONFIG):
        return
    for client, backends in clients(target).items():
        for name, path in backends.items():
            if not path:
                yield from bindable(target, *(_request(target, client, name, path, group) for group in FIELDS))
            elif target.has(f"{path}.build_generation_request") and not target.fails(path):
                yield from bindable(target, *(_request(target, client, name, path, group) for group in FIELDS))
                parse = f"{path}.parse_generation_response"
                if client == GENERATE and "routed_experts" in inspect.getsource(target.find(parse)):
                    yield from bindable(target, _experts_of_tokens(name, path))


class Server:
    """A fake inference server that samples one scripted response, of at most ``room`` tokens."""

    def __init__(self, response: ScriptedResponse, room: int) -> None:
        """Start without a request."""
        self.response, self.room = response, room
        self.payloads: list[dict[str, Any]] = []

    async def respond(self, payload: dict[str, Any], **_request: object) -> dict[str, Any]:
        """The reply, in the payload's format: SGLang or vLLM."""
        self.payloads.append(dict(payload))
        params = payload.get("sampling_params", payload)
        is_sglang = "sampling_params" in payload
        ids = list(payload["input_ids"] if is_sglang else payload["prompt"])
        most = params["max_new_tokens"] if is_sglang else params["max_tokens"]
        tokens, logprobs, reason, _ = self.response.sample(ids, int(most), self.room)
        reply = server_reply(tokens, logprobs, reason, sglang=is_sglang)
        if is_sglang:
            reply["meta_info"] |= {"prompt_tokens": len(ids), "completion_tokens": len(tokens)}
            if payload.get("return_routed_experts"):
                reply["meta_info"]["routed_experts"] = _experts([*ids, *tokens][:-1])
        return reply


def _experts(ids: list[int]) -> str:
    """The experts of each token that the model has read, in SGLang's encoding; the expert numbers encode the token."""
    numbers = [number for token in ids for number in (token, -token)]
    return base64.b64encode(array.array("i", numbers).tobytes()).decode()


def request_experts(  # noqa: PLR0913 - functions and classes of the target, and their arguments
    method: Callable[..., Any],
    backend: Callable[..., Any],
    request: Callable[..., Any],
    config: Callable[..., Any],
    rows: list[dict[str, Any]],
    room: int,
) -> dict[str, list[Any]]:
    """Sample each response; return its log-probs, and its tokens as decoded from the experts.

    The last token has no experts, because no model has read it.
    """
    columns: dict[str, list[Any]] = {"logprobs": [], "tokens": []}
    with replaced_globals(vars(inspect.getmodule(backend)), pybase64=base64):
        for row in rows:
            server, version = Server(ScriptedResponse(**row), room), partial(int, row["versions"][0])
            first = request(input_ids=list(row["prompt"]), gconfig=config(n_samples=1, max_new_tokens=room))
            response = send(method, first, backend(), server.respond, version, experts=True)
            columns["logprobs"].append(fit_to_length(response.output_logprobs, len(row["tokens"]), float("inf")))
            columns["tokens"].append(_tokens_of(response.routed_experts.tolist(), row))
    return columns


def _tokens_of(experts: list[list[int]], row: dict[str, Any]) -> Tensor:
    """The response tokens that the experts encode, and the row's last token, which has no experts.

    All are :data:`WRONG` if the number of pairs is wrong, a pair is not ``[token, -token]``, or the prompt differs.
    """
    read = [*row["prompt"], *row["tokens"]][:-1]
    right = len(experts) == len(read) and all(pair == [pair[0], -pair[0]] for pair in experts)
    tokens = [pair[0] for pair in experts] if right else []
    right = tokens[: len(row["prompt"])] == row["prompt"]
    response = [*tokens[len(row["prompt"]) :], row["tokens"][-1]] if right else []
    return fit_to_length(response, len(row["tokens"]), WRONG)


def send_requests(  # noqa: PLR0913 - functions and classes of the target, and their arguments
    method: Callable[..., Any],
    backend: Callable[..., Any] | None,
    request: Callable[..., Any],
    config: Callable[..., Any],
    rows: list[dict[str, Any]],
    room: int,
    options: Settings,
) -> dict[str, list[Any]]:
    """Sample each response; return its tokens and log-probs, and a digest of the first request's parameters."""
    columns: dict[str, list[Any]] = {"tokens": [], "logprobs": [], "parameters": []}
    values = {name: sampling_option(name, value) for name, value in options.items()}
    for row in rows:
        server, version = Server(ScriptedResponse(**row), room), row["versions"][0]
        generation = config(n_samples=1, max_new_tokens=room, **values)
        first = request(input_ids=list(row["prompt"]), gconfig=generation)
        response = send(method, first, backend and backend(), server.respond, partial(int, version))
        size = len(row["tokens"])
        columns["tokens"].append(fit_to_length(response.output_tokens, size, WRONG))
        columns["logprobs"].append(fit_to_length(response.output_logprobs, size, float("inf")))
        columns["parameters"].append(_digest(server.payloads[0]))
    return columns


def _digest(payload: Mapping[str, Any]) -> float:
    """A number that is equal for requests with equal parameters."""
    params = payload.get("sampling_params", payload)
    plain = sorted((name, repr(value)) for name, value in params.items() if name not in {"prompt", "messages"})
    return float(zlib.crc32(repr(plain).encode()) % 100_000)


#: The data of one request: its prompt, and the response that the server samples.
_ROW: Mapping[str, Codec] = row_fields("prompt", "tokens", "logprobs", "versions")


def _arguments(client: str, path: str) -> dict[str, Codec]:
    return {
        "method": Constant(Function(client)),
        "backend": Constant(Function(path) if path else None),
        **functions(request=REQUEST, config=CONFIG),
        "rows": EachRow(Table(_ROW)),
        "room": Derived(lambda inputs: inputs.mini_batch.width),
    }


def _experts_of_tokens(name: str, path: str) -> Boundary:
    """The boundary of the experts of each response token, which a trainer replays.

    Weight updates may abort requests.
    """
    return one_call(
        path=f"{GENERATE} -> {path}.parse_generation_response",
        stage="batch",
        call=request_experts,
        name="responses",
        arguments=_arguments(GENERATE, path),
        produced_by=_PRODUCED,
        outputs=row_outputs(Use("responses"), "rollout_logprob", "token"),
        settings={f"{name}, experts": {}},
        claims=claims(_EXPERTS, conserves=True),
        reach=f"a mixture of experts with {name}; rollout.return_routed_experts=True",
        requires=(no_empty_response, versions_never_decrease),
    )


def _request(target: Target, client: str, name: str, path: str, group: str) -> Boundary:
    translation = f" -> {path}.build_generation_request -> {path}.parse_generation_response" if path else ""
    known = {field.name for field in fields(target.find(CONFIG))}
    knobs = {field: values for field, values in FIELDS[group].items() if field in known}
    responses, form = Use("responses"), Ragged()
    return one_call(
        path=f"{client}{translation}",
        stage="batch",
        call=send_requests,
        name="responses",
        arguments={**_arguments(client, path), "options": AllSettings()},
        produced_by=_PRODUCED,
        outputs={
            "rollout_logprob": Output("B T", "nats", "rollout_logprob", at=responses["logprobs"], form=form),
            "token": Output("B T", "", "token", at=responses["tokens"], form=form),
            "parameters of the request": Output("B", "", at=responses["parameters"], form=PerRow("list")),
        },
        settings={f"{name}, {group}": {}},
        claims=claims(_DOCS, conserves=True) | claims(_HELP, knobs=knobs),
        reach=f"every run with {name}; gconfig.{', gconfig.'.join(knobs)}",
        requires=(no_empty_response, versions_never_decrease),
    )
