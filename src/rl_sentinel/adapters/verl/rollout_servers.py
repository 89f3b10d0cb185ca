"""Boundaries of verl's inference servers: sampling options that reach the engine, and returned responses."""

import asyncio
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from rl_sentinel.adapters.kit.arriving_settings import arriving_outputs
from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.containers import EachRow, Object, Table
from rl_sentinel.adapters.kit.forms import Ragged
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.row_outputs import row_fields, row_outputs
from rl_sentinel.adapters.kit.scripted_sampling import WRONG, ScriptedResponse, fit_to_length
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, IfSet, constants, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.agent_loop import WORKER, make_worker
from rl_sentinel.adapters.verl.engine_imports import engine_installed
from rl_sentinel.adapters.verl.server_fakes import (
    Batch,
    Engine,
    Options,
    Prompt,
    Statuses,
    queued_batch,
    server_of,
)
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec

#: Workers of the agent loop, the second one for the trainer whose columns are in a transfer queue.
QUEUE_MODULE = "verl.trainer.ppo.v1.agent_loop_tq"
WORKERS: Mapping[str, str] = {
    WORKER: "trainer.use_v1=False",
    f"{QUEUE_MODULE}.AgentLoopWorkerTQ": "trainer.use_v1=True",
}

CONFIG, SAMPLING = "verl.workers.config.RolloutConfig", "verl.workers.config.SamplingConfig"
TEACHER = "verl.experimental.teacher_loop.teacher_manager.AsyncTeacherLLMServerManager"
ASK = f"{TEACHER}.compute_teacher_logprobs_single"
#: A name in the source of servers that return the log-probs of a prompt.
_SCORES = "prompt_logprobs"


class Server(NamedTuple):
    """One of verl's servers: its class, and fakes of the names that it imports from its engine package."""

    owner: str
    fakes: Mapping[str, Callable[..., Any]]


_VLLM = "verl.workers.rollout.vllm_rollout.vllm_async_server"
_SGLANG = "verl.workers.rollout.sglang_rollout.async_sglang_server"
_TRTLLM = "verl.workers.rollout.trtllm_rollout.trtllm_async_server"

#: Value of ``rollout.name`` -> its server.
SERVERS: Mapping[str, Server] = {
    "vllm": Server(f"{_VLLM}.vLLMHttpServer", {f"{_VLLM}.SamplingParams": Options, f"{_VLLM}.TokensPrompt": Prompt}),
    "sglang": Server(f"{_SGLANG}.SGLangHttpServer", {f"{_SGLANG}.GenerateReqInput": Options}),
    "trtllm": Server(f"{_TRTLLM}.TRTLLMHttpServer", {}),
}

#: Field of the rollout's configuration -> the value that is set; no two are equal, and none is a default.
TRAINING: Settings = {
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": 20,
    "repetition_penalty": 1.2,
    "ignore_eos": True,
}

#: Fields with a separate value for validation.
VALIDATION: Settings = {"val_kwargs.temperature": 0.6, "val_kwargs.top_p": 0.8, "val_kwargs.top_k": 10}

