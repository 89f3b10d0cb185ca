"""AReaL's weight versions: per sampled token, and in dumped trajectories."""

import asyncio
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.areal.arguments import ROLLOUT, rollout
from rl_sentinel.adapters.areal.engine_clients import clients, send, server_reply
from rl_sentinel.adapters.areal.workflows import train_all
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.requirements import last_token_trains, no_empty_response, versions_never_decrease
from rl_sentinel.adapters.kit.row_outputs import row_fields, row_outputs
from rl_sentinel.adapters.kit.scripted_sampling import WRONG, fit_to_length
from rl_sentinel.adapters.kit.value_codecs import Constant, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Inputs

DUMP = "areal.infra.workflow_executor.WorkflowExecutor._dump_trajectory"

#: Keys of a dumped record that the first releases lack.
_TEXT = ("sample_idx", "reward", "prompt", "completion")

_ENDS = "io_struct.py, ModelResponse: output_versions has the version of the weights for each output token"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of requests to a server whose weights change, then the dump of a trajectory."""
    for path in clients(target):
        yield from bindable(target, _generated(path))
    if target.has(DUMP) and not target.fails(DUMP):
        yield from bindable(target, _dumped())
        if all(key in inspect.getsource(target.find(DUMP)) for key in _TEXT):
            yield from bindable(target, _dumped_text())


def generate(method: Callable[..., Any], request: type, rows: list[dict[str, Any]]) -> dict[str, list[Tensor]]:
    """Generate each response; return its tokens, with the log-prob and the version that the client records for each.

    The server replies with the tokens of one version, and loads the next weights before the client reads the reply: an
    update can happen at any time.
    """
    responses = [_generate(method, request, row) for row in rows]
    return {
        "tokens": [torch.tensor(response.output_tokens) for response in responses],
        "logprobs": [torch.tensor(response.output_logprobs) for response in responses],
        "versions": [torch.tensor(response.output_versions) for response in responses],
    }


def _generate(method: Callable[..., Any], request: type, row: dict[str, Any]) -> Any:  # noqa: ANN401 - a response
    tokens, versions, place, weights = row["tokens"], row["versions"], 0, [row["versions"][0]]

    async def respond(payload: Mapping[str, Any] | None = None, **_request: object) -> dict[str, Any]:
        nonlocal place
        end = place
        while end < len(tokens) and versions[end] == weights[0]:
            end += 1
        part = slice(place, end)
        place = end
        weights[0] = versions[end] if end < len(tokens) else weights[0] + 1
        stop = "stop" if end == len(tokens) else "abort"
        if payload:  # of a client that translates by itself
            return server_reply(tokens[part], row["logprobs"][part], stop, sglang="sampling_params" in payload)
        return {"tokens": tokens[part], "logprobs": row["logprobs"][part], "stop": stop}

    def parse(reply: dict[str, Any]) -> Any:  # noqa: ANN401 - the result of a backend
        return SimpleNamespace(
            output_tokens=reply["tokens"], output_logprobs=reply["logprobs"], stop_reason=reply["stop"], **_UNUSED
        )

    backend = SimpleNamespace(
        build_generation_request=lambda *_a, **_k: SimpleNamespace(endpoint="", payload={}, method="POST"),
        parse_generation_response=parse,
        get_generation_max_new_tokens=lambda _request: len(tokens) + 1,
        patch_generation_request=lambda *_a: None,
    )
    first = request(input_ids=[0])
    first.gconfig.n_samples = 1
    return send(method, first, backend, respond, lambda: weights[0])


#: Other fields of a backend's result.
_UNUSED = {"routed_experts": None, "output_versions": None}


def dump_versions(method: Callable[..., Any], data: dict[str, Tensor]) -> dict[str, list[float]]:
    """Dump the rows; return the oldest and the newest version in the record of each row."""
    records = _dump(method, data)
    return {key: [float(record[key]) for record in records] for key in ("head_version", "tail_version")}


def dump_text(method: Callable[..., Any], data: dict[str, Tensor]) -> dict[str, list[Any]]:
    """Dump the rows; return the reward and the completion in the record of each row."""
    records = _dump(method, data)
    rewards = [float(record["reward"]) for record in records]
    return {"rewards": rewards, "tokens": [_completion(data, record) for record in records]}


def _dump(method: Callable[..., Any], data: dict[str, Tensor]) -> list[dict[str, Any]]:
    lines: list[str] = []

    async def write(text: str) -> None:
        lines.extend(text.splitlines())

    file: Any = AsyncExitStack()
    file.write = write

    async def makedirs(*_args: object, **_options: object) -> None:
        return None

    cls = method.__globals__[method.__qualname__.partition(".")[0]]
    owner = bare_instance(
        cls,
        _get_dump_dir=lambda _is_eval: "dump",
        _get_tokenizer=lambda: SimpleNamespace(decode=lambda ids, **_options: " ".join(map(str, ids))),
    )
    files = SimpleNamespace(os=SimpleNamespace(makedirs=makedirs), open=lambda *_a, **_k: file)
    with replaced_globals(method.__globals__, aiofiles=files):
        done, why = asyncio.run(method(owner, data, 0, is_eval=False))
    if not done:
        raise RuntimeError(f"{method.__qualname__} returned {done!r} ({why}), expected True and a dumped trajectory")
    return [json.loads(line) for line in lines]


def _completion(data: dict[str, Tensor], record: dict[str, Any]) -> Tensor:
    """The tokens of the completion; :data:`WRONG` if the record has another row's prompt."""
    row, trained = int(record["sample_idx"]), int(data["loss_mask"][record["sample_idx"]].sum())
    prompt, completion = ([int(word) for word in record[key].split()] for key in ("prompt", "completion"))
    start = int(data["attention_mask"][row].sum()) - trained
    right = prompt == data["input_ids"][row, :start].tolist()
    return fit_to_length(completion if right else [], trained, WRONG)


