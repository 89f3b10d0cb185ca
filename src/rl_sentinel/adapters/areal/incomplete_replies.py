"""Replies of an inference server that lack a log-prob: whether AReaL refuses them, or trains the response."""

import asyncio
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from rl_sentinel.adapters.areal.batches import DATA
from rl_sentinel.adapters.areal.engine_clients import clients, send, server_reply
from rl_sentinel.adapters.areal.requests import CONFIG, REQUEST
from rl_sentinel.adapters.areal.workflows import FIRST, RESPONSE, WORKFLOWS, Tokenizer, has_prompt, workflow_fakes
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.incomplete_rows import unless_refused
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_outputs import row_fields
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.codec import Inputs

WORKFLOW = next(iter(WORKFLOWS))
CONCAT = f"{DATA}.concat_padded_tensors"

_PRODUCED = {
    "rows": "areal/workflow/rlvr.py, arun_episode: ModelRequest with the prompt and gconfig; a reply has tokens "
    "and log-probs in two lists (vLLM) or in pairs (SGLang)"
}
_REACH = "runs with {}, if a reply of its server has {}a log-prob that is NaN"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the way from a server's reply to the training batch, for each client and server."""
    needed = (CONFIG, REQUEST, RESPONSE, CONCAT, f"{WORKFLOW}.arun_episode")
    if not all(target.has(path) for path in needed) or target.fails(WORKFLOW):
        return
    for client, backends in clients(target).items():
        for name, path in backends.items():
            if not path or (target.has(f"{path}.parse_generation_response") and not target.fails(path)):
                yield from bindable(target, _replies(client, name, path))


class Server:
    """A fake inference server that returns one whole response, with these log-probs."""

    def __init__(self, tokens: list[int], logprobs: list[float]) -> None:
        """Store the response."""
        self.tokens, self.logprobs = tokens, logprobs

    async def respond(self, payload: dict[str, Any], **_request: object) -> dict[str, Any]:
        """The reply, in the payload's format: SGLang or vLLM."""
        if "sampling_params" in payload:
            reply = server_reply(self.tokens, self.logprobs, "stop", sglang=True)
            sizes = {"prompt_tokens": len(payload["input_ids"]), "completion_tokens": len(self.tokens)}
            return {"meta_info": reply["meta_info"] | sizes}
        whole = server_reply(self.tokens, [0.0] * len(self.tokens), "stop", sglang=False)
        whole["choices"][0]["logprobs"]["token_logprobs"] = self.logprobs
        return whole


def train_replies(  # noqa: PLR0913 - functions and classes of the target, and their arguments
    client: Callable[..., Any],
    backend: Callable[..., Any] | None,
    request: Callable[..., Any],
    config: Callable[..., Any],
    workflow: Callable[..., Any],
    concat: Callable[..., Any],
    rows: list[dict[str, Any]],
    fault: str,
) -> dict[str, list[float]]:
    """Make a training batch of whole replies, and one for each row whose last log-prob has the fault.

    Returns the sum of each row's log-probs in the whole batch, and whether each faulty row trains.
    """

    def trajectory(row: Mapping[str, Any], logprobs: list[float]) -> dict[str, Any]:
        server, made = Server([FIRST + token for token in row["tokens"]], logprobs), backend and backend()
        prompt = [FIRST + token for token in row["prompt"]]
        asked = request(input_ids=prompt, gconfig=config(n_samples=1, max_new_tokens=len(row["tokens"]) + 1))
        response = send(client, asked, made, server.respond, lambda: 0)
        return _episode(workflow, config, prompt, response)

    trajectories = [trajectory(row, row["logprobs"]) for row in rows]
    whole = concat([one.copy() for one in trajectories])
    trained = []
    for place, row in enumerate(rows):
        damaged = unless_refused(partial(trajectory, row, _damage(row["logprobs"], fault)))
        others = [one.copy() for number, one in enumerate(trajectories) if number != place]
        batch = None if damaged is None else unless_refused(partial(concat, [damaged, *others]))
        trained.append(float(batch is not None and _trains_first(batch)))
    return {"logprobs": whole["logprobs"].sum(1).tolist(), "trained": trained}


def _damage(logprobs: list[float], fault: str) -> list[float]:
    return logprobs[:-1] if fault == "missing" else [*logprobs[:-1], math.nan]


def _episode(make: Callable[..., Any], config: Callable[..., Any], prompt: list[int], response: Any) -> dict[str, Any]:  # noqa: ANN401
    """The trajectory that the workflow of one turn makes of a response."""

    async def generate(_request: object) -> Any:  # noqa: ANN401 - AReaL's class
        return response

    engine = SimpleNamespace(agenerate=generate, get_version=lambda: 0)
    options = {"enable_thinking": False}
    known = inspect.signature(make).parameters
    with replaced_globals(vars(inspect.getmodule(make)), **workflow_fakes()):
        workflow = make(
            reward_fn=lambda *_texts, **_data: 1.0,
            gconfig=config(n_samples=1),
            tokenizer=Tokenizer(),
            **{name: value for name, value in options.items() if name in known},
        )
        data: dict[str, Any] = asyncio.run(workflow.arun_episode(engine, {"messages": prompt, "answer": "kept"}))
    return data


def _trains_first(batch: Mapping[str, Any]) -> bool:
    """Whether the first row has a trained token; False if the columns differ in shape, as a later step raises then."""
    columns = ("input_ids", "attention_mask", "loss_mask", "logprobs")
    same = len({tuple(batch[name].shape) for name in columns}) == 1
    return same and bool(torch.as_tensor(batch["loss_mask"][0]).any())


def _several_rows(inputs: Inputs) -> str:
    return "" if inputs.batch.rows > 1 else "a batch of one row is not padded"


def _replies(client: str, name: str, path: str) -> Boundary:
    columns = row_fields("prompt", "tokens", "logprobs")
    faults = ("not a number",) if name == "SGLang" else ("missing", "not a number")  # SGLang returns pairs
    made, form = Use("made"), PerRow("list")
    reading = f" -> {path}.parse_generation_response" if path else ""
    return one_call(
        path=f"{client}{reading} -> {WORKFLOW}.arun_episode -> {CONCAT}",
        stage="batch",
        call=train_replies,
        name="made",
        arguments={
            "client": Constant(Function(client)),
            "backend": Constant(Function(path) if path else None),
            **functions(request=REQUEST, config=CONFIG, workflow=WORKFLOW, concat=CONCAT),
            "rows": EachRow(Table(columns)),
            "fault": Knob("fault"),
        },
        produced_by=_PRODUCED,
        outputs={
            "sum of log-probs": Output("B", "nats", at=made["logprobs"], form=form),
            "training without a log-prob": Output("B", "", "incomplete", at=made["trained"], form=form),
        },
        settings={f"{name}, log-prob {fault}": {"fault": fault} for fault in faults},
        reach=_REACH.format(name, "too few log-probs or " * ("missing" in faults)),
        requires=(no_empty_response, has_prompt, _several_rows),
    )
