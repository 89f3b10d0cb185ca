"""Boundaries of verl's client of the inference servers: responses that weight updates interrupt and that go on."""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.requirements import no_empty_response, versions_never_decrease
from rl_sentinel.adapters.kit.row_codecs import RowPrompt, RowTokens
from rl_sentinel.adapters.kit.row_outputs import row_outputs
from rl_sentinel.adapters.kit.scripted_sampling import WRONG, ScriptedResponse, fit_to_length
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.arguments import try_bind
from rl_sentinel.core.boundary import Boundary, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

MODULE = "verl.workers.rollout.llm_server"
CLIENT = f"{MODULE}.FullyAsyncLLMServerClient"

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
    """The client that resumes, without a limit in the request and with one."""
    if target.has(f"{CLIENT}.generate") and not target.fails(CLIENT):
        yield from try_bind(target, CLIENT, "batch", partial(_responses, target))


def sample(
    client: Any,  # noqa: ANN401 - a class of the target
    output: Callable[..., Any],
    rows: list[dict[str, Any]],
    room: int,
    limited: bool,  # noqa: FBT001 - a setting
) -> dict[str, list[Any]]:
    """The tokens and log-probs of each response; ``room`` is the maximum length, and ``limited`` requests name it."""
    rollout = SimpleNamespace(response_length=room, name="vllm", full_determinism=False)
    config = SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=rollout))
    answers = []
    for row in rows:
        script = ScriptedResponse(row["prompt"], row["tokens"], row["logprobs"], row["versions"])
        server = _server_of(script, output, room)
        own = bare_instance(client, config=config, _release_server=lambda *_about, **_more: None)
        own._acquire_server = partial(_acquired, server)  # noqa: SLF001 - the load balancer
        params = {"max_tokens": room} if limited else {}
        answers.append(asyncio.run(own.generate("request", prompt_ids=row["prompt"], sampling_params=params)))
    sizes = [len(row["tokens"]) for row in rows]
    return {
        "tokens": [fit_to_length(a.token_ids, size, WRONG) for a, size in zip(answers, sizes, strict=True)],
        "logprobs": [fit_to_length(a.log_probs, size, float("inf")) for a, size in zip(answers, sizes, strict=True)],
    }


class Loop:
    """The functions of ``asyncio`` that the client uses; it does not wait before it asks again."""

    gather = staticmethod(asyncio.gather)

    @staticmethod
    async def sleep(_seconds: float) -> None:
        """Return at once."""


async def _acquired(server: Any, *_about: object, **_more: object) -> tuple[str, Any]:  # noqa: ANN401 - a double
    return "server", server


def _server_of(script: ScriptedResponse, output: Callable[..., Any], room: int) -> Any:  # noqa: ANN401 - a double
    """A server that samples a known response; without a limit in the request, it takes the maximum length."""

    async def generate(prompt_ids: list[int], sampling_params: dict[str, Any], **_about: object) -> Any:  # noqa: ANN401
        most = int(sampling_params.get("max_tokens", room))
        tokens, logprobs, reason, version = script.sample(list(prompt_ids), most, room)
        stopped = "aborted" if reason == "abort" else "completed"
        about = {"stop_reason": stopped, "num_preempted": 0, "extra_fields": {"global_steps": version}}
        return output(token_ids=tokens, log_probs=logprobs, **about)

    return SimpleNamespace(generate=SimpleNamespace(remote=generate))


def _responses(target: Target) -> Iterator[Boundary]:
    token_output = next(
        path for path in (f"{MODULE}.TokenOutput", "verl.workers.rollout.replica.TokenOutput") if target.has(path)
    )
    row = {
        "prompt": RowPrompt(),
        "tokens": RowTokens("token", "int"),
        "logprobs": RowTokens("rollout_logprob"),
        "versions": RowTokens("version", "int"),
    }
    step = Step(
        call=sample,
        name="responses",
        doubles={f"{MODULE}.asyncio": Loop},
        arguments={
            "client": Constant(Function(CLIENT)),
            "output": Constant(Function(token_output)),
            "rows": EachRow(Table(row)),
            "room": Derived(lambda inputs: inputs.mini_batch.width),
            "limited": Knob("limited"),
        },
        produced_by={"rows": _PRODUCED},
    )
    yield Boundary(
        path=f"{CLIENT}.generate",
        stage="batch",
        steps=(step,),
        unused=frozenset({"version"}),
        outputs=row_outputs(Use("responses"), "rollout_logprob", "token"),
        settings={"a limit in the request": {"limited": True}, "the server's limit": {"limited": False}},
        claims=_DOCS,
        reach="trainer.use_v1=True, or fully_async_policy: every rollout that a weight update interrupts",
        requires=(no_empty_response, versions_never_decrease),
    )
