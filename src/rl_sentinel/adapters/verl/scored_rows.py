"""Boundary of verl's agent loop that scores its outputs: the reward and the scorer's other values reach the batch."""

import inspect
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.containers import EachRow, Namespace, Object
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_codecs import Cell, RowTokens
from rl_sentinel.adapters.kit.value_codecs import Constant, Width, constants
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.agent_loop import EARLIER, MODULE, OUTPUT, PROMPT, make_worker, run_and_postprocess
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

#: The worker with the reward manager, which scores one output at a time.
SCORER = f"{MODULE}.RewardManagerWorker"
SCORE = f"{SCORER}.compute_score"

#: A name among the values that a reward manager returns beside the reward.
_DETAIL = "acc"

_DOCS = (
    "workers/reward_manager/naive.py: reward_tensor and, for each row, reward_extra_info; ray_trainer.py, _validate: "
    "reward_extra_info of the batch, from which the metrics of validation are computed"
)
_PRODUCED = (
    "tool_agent_loop.py and single_turn_agent_loop.py, run: outputs without a score; the worker's reward manager "
    "scores them, and returns acc if the scorer of the data source does"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The boundary of the scored outputs, in releases whose agent loop has a worker with a reward manager."""
    owner = next((path for path in EARLIER if target.has(f"{path}._run_agent_loop")), "")
    if not owner or not target.has(SCORE) or target.fails(MODULE):
        return
    if "self.reward_manager" in inspect.getsource(target.find(SCORE)):
        yield from try_bind(target, owner, "batch", lambda: [_boundary(owner)])


class Loop:
    """A fake event loop, which calls a function at once."""

    async def run_in_executor(self, _executor: object, function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 - of the function
        """The result of the function."""
        return function(*arguments)


def scored_rows(worker: Any, scorer: type, outputs: list[Any], rewards: list[float]) -> dict[str, list[float]]:  # noqa: ANN401 - of the target
    """Run the agent loops and score their outputs; return, per row, the reward and the scorer's other value.

    A missing value is infinite.
    """
    left = list(rewards)

    def manager(data: Any, return_dict: bool = False) -> Any:  # noqa: ANN401, FBT001, FBT002 - as verl's managers
        reward = left.pop(0)
        scores = torch.zeros(data.batch["responses"].shape)
        scores[0, -1] = reward
        found = {"reward_tensor": scores, "reward_extra_info": {_DETAIL: [reward]}}
        return found if return_dict else scores

    own: Any = bare_instance(scorer, reward_manager=manager, loop=Loop(), rm_executor=None)

    async def remote(*about: object) -> Any:  # noqa: ANN401 - as the scorer
        result = own.compute_score(*about)
        return await result if inspect.isawaitable(result) else result

    worker.reward_manager_worker = SimpleNamespace(compute_score=SimpleNamespace(remote=remote))
    batch = run_and_postprocess(worker, outputs)
    missing = [float("inf")] * len(rewards)
    return {
        "rewards": batch.batch["rm_scores"].sum(1).tolist() if "rm_scores" in batch.batch else missing,
        "details": [float(value) for value in batch.non_tensor_batch.get(_DETAIL, missing)],
    }


def _boundary(owner: str) -> Boundary:
    output = Object(
        OUTPUT,
        {
            **constants(prompt_ids=list(PROMPT), num_turns=2, metrics={}),
            "response_ids": RowTokens("token", "int"),
            "response_mask": RowTokens("mask", "int"),
            "response_logprobs": RowTokens("rollout_logprob"),
        },
    )
    rollout = Namespace(prompt_length=Constant(2), response_length=Width())
    step = Step(
        call=scored_rows,
        name="scored",
        arguments={
            "worker": Object(
                make_worker, {"owner": Constant(Function(owner)), "rollout": rollout}, {"rollout": "rollout_config"}
            ),
            "scorer": Constant(Function(SCORER)),
            "outputs": EachRow(output),
            "rewards": EachRow(Cell("reward")),
        },
        produced_by={"outputs": _PRODUCED},
    )
    places = {"reward of the scorer": "rewards", "its value beside the reward": "details"}
    return Boundary(
        path=f"{SCORE} -> {owner}._run_agent_loop -> {owner}._postprocess",
        stage="batch",
        steps=(step,),
        unused=frozenset({"token", "mask", "rollout_logprob"}),
        outputs={
            name: Output("B", "reward", "reward", at=Use("scored")[key], form=PerRow("list"))
            for name, key in places.items()
        },
        settings={"scored": {}},
        claims=claims(_DOCS, conserves=True),
        reach="the agent loop (rollout.mode=async), without a reward model",
        requires=(no_empty_response,),
    )
