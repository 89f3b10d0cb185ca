"""Boundaries of verl's agent loop, which pads sampled responses to rows of the training batch."""

import asyncio
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.containers import EachRow, Namespace, Object
from rl_sentinel.adapters.kit.forms import Cast, Padded, PerRow, Ragged
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.result_forms import RowSum
from rl_sentinel.adapters.kit.row_codecs import Cell, RowTokens
from rl_sentinel.adapters.kit.value_codecs import Constant, Width, constants
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Form

MODULE = "verl.experimental.agent_loop.agent_loop"
WORKER = f"{MODULE}.AgentLoopWorker"
EACH = f"{WORKER}._agent_loop_postprocess"
ALL = f"{WORKER}._postprocess"
OUTPUT = f"{MODULE}.AgentLoopOutput"
STORED = f"{OUTPUT}.as_dict"

#: Workers of earlier releases, which pad each output in the method that runs the loop; some do not use Ray.
EARLIER = (f"{MODULE}.AgentLoopWorkerBase", WORKER)

#: The padding token, and the prompt tokens of every row.
PAD, PROMPT = 0, (7,)

#: Column -> its key in the batch, in the releases that have it.
_OPTIONAL = {"rollout_logprob": "rollout_log_probs", "reward": "rm_scores"}

_DOCS = (
    "agent_loop.py, comments of _agent_loop_postprocess: responses right padded with zeros, response_mask 1 for tokens "
    "of the model and 0 for tool responses and padding"
)

_SAMPLED = (
    "tool_agent_loop.py and single_turn_agent_loop.py, run: ids, mask and log-probs of the response, all truncated to "
    "the response length; the reward of the loop's own scorer"
)


class PaddingTokenizer:
    """A fake tokenizer with the ``pad`` method of transformers."""

    pad_token_id = PAD

    def __init__(self) -> None:
        """Pad at the right until the worker sets another ``padding_side``."""
        self.padding_side = "right"

    def pad(self, rows: Any, *, max_length: int, **about: Any) -> dict[str, Tensor]:  # noqa: ANN401 - as transformers
        """Pad one row of ids, or a list of rows, at ``padding_side`` to at least ``max_length``."""
        if isinstance(rows, list):
            padded_rows = [self.pad(row, max_length=max_length, **about) for row in rows]
            return {name: torch.stack([row[name] for row in padded_rows]) for name in padded_rows[0]}
        ids = rows["input_ids"]
        missing = max(0, max_length - len(ids))
        left = missing if self.padding_side == "left" else 0
        padded = {"input_ids": torch.tensor([PAD] * left + list(ids) + [PAD] * (missing - left))}
        if about.get("return_attention_mask"):
            padded["attention_mask"] = torch.tensor([0] * left + [1] * len(ids) + [0] * (missing - left))
        return padded


def make_worker(owner: type, rollout: SimpleNamespace) -> Any:  # noqa: ANN401 - of that class
    """A worker created without ``__init__``, which starts clients. It has no images, teacher or reward worker."""
    worker: Any = object.__new__(owner)
    scorer = SimpleNamespace(enable=False, enable_resource_pool=False, use_reward_loop=False)
    vars(worker).update(
        config=SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=rollout), reward_model=scorer),
        reward_router_address=None,
        tokenizer=PaddingTokenizer(),
        processor=None,
        server_manager=None,
        mm_processor_kwargs={},
        rollout_config=rollout,
        reward_loop_worker_handles=None,
        distillation_enabled=False,
        stream_teacher_with_rollout=False,
        rm_executor=None,
    )
    return worker


def postprocess_outputs(worker: Any, outputs: list[Any]) -> Any:  # noqa: ANN401 - the framework's classes
    """Let the worker pad the output of each agent loop and concatenate all outputs; return the training batch."""
    takes = inspect.signature(worker._agent_loop_postprocess).parameters  # noqa: SLF001 - the method that runs
    validate = {"validate": False} if "validate" in takes else {}
    padded = [
        asyncio.run(worker._agent_loop_postprocess(output, **validate, raw_prompt=[]))  # noqa: SLF001 - as above
        for output in outputs
    ]
    return worker._postprocess(padded)  # noqa: SLF001 - as above