OPTIONS = "trainer/config/rollout/rollout.yaml: sampling parameters of the rollout, and of validation in val_kwargs"
_ROWS = "workers/rollout/replica.py, TokenOutput: response token ids, and log-probs of response token ids"
_LOG_PROBS = (
    "teacher_manager.py, compute_teacher_logprobs_single, docstring: teacher log probabilities for a single unpadded "
    "sequence"
)
_PRODUCED = "agent_loop.py: one request per turn, with the token ids of the conversation so far"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of each server: returned rows, sampling options and, except for TensorRT-LLM, teacher log-probs."""
    if not target.has(CONFIG) or target.fails(CONFIG):
        return
    for name, server in SERVERS.items():
        path = f"{server.owner}.generate"
        with engine_installed(name):
            found = target.has(path)  # imports its module
            scores = found and _scores_prompts(target, server.owner)
        if not found:
            continue
        yield from try_bind(target, path, "batch", partial(_rows, name, server))
        for worker in WORKERS:
            if target.has(f"{worker}.generate_sequences") and not target.fails(worker):
                yield from try_bind(target, path, "config", partial(_options, target, name, server, worker))
        if name == "trtllm" or not target.has(ASK) or target.fails(ASK):
            continue
        if scores:
            yield from try_bind(target, path, "batch", partial(_teacher, name, server))
        else:
            reason = "this server returns no log-probs of prompts, which a teacher needs"
            yield Unbound(f"{ASK} -> {path}", "batch", reason, absent=True)


def _scores_prompts(target: Target, owner: str) -> bool:
    """Whether a server returns the log-probs of a prompt; True if its module fails, which binding reports."""
    return bool(target.fails(owner)) or _SCORES in inspect.getsource(target.module(owner.rpartition(".")[0]))


def options_sent(
    worker: type,
    server: type,
    rollout: Any,  # noqa: ANN401 - a configuration of the target
    validate: bool,  # noqa: FBT001 - a setting
    greedy: str = "",
) -> dict[str, float]:
    """Send one request of the worker; return the numeric options that reach the engine, and NaN for any other name.

    ``greedy`` is the place where the trainer asks for a greedy baseline: a column of the rows, or ``"meta_info"``.
    """
    engine = Engine(ScriptedResponse([0], [1], [-1.0], [0]), 1)
    serving = server_of(server, rollout, engine)
    asking = make_worker(worker, rollout)

    async def ask(params: dict[str, Any], *_about: object, **_more: object) -> Any:  # noqa: ANN401 - of the target
        return await serving.generate(prompt_ids=[0], sampling_params=params, request_id="request")

    async def run(batch: Any) -> None:  # noqa: ANN401 - as the worker reads it
        await asking.generate_sequences(batch)
        await asyncio.gather(*asking.background_tasks)

    asking._run_agent_loop = ask  # noqa: SLF001 - the loop passes its options on
    asking._postprocess = lambda outputs, **_about: outputs  # noqa: SLF001 - nothing is read of it
    asking.background_tasks = set()
    batch = queued_batch(validate=validate) if worker.__name__.endswith("TQ") else Batch(validate=validate)
    if greedy == "meta_info":
        batch.meta_info["do_sample"] = False
    elif greedy:
        batch.non_tensor_batch[greedy] = np.zeros(1, dtype=bool)
    asyncio.run(run(batch))
    numbers = {name: float(value) for name, value in engine.sent[0].items() if isinstance(value, int | float)}
    return defaultdict(lambda: float("nan"), numbers)


def replies(server: type, rollout: Any, rows: list[dict[str, Any]]) -> dict[str, list[Any]]:  # noqa: ANN401 - of the target
    """Sample each response; return the server's tokens and log-probs, fitted to the length of each row."""
    answers = []
    for row in rows:
        serving = server_of(server, rollout, _engine(row, rollout))
        params = {"logprobs": True, "temperature": 1.0, "top_k": -1}
        ask = serving.generate(prompt_ids=row["prompt"], sampling_params=params, request_id="request")
        answers.append(asyncio.run(ask))
    sizes = [len(row["tokens"]) for row in rows]
    return {
        "tokens": [fit_to_length(list(a.token_ids), n, WRONG) for a, n in zip(answers, sizes, strict=True)],
        "logprobs": [fit_to_length(list(a.log_probs), n, float("inf")) for a, n in zip(answers, sizes, strict=True)],
    }


def teacher_log_probs(server: type, rollout: Any, rows: list[dict[str, Any]], manager: type) -> list[Any]:  # noqa: ANN401
    """Let the teacher's manager score each response; return the log-probs at the positions that predict its tokens."""
    loss = SimpleNamespace(loss_settings=SimpleNamespace(use_topk=False), topk=None)
    model = SimpleNamespace(inference=SimpleNamespace(temperature=1.0))
    answers = []
    for row in rows:
        serving = server_of(server, rollout, _engine(row, rollout))

        async def ask(serving: Any = serving, **asked: Any) -> Any:  # noqa: ANN401 - of the target
            request = {name: asked[name] for name in ("prompt_ids", "sampling_params", "request_id")}
            return await serving.generate(**request)

        own = bare_instance(
            manager,
            distillation_loss_config=loss,
            distillation_config=SimpleNamespace(teacher_model=model),
            teacher_model_configs={"teacher": model},
            **{key: {"teacher": SimpleNamespace(generate=ask)} for key in ("teacher_client", "server_managers")},
            generate=ask,  # until April 2026, a method of the manager
        )
        _, found = asyncio.run(own.compute_teacher_logprobs_single([*row["prompt"], *row["tokens"]]))
        start = len(row["prompt"]) - 1
        answers.append(found[start : start + len(row["tokens"]), 0])
    return answers


