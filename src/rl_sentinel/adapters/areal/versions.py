"""AReaL's weight versions: which one sampled each token of a request, and which ones a dumped trajectory has."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.areal.arguments import ROLLOUT, rollout
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.forms import PerRow, Ragged
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Inputs

GENERATE = "areal.infra.remote_inf_engine.RemoteInfEngine.agenerate"
DUMP = "areal.infra.workflow_executor.WorkflowExecutor._dump_trajectory"

_ENDS = "io_struct.py, ModelResponse: output_versions has the version of the weights for each output token"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The request of each response to a server whose weights change, then the dump of a trajectory."""
    if target.has(GENERATE):
        yield from bindable(target, _generated())
    if target.has(DUMP):
        yield from bindable(target, _dumped())


def generate(method: Callable[..., Any], request: type, rows: list[dict[str, Any]]) -> dict[str, list[Tensor]]:
    """What the client says of each response: its tokens, their log-probs, and the version that sampled each.

    The server answers with the tokens of one version at a time, and takes up the weights of the next one before the
    client reads the answer: an update may land at any time.
    """
    made = [_generate(method, request, row) for row in rows]
    return {
        "tokens": [torch.tensor(one.output_tokens) for one in made],
        "logprobs": [torch.tensor(one.output_logprobs) for one in made],
        "versions": [torch.tensor(one.output_versions) for one in made],
    }


def _generate(method: Callable[..., Any], request: type, row: dict[str, Any]) -> Any:  # noqa: ANN401 - a response
    tokens, versions, place, weights = row["tokens"], row["versions"], 0, [row["versions"][0]]

    async def respond(**_request: object) -> dict[str, Any]:
        nonlocal place
        end = place
        while end < len(tokens) and versions[end] == weights[0]:
            end += 1
        part = slice(place, end)
        place = end
        weights[0] = versions[end] if end < len(tokens) else weights[0] + 1
        stop = "stop" if end == len(tokens) else "abort"
        return {"tokens": tokens[part], "logprobs": row["logprobs"][part], "stop": stop}

    def parse(answer: dict[str, Any]) -> Any:  # noqa: ANN401 - the result of a backend
        return SimpleNamespace(
            output_tokens=answer["tokens"], output_logprobs=answer["logprobs"], stop_reason=answer["stop"], **_MORE
        )

    backend = SimpleNamespace(
        build_generation_request=lambda *_a, **_k: SimpleNamespace(endpoint="", payload={}, method="POST"),
        parse_generation_response=parse,
    )
    asked = request(input_ids=[0])
    asked.gconfig.n_samples = 1
    return answered(method, asked, backend, respond, lambda: weights[0])


def answered(
    method: Callable[..., Any],
    request: Any,  # noqa: ANN401 - AReaL's class
    backend: Any,  # noqa: ANN401 - a backend of AReaL, or a double of one
    respond: Callable[..., Any],
    version: Callable[[], int],
) -> Any:  # noqa: ANN401 - AReaL's response
    """What the client answers to a request; ``respond`` is the server, ``version`` what the client believes it has."""
    engine = SimpleNamespace(
        config=SimpleNamespace(use_lora=False, request_retries=1, request_timeout=1.0, return_routed_experts=False),
        backend=backend,
        rid_to_address={},
        rid_queue=[],
        choose_server=lambda: "server",
        workflow_executor=SimpleNamespace(is_paused=lambda: False),
        get_version=version,
        lora_initialized=False,
        _create_session=lambda: SimpleNamespace(close=_no_session),
    )
    module = method.__globals__
    context = SimpleNamespace(get_aiohttp_session=_no_session, get=lambda: SimpleNamespace(is_eval=False))
    doubles: dict[str, Any] = {"arequest_with_retry": respond, "workflow_context": context}
    own = {name: module[name] for name in doubles if name in module}
    try:
        module.update({name: doubles[name] for name in own})
        return asyncio.run(method(engine, request))
    finally:
        module.update(own)


