"""AReaL's requests to an inference server: what a backend asks for, and what it reads out of the answers."""

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any

import torch

from rl_sentinel.adapters.areal.versions import GENERATE, answered, versions_grow
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.forms import PerRow, Ragged
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowPrompt, RowTokens
from rl_sentinel.adapters.kit.value_codecs import AllSettings, Constant, Derived
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Scalar, Settings
from rl_sentinel.core.claims import claims

BACKENDS = {
    "SGLang": "areal.engine.sglang_remote.SGLangBackend",
    "vLLM": "areal.engine.vllm_remote.VLLMBackend",
}
CONFIG = "areal.api.cli_args.GenerationHyperparameters"
REQUEST = "areal.api.io_struct.ModelRequest"

#: Group -> field of the configuration -> two values of it; stop words and stop tokens are made lists.
FIELDS: Mapping[str, Mapping[str, tuple[Scalar, Scalar]]] = {
    "distribution": {"temperature": (0.7, 0.3), "top_p": (0.9, 0.5), "top_k": (20, 5), "greedy": (True, False)},
    "ends": {"stop_token_ids": ("1", "2"), "ignore_eos": (True, False), "skip_special_tokens": (True, False)},
    "minimum": {"min_new_tokens": (2, 3)},
    "stop words": {"stop": ("first", "other")},
    "penalty": {"frequency_penalty": (0.1, 0.5)},
}

#: What a token is where a request does not go on from what was sampled.
WRONG = -1

_DOCS = "remote_inf_engine.py, agenerate: tokens and log-probs of all answers to a request, and the version of each"
_HELP = "cli_args.py, GenerationHyperparameters: the help of the field"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """A request that weight updates stop, through each backend that a release has."""
    if not target.has(GENERATE) or target.fails(GENERATE) or not target.has(CONFIG):
        return
    for name, path in BACKENDS.items():
        if target.has(f"{path}.build_generation_request") and not target.fails(path):
            yield from bindable(target, *(_requested(target, name, path, group) for group in FIELDS))


class Server:
    """A server that samples known tokens, those of one version at a time, as many as a request asks for."""

    def __init__(self, row: dict[str, Any], room: int) -> None:
        """Take the tokens, their log-probs and the version that samples each; ``room`` is the most that it can have."""
        spare = room if len(row["tokens"]) == room else 0  # a response that fills its room has not come to an end
        more = {"tokens": [WRONG] * spare, "logprobs": [0.0] * spare, "versions": row["versions"][-1:] * spare}
        self.row = {name: [*values, *more.get(name, [])] for name, values in row.items()}
        self.weights = row["versions"][0]
        self.asked: list[dict[str, Any]] = []

    async def respond(self, payload: dict[str, Any], **_request: object) -> dict[str, Any]:
        """The answer, in the form of the server that the payload is meant for."""
        self.asked.append(dict(payload))
        params = payload.get("sampling_params", payload)
        nested = "sampling_params" in payload
        ids = list(payload["input_ids"] if nested else payload["prompt"])
        most = params["max_new_tokens"] if nested else params["max_tokens"]
        tokens, logprobs, why = self._sampled(ids, int(most))
        if nested:
            pairs = [[p, t, None] for p, t in zip(logprobs, tokens, strict=True)]
            return {"meta_info": {"finish_reason": {"type": why}, "output_token_logprobs": pairs}}
        words = [f"token:{one}" for one in tokens]
        return {"choices": [{"finish_reason": why, "logprobs": {"tokens": words, "token_logprobs": logprobs}}]}

    def _sampled(self, ids: list[int], most: int) -> tuple[list[int], list[float], str]:
        all_tokens, versions = self.row["tokens"], self.row["versions"]
        prompt = [0] * len(self.row["prompt"])
        start = len(ids) - len(prompt)
        end = start
        while end < min(len(all_tokens), start + most) and versions[end] == versions[start]:
            end += 1
        goes_on = ids == prompt + all_tokens[:start]
        tokens = all_tokens[start:end] if goes_on else [WRONG] * (end - start)
        why = "length" if end == start + most else "stop" if end == len(all_tokens) else "abort"
        return tokens, self.row["logprobs"][start:end], why