def _generated(path: str) -> Boundary:
    row = Table(row_fields("tokens", "logprobs", "versions"))
    return one_call(
        path=path,
        stage="batch",
        call=generate,
        name="responses",
        arguments={**functions(method=path, request="areal.api.io_struct.ModelRequest"), "rows": EachRow(row)},
        produced_by={
            "rows": "remote_inf_engine.py and inf_bridge.py, agenerate: an aborted request continues with new weights"
        },
        outputs=row_outputs(Use("responses"), "rollout_logprob", "token", "version"),
        claims=claims(_ENDS, conserves=True),
        reach="every run whose weights are updated while it samples",
        requires=(no_empty_response, versions_never_decrease),
    )


def _dumped() -> Boundary:
    names = {"head_version": "oldest_version", "tail_version": "newest_version"}
    return one_call(
        path=DUMP,
        stage="metric",
        call=dump_versions,
        name="dumped",
        arguments={"method": Constant(Function(DUMP)), "data": Table(rollout().parts)},
        produced_by={"data": ROLLOUT},
        unused=frozenset({"token", "reward", "old_logprob", "length", "prompt_length"}),
        outputs={
            name: Output("B", "updates", quantity, at=Use("dumped")[name], form=PerRow("list"))
            for name, quantity in names.items()
        },
        reach="rollout.dump_to_file=True",
        requires=(
            no_empty_response,
            last_token_trains,
        ),  # AReaL does not dump a trajectory without a trained last token
    )


def _dumped_text() -> Boundary:
    """The boundary of the dumped record of a single-turn response.

    In a dump of several turns, the prompt includes the feedback.
    """
    dumped = _dumped()
    return replace(
        dumped,
        steps=(replace(dumped.steps[0], call=dump_text),),
        stage="batch",
        unused=frozenset({"version", "old_logprob", "length", "prompt_length"}),
        reads=frozenset({"token", "reward", "mask"}),
        # The reward comes first: the check before an audit moves signals, and a token is a label.
        outputs=dict(reversed(row_outputs(Use("dumped"), "token", "reward").items())),
        settings={"one turn": {}},
        domain=train_all,
        claims=claims(
            "workflow_executor.py, _dump_trajectory: prompt, completion and reward of each sample", conserves=True
        ),
        requires=(no_empty_response, _one_turn),
    )


def _one_turn(inputs: Inputs) -> str:
    return (
        ""
        if torch.equal(inputs.batch.mask, inputs.batch.valid)
        else "a response token is untrained, but a response of one turn trains all tokens"
    )