def _engine(row: Mapping[str, Any], rollout: Any) -> Engine:  # noqa: ANN401 - of the target
    script = ScriptedResponse(row["prompt"], row["tokens"], row["logprobs"], [0] * len(row["tokens"]))
    return Engine(script, rollout.response_length + 1)  # each response ends before the limit


def _rollout(name: str, own: Settings) -> Object:
    """The codec of the rollout's configuration, with the fields of ``own`` that a case sets.

    A field with a dot is one of ``val_kwargs``.
    """
    fields = {n: IfSet(n) for n in own if "." not in n}
    validation = {n.partition(".")[2]: IfSet(n) for n in own if "." in n}
    parts: dict[str, Codec] = {**constants(name=name, max_model_len=64), **fields}
    if validation:
        parts["val_kwargs"] = Object(SAMPLING, validation)
    return Object(CONFIG, parts, shared=True)


def _options(target: Target, name: str, server: Server, worker: str) -> Iterator[Boundary]:
    known = vars(target.find(CONFIG)).get("__dataclass_fields__", {})
    shared = {n: value for n, value in TRAINING.items() if n in known}
    for when, settings in (("training", shared), ("validation", VALIDATION)):
        step = Step(
            call=options_sent,
            name="sent",
            fakes={**server.fakes, f"{QUEUE_MODULE}.tq": Statuses} if "v1" in worker else server.fakes,
            arguments={
                **functions(worker=worker, server=server.owner),
                "rollout": _rollout(name, settings),
                "validate": Constant(when == "validation"),
            },
            remembered=True,
        )
        yield Boundary(
            path=f"{worker}.generate_sequences -> {server.owner}.generate",
            stage="config",
            steps=(step,),
            outputs=arriving_outputs(Use("sent"), {n.rpartition(".")[2]: n for n in settings}),
            settings={f"options, {when}": settings},
            claims=claims(OPTIONS),
            reach=f"{WORKERS[worker]}, rollout.name={name}, "
            + ", ".join(f"rollout.{n}={value}" for n, value in settings.items()),
        )


def _step(call: Callable[..., Any], name: str, server: Server, logprob: str, **more: Codec) -> Step:
    row = {**row_fields("prompt", "tokens"), "logprobs": RowTokens(logprob)}
    rollout = Object(
        CONFIG,
        {
            **constants(name=name, max_model_len=64, prompt_length=8),
            "response_length": Derived(lambda inputs: inputs.mini_batch.width),
        },
    )
    return Step(
        call=call,
        name="found",
        fakes=server.fakes,
        arguments={
            "server": Constant(Function(server.owner)),
            "rollout": rollout,
            "rows": EachRow(Table(row)),
            **more,
        },
        produced_by={"rows": _PRODUCED},
    )


def _rows(name: str, server: Server) -> Iterator[Boundary]:
    yield Boundary(
        path=f"{server.owner}.generate",
        stage="batch",
        steps=(_step(replies, name, server, "rollout_logprob"),),
        outputs=row_outputs(Use("found"), "rollout_logprob", "token"),
        settings={"rows": {}},
        claims=claims(_ROWS, conserves=True),
        reach=f"rollout.name={name}, rollout.calculate_log_probs=True",
        requires=(no_empty_response,),
    )


def _teacher(name: str, server: Server) -> Iterator[Boundary]:
    step = _step(teacher_log_probs, name, server, "ref_logprob", manager=Constant(Function(TEACHER)))
    yield Boundary(
        path=f"{ASK} -> {server.owner}.generate",
        stage="batch",
        steps=(step,),
        unused=frozenset({"token"}),
        outputs={"ref_logprob": Output("B T", "nats", "ref_logprob", at=Use("found"), form=Ragged())},
        settings={"log-probs of the tokens": {}},
        claims=claims(_LOG_PROBS, conserves=True),
        reach=f"distillation.enabled=True, a teacher with inference.name={name}, a loss of the sampled tokens",
        requires=(no_empty_response,),
    )