def requested(  # noqa: PLR0913 - the functions and classes, and what they are passed
    method: Callable[..., Any],
    backend: Callable[..., Any],
    request: Callable[..., Any],
    config: Callable[..., Any],
    rows: list[dict[str, Any]],
    room: int,
    options: Settings,
) -> dict[str, list[Any]]:
    """The tokens and log-probs of each response, and the parameters of its first request, as numbers."""
    made: dict[str, list[Any]] = {"tokens": [], "logprobs": [], "asked": []}
    words = {name: _option(name, value) for name, value in options.items()}
    for row in rows:
        server = Server(row, room)
        wanted = config(n_samples=1, max_new_tokens=room, **words)
        asked = request(input_ids=list(row["prompt"]), gconfig=wanted)
        answer = answered(method, asked, backend(), server.respond, lambda server=server: server.weights)  # type: ignore[misc]
        size = len(row["tokens"])
        made["tokens"].append(_of_length(answer.output_tokens, size, WRONG))
        made["logprobs"].append(_of_length(answer.output_logprobs, size, float("inf")))
        made["asked"].append(_digest(server.asked[0]))
    return made


def _of_length(values: list[Any], size: int, wrong: float) -> torch.Tensor:
    """The values as long as the response; what is missing, or too much, counts as wrong."""
    own = values if len(values) <= size else [*values[: size - 1], wrong]
    return torch.tensor([*own, *[wrong] * size][:size])


def _option(name: str, value: Scalar) -> Any:  # noqa: ANN401 - a scalar, or a list
    if name == "stop_token_ids":
        return [int(str(value))]
    return [value] if name == "stop" else value


def _digest(payload: Mapping[str, Any]) -> float:
    """A number that equal requests have in common."""
    params = payload.get("sampling_params", payload)
    plain = sorted((name, repr(value)) for name, value in params.items() if name not in {"prompt", "messages"})
    return float(zlib.crc32(repr(plain).encode()) % 100_000)


def _requested(target: Target, name: str, path: str, group: str) -> Boundary:
    row = {
        "prompt": RowPrompt(),
        "tokens": RowTokens("token", "int"),
        "logprobs": RowTokens("rollout_logprob"),
        "versions": RowTokens("version", "int"),
    }
    step = Step(
        call=requested,
        name="made",
        arguments={
            "method": Constant(Function(GENERATE)),
            "backend": Constant(Function(path)),
            "request": Constant(Function(REQUEST)),
            "config": Constant(Function(CONFIG)),
            "rows": EachRow(Table(row)),
            "room": Derived(lambda inputs: inputs.mini_batch.width),
            "options": AllSettings(),
        },
        produced_by={"rows": "areal/workflow/rlvr.py, arun_episode: ModelRequest with the prompt and gconfig"},
    )
    known = {one.name for one in fields(target.find(CONFIG))}
    knobs = {one: values for one, values in FIELDS[group].items() if one in known}
    made, form = Use("made"), Ragged()
    return Boundary(
        path=f"{GENERATE} -> {path}.build_generation_request -> {path}.parse_generation_response",
        stage="batch",
        steps=(step,),
        outputs={
            "rollout_logprob": Output("B T", "nats", "rollout_logprob", at=made["logprobs"], form=form),
            "token": Output("B T", "", "token", at=made["tokens"], form=form),
            "parameters of the request": Output("B", "", at=made["asked"], form=PerRow("list")),
        },
        settings={f"{name}, {group}": {}},
        claims=claims(_DOCS, conserves=True) | claims(_HELP, knobs=knobs),
        reach=f"every run with {name}; gconfig.{', gconfig.'.join(knobs)}",
        requires=(no_empty_response, versions_grow),
    )