def run_and_postprocess(worker: Any, outputs: list[Any]) -> Any:  # noqa: ANN401 - the framework's classes
    """Let the worker run each agent loop in the method that also pads its output; return the training batch."""
    if "messages" in inspect.signature(worker._run_agent_loop).parameters:  # noqa: SLF001 - which then pads nothing
        return worker._postprocess(outputs)  # noqa: SLF001 - the method that runs
    names = vars(sys.modules[type(worker).__module__])
    about = {"step": 0, "sample_index": 0, "rollout_n": 0, "validate": False}

    async def run(output: Any) -> Any:  # noqa: ANN401 - of the target
        async def done(*_about: object, **_more: object) -> Any:  # noqa: ANN401 - as above
            return output

        loops = SimpleNamespace(utils=SimpleNamespace(instantiate=lambda **_about: SimpleNamespace(run=done)))
        with replaced_globals(names, hydra=loops, rollout_trace_attr=lambda **_about: nullcontext()):
            return await worker._run_agent_loop({}, about, agent_name="known")  # noqa: SLF001 - the method that runs

    with replaced_globals(names, _agent_loop_registry={"known": {}}):
        padded = [asyncio.run(run(output)) for output in outputs]
        return worker._postprocess(padded)  # noqa: SLF001 - as above


def as_columns(outputs: list[Any]) -> dict[str, list[Any]]:
    """Columns of the dicts that ``as_dict`` returns, with one entry per output; ``rm_scores`` are summed per output."""
    rows = [output.as_dict() for output in outputs]
    columns = {name: [row[name] for row in rows] for name in ("responses", "response_mask", "rollout_log_probs")}
    return columns | {"rm_scores": [row["rm_scores"].sum() for row in rows]}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the rows of a batch: padded by the worker, or stored one by one, depending on the release."""
    yield from try_bind(target, EACH, "batch", lambda: [_rows()])
    yield from try_bind(target, STORED, "batch", lambda: [_stored()])
    if not target.has(EACH):
        owner = next((path for path in EARLIER if target.has(f"{path}._run_agent_loop")), "")
        if owner:
            yield from try_bind(target, owner, "batch", lambda: [_earlier_rows(target, owner)])


def _output() -> Object:
    return Object(
        OUTPUT,
        {
            **constants(prompt_ids=list(PROMPT), num_turns=2, metrics={}, extra_fields={}),
            "response_ids": RowTokens("token", "int"),
            "response_mask": RowTokens("mask", "int"),
            "response_logprobs": RowTokens("rollout_logprob"),
            "reward_score": Cell("reward"),
        },
    )


def _stored() -> Boundary:
    step = Step(
        call=as_columns, name="rows", arguments={"outputs": EachRow(_output())}, produced_by={"outputs": _SAMPLED}
    )
    return _boundary(STORED, step, Use("rows"), Ragged(), PerRow("list"))


def _step(call: Callable[..., Any], owner: str) -> Step:
    rollout = Namespace(prompt_length=Constant(2), response_length=Width())
    parts = {"owner": Constant(Function(owner)), "rollout": rollout}
    arguments = {
        "worker": Object(make_worker, parts, {"rollout": "rollout_config"}),
        "outputs": EachRow(_output()),
    }
    return Step(call=call, name="rows", arguments=arguments, produced_by={"outputs": _SAMPLED})


def _rows() -> Boundary:
    batch = Use("rows").attribute("batch")
    return _boundary(f"{EACH} -> {ALL}", _step(postprocess_outputs, WORKER), batch, Padded(), RowSum())


def _earlier_rows(target: Target, owner: str) -> Boundary:
    source, batch = inspect.getsource(target.find(owner)), Use("rows").attribute("batch")
    absent = frozenset(column for column, key in _OPTIONAL.items() if f'"{key}"' not in source)
    path = f"{owner}._run_agent_loop -> {owner}._postprocess"
    return _boundary(path, _step(run_and_postprocess, owner), batch, Padded(), RowSum(), absent)


def _boundary(  # noqa: PLR0913 - the parts in which they differ
    path: str, step: Step, batch: Use, tokens: Form, reward: Form, absent: frozenset[str] = frozenset()
) -> Boundary:
    outputs = {
        "rollout_logprob": Output("B T", "nats", "rollout_logprob", at=batch["rollout_log_probs"], form=tokens),
        "token": Output("B T", "", "token", at=batch["responses"], form=tokens),
        "mask": Output("B T", "", "mask", at=batch["response_mask"], form=Cast(tokens, torch.bool)),
        "reward": Output("B", "reward", "reward", at=batch["rm_scores"], form=reward),
    }
    return Boundary(
        path=path,
        stage="batch",
        steps=(step,),
        unused=absent,
        outputs={name: output for name, output in outputs.items() if name not in absent},
        claims=claims(_DOCS, conserves=True),
        reach="every run of the agent loop",
        requires=(no_empty_response,),
    )
