"""Boundary of verl's inference servers that load new weights on wake-up: the weights that sample each step."""

import inspect
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_outputs import row_fields, row_outputs
from rl_sentinel.adapters.kit.value_codecs import Knob, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims

OWNER = "verl.experimental.agent_loop.agent_loop.AgentLoopManager"
PATH = f"{OWNER}.generate_sequences"

_DOCS = (
    "ray_trainer.py, fit: the batch is sampled by the actor that the step before has updated; rollout.yaml, "
    "free_cache_engine: whether to offload the KV cache after sampling, which changes memory"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the sampling of a batch, in releases that wake the servers before sampling."""
    if target.has(PATH) and not target.fails(PATH) and ".wake_up()" in inspect.getsource(target.find(PATH)):
        yield from bindable(target, _boundary())


class Server:
    """A fake server; on wake-up, it loads the weights of the current step."""

    def __init__(self) -> None:
        """Start with the weights of no step."""
        self.step, self.loaded = 0, -1
        self.wake_up, self.sleep = _Called(self._load), _Called(lambda: None)

    def _load(self) -> None:
        self.loaded = self.step


class _Called:
    """A method of an actor: called with ``remote``, or awaited."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.remote = act

    async def __call__(self) -> None:
        """Call the method."""
        self.remote()


class PromptBatch(dict[str, Any]):
    """A fake batch that one worker samples."""

    meta_info: dict[str, Any]

    def chunk(self, _parts: int) -> list["PromptBatch"]:
        """A list of the batch alone, for any number of parts."""
        return [self]


def sampled(method: Callable[..., Any], owner: type, frees: bool, rows: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: FBT001
    """Sample each step; return the log-probs of its responses, and the version of the weights of each token.

    Each row is a step. If the weights are older than the step, the versions are one lower.
    """
    server = Server()

    def sample(row: PromptBatch) -> PromptBatch:
        late = int(server.loaded != server.step)
        answer = PromptBatch(row, versions=[version - late for version in row["versions"]])
        answer.meta_info = {"metrics": []}
        return answer

    rollout = SimpleNamespace(free_cache_engine=frees)
    manager = bare_instance(
        owner,
        config=SimpleNamespace(
            actor_rollout_ref=SimpleNamespace(rollout=rollout), reward_model=SimpleNamespace(rollout=rollout)
        ),
        rm_micro_batch_size=None,
        reward_model_manager=None,
        agent_loop_workers=[SimpleNamespace(generate_sequences=SimpleNamespace(remote=sample))],
        _performance_metrics=lambda *_about: {},
        async_llm_servers=[server],
        rollout_replicas=[server],
    )
    answers = []
    fakes = {"ray": SimpleNamespace(get=lambda results: results), "DataProto": SimpleNamespace(concat=_only)}
    with replaced_globals(method.__globals__, **fakes):
        for number, row in enumerate(rows):
            server.step = number
            answers.append(method(manager, PromptBatch(row)))
    return {key: [torch.tensor(answer[key]) for answer in answers] for key in ("logprobs", "versions")}


def _only(parts: list[PromptBatch]) -> PromptBatch:
    """The only part of a batch."""
    (part,) = parts
    return part


def _boundary() -> Boundary:
    row = row_fields("logprobs", "versions")
    return one_call(
        path=PATH,
        stage="batch",
        call=sampled,
        name="sampled",
        arguments={**functions(method=PATH, owner=OWNER), "frees": Knob("frees_cache"), "rows": EachRow(Table(row))},
        produced_by={"rows": "ray_trainer.py, fit: async_rollout_manager.generate_sequences, once per step"},
        outputs=row_outputs(Use("sampled"), "rollout_logprob", "version"),
        settings={"cache is freed": {"frees_cache": True}, "cache is kept": {"frees_cache": False}},
        claims=claims(_DOCS, conserves=True, inert={"frees_cache": (True, False)}),
        reach="rollout.mode=async; rollout.free_cache_engine",
        requires=(no_empty_response,),
    )
