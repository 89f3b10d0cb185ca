"""Boundaries of verl's client of the inference servers: responses that resume after a weight update."""

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import zip_longest
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.requirements import no_empty_response, versions_never_decrease
from rl_sentinel.adapters.kit.row_outputs import row_fields, row_outputs
from rl_sentinel.adapters.kit.scripted_sampling import WRONG, ScriptedResponse, fit_to_length
from rl_sentinel.adapters.kit.value_codecs import Derived, Knob, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims

#: Clients that resume, newest first.
CLIENTS = (
    "verl.workers.rollout.llm_server.FullyAsyncLLMServerClient",
    "verl.experimental.fully_async_policy.agent_loop.agent_loop.FullyAsyncLLMServerManager",
)

#: The number of a token's experts is its weight version times this, plus the token's position in the sequence.
_POSITIONS = 1000

#: Paths of the class of a server's reply, by release.
TOKEN_OUTPUT = ("verl.workers.rollout.replica.TokenOutput", "verl.workers.rollout.llm_server.TokenOutput")

_DOCS = claims(
    "llm_server.py, FullyAsyncLLMServerClient, docstring: resume generation on partial rollout, invisible to the agent "
    "loop; rollout.response_length is the limit of a response",
    conserves=True,
)
_PRODUCED = (
    "agent_loop.py: sampling parameters of the rollout without a limit; the server's own limit is response_length, and "
    "it aborts a request when its weights are updated"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the client that resumes responses; requests without and with a length limit."""
    client = next((path for path in CLIENTS if target.has(f"{path}.generate")), "")
    # In revisions whose client inherits it, the agent loop resumes a response.
    if client and not target.fails(client) and "generate" in vars(target.find(client)):
        yield from try_bind(target, client, "batch", partial(_responses, target, client))


def sample(
    client: Any,  # noqa: ANN401 - a class of the target
    output: Callable[..., Any],
    rows: list[dict[str, Any]],
    room: int,
    limited: bool,  # noqa: FBT001 - a setting
) -> dict[str, list[Any]]:
    """Sample each response through the client.

    Returns tokens and log-probs of each response, the weight version that routed each token, and the number of tokens
    that have experts of another position. ``room`` is the maximum length of a response; if ``limited``, requests
    contain it.
    """
    rollout = SimpleNamespace(response_length=room, name="vllm", full_determinism=False)
    asynchronous = SimpleNamespace(partial_rollout=True)
    config = SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=rollout), async_training=asynchronous)
    arrays = merges_arrays(client)
    answers = []
    for row in rows:
        script = ScriptedResponse(row["prompt"], row["tokens"], row["logprobs"], row["versions"])
        server = _server_of(script, output, room, np.arange if arrays else torch.arange)
        own = bare_instance(client, config=config, _release_server=lambda *_about, **_more: None)
        own._acquire_server = partial(_acquired, server)  # noqa: SLF001 - the load balancer
        params = {"max_tokens": room} if limited else {}
        answers.append(asyncio.run(own.generate("request", prompt_ids=row["prompt"], sampling_params=params)))
    sizes = [len(row["tokens"]) for row in rows]
    experts = [_routed(answer, row["prompt"]) for answer, row in zip(answers, rows, strict=True)]
    return {
        "displaced": [_displaced(answer, row) for answer, row in zip(answers, rows, strict=True)],
        "versions": [fit_to_length(own, size, WRONG) for own, size in zip(experts, sizes, strict=True)],
        "tokens": [fit_to_length(a.token_ids, size, WRONG) for a, size in zip(answers, sizes, strict=True)],
        "logprobs": [fit_to_length(a.log_probs, size, float("inf")) for a, size in zip(answers, sizes, strict=True)],
    }


class Loop:
    """A fake ``asyncio`` with the functions that the client uses; a sleep returns at once."""

    gather = staticmethod(asyncio.gather)

    @staticmethod
    async def sleep(_seconds: float) -> None:
        """Return at once."""


async def _acquired(server: Any, *_about: object, **_more: object) -> tuple[str, Any]:  # noqa: ANN401 - a fake
    return "server", server


def merges_arrays(client: type) -> bool:
    """Whether the client expects the routed experts of a reply as a NumPy array."""
    return "np.concatenate" in inspect.getsource(inspect.unwrap(client.generate))  # type: ignore[attr-defined] # the target's


def _routed(answer: Any, prompt: list[int]) -> list[int]:  # noqa: ANN401 - a reply of the target
    """The version of the weights that routed each response token, if the experts are its own; else empty."""
    experts = getattr(answer, "routed_experts", None)
    if experts is None:
        return []
    before = len(prompt) - 1  # the experts that sample a token are those of the token before it
    numbers = [divmod(int(one), _POSITIONS) for one in experts[:, 0, 0]][before:]
    return [version if place == own else WRONG for own, (version, place) in enumerate(numbers, start=before)]


def _displaced(answer: Any, row: Mapping[str, Any]) -> float:  # noqa: ANN401 - a reply of the target
    """The number of tokens but the last that have no experts, or those of another position."""
    experts = getattr(answer, "routed_experts", None)
    places = [] if experts is None else [int(one) % _POSITIONS for one in experts[:, 0, 0]]
    own = range(len(row["prompt"]) + len(answer.token_ids) - 1)
    return float(sum(place != number for place, number in zip_longest(places, own)))


def _server_of(script: ScriptedResponse, output: Callable[..., Any], room: int, arange: Callable[..., Any]) -> Any:  # noqa: ANN401 - a fake
    """A server that samples a known response; without a limit in the request, the maximum length applies.

    In releases with routed experts, replies have experts ``[S - 1, 1, 1]`` of all tokens but the last, which vLLM has
    not computed; their number is that of the weight version and the position.
    """

    async def generate(prompt_ids: list[int], sampling_params: dict[str, Any], **_about: object) -> Any:  # noqa: ANN401
        most = int(sampling_params.get("max_tokens", room))
        tokens, logprobs, reason, version = script.sample(list(prompt_ids), most, room)
        stopped = "aborted" if reason == "abort" else "completed"
        about: dict[str, Any] = {"stop_reason": stopped, "num_preempted": 0, "extra_fields": {"global_steps": version}}
        if "routed_experts" in inspect.signature(output).parameters:
            places = arange(len(prompt_ids) + len(tokens) - 1).reshape(-1, 1, 1)
            about["routed_experts"] = version * _POSITIONS + places
        return output(token_ids=tokens, log_probs=logprobs, **about)

    return SimpleNamespace(generate=SimpleNamespace(remote=generate))


def _responses(target: Target, client: str) -> Iterator[Boundary]:
    token_output = next(path for path in TOKEN_OUTPUT if target.has(path))
    keeps_experts = "routed_experts" in inspect.getsource(target.find(f"{client}.generate"))
    columns = ("rollout_logprob", "token", *(("version",) if keeps_experts else ()))
    row = row_fields("prompt", "tokens", "logprobs", "versions")
    outputs = row_outputs(Use("responses"), *columns)
    if keeps_experts:  # a resumed response may have experts of the newest weights alone, at the right positions
        at, form = Use("responses")["displaced"], PerRow("list")
        outputs["tokens with experts of another position"] = Output(
            "B", "tokens", "experts_off_sampled", at=at, form=form
        )
    yield one_call(
        path=f"{client}.generate",
        stage="batch",
        call=sample,
        name="responses",
        fakes={fake: Loop for fake in (f"{client.rpartition('.')[0]}.asyncio",) if target.has(fake)},
        arguments={
            **functions(client=client, output=token_output),
            "rows": EachRow(Table(row)),
            "room": Derived(lambda inputs: inputs.mini_batch.width),
            "limited": Knob("limited"),
        },
        produced_by={"rows": _PRODUCED},
        unused=frozenset() if keeps_experts else frozenset({"version"}),
        outputs=outputs,
        settings={"a limit in the request": {"limited": True}, "the server's limit": {"limited": False}},
        claims=_DOCS,
        reach="trainer.use_v1=True, or fully_async_policy: every rollout that a weight update interrupts",
        requires=(no_empty_response, versions_never_decrease),
    )