#: What a result of a backend has besides.
_MORE = {"routed_experts": None, "output_versions": None}


async def _no_session() -> None:
    """No session is needed where nothing is sent."""


def dump(method: Callable[..., Any], data: dict[str, Tensor]) -> dict[str, list[float]]:
    """The oldest and the newest version of each row of a trajectory, as they are written beside it."""
    lines: list[str] = []

    async def write(text: str) -> None:
        lines.extend(text.splitlines())

    file: Any = AsyncExitStack()
    file.write = write

    async def makedirs(*_args: object, **_options: object) -> None:
        return None

    cls = method.__globals__[method.__qualname__.partition(".")[0]]
    owner: Any = object.__new__(cls)
    vars(owner).update(
        _get_dump_dir=lambda _is_eval: "dump",
        _get_tokenizer=lambda: SimpleNamespace(decode=lambda ids, **_options: " ".join(map(str, ids))),
    )
    module = method.__globals__
    files = SimpleNamespace(os=SimpleNamespace(makedirs=makedirs), open=lambda *_a, **_k: file)
    own = {name: module[name] for name in ("aiofiles",) if name in module}
    try:
        module.update(dict.fromkeys(own, files))
        done, why = asyncio.run(method(owner, data, 0, is_eval=False))
    finally:
        module.update(own)
    if not done:
        raise RuntimeError(why)
    records = [json.loads(line) for line in lines]
    return {key: [float(record[key]) for record in records] for key in ("head_version", "tail_version")}


def _generated() -> Boundary:
    row = Table(
        {
            "tokens": RowTokens("token", "int"),
            "logprobs": RowTokens("rollout_logprob"),
            "versions": RowTokens("version", "int"),
        }
    )
    step = Step(
        call=generate,
        name="made",
        arguments={
            "method": Constant(Function(GENERATE)),
            "request": Constant(Function("areal.api.io_struct.ModelRequest")),
            "rows": EachRow(row),
        },
        produced_by={
            "rows": "areal/infra/remote_inf_engine.py, agenerate: an aborted request goes on with new weights"
        },
    )
    made, form = Use("made"), Ragged()
    return Boundary(
        path=GENERATE,
        stage="batch",
        steps=(step,),
        outputs={
            "rollout_logprob": Output("B T", "nats", "rollout_logprob", at=made["logprobs"], form=form),
            "token": Output("B T", "", "token", at=made["tokens"], form=form),
            "version": Output("B T", "updates", "version", at=made["versions"], form=form),
        },
        claims=claims(_ENDS, conserves=True),
        reach="every run whose weights are updated while it samples",
        requires=(no_empty_response, versions_grow),
    )


def _dumped() -> Boundary:
    names = {"head_version": "oldest_version", "tail_version": "newest_version"}
    step = Step(
        call=dump,
        name="dumped",
        arguments={"method": Constant(Function(DUMP)), "data": Table(rollout().parts)},
        produced_by={"data": ROLLOUT},
    )
    return Boundary(
        path=DUMP,
        stage="metric",
        steps=(step,),
        unused=frozenset({"token", "reward", "old_logprob", "length", "prompt_length"}),
        outputs={
            name: Output("B", "updates", quantity, at=Use("dumped")[name], form=PerRow("list"))
            for name, quantity in names.items()
        },
        reach="rollout.dump_to_file=True",
        requires=(no_empty_response, _last_token_trains),
    )


def versions_grow(inputs: Inputs) -> str:
    """Weights are never replaced by older ones."""
    falls = (inputs.batch.version.diff(dim=1) < 0) & inputs.batch.valid[:, 1:]
    return "a response has a token of older weights after one of newer weights" if bool(falls.any()) else ""


def _last_token_trains(inputs: Inputs) -> str:
    """A trajectory whose last token is not trained is not dumped."""
    batch = inputs.batch
    last = batch.mask.gather(1, (batch.length - 1).clamp(min=0).unsqueeze(1))
    return "" if bool(last.all()) else "the last token of a response is not trained: AReaL leaves it out"
