"""Boundary of verl's scoring of a trajectory: the text that the scoring function gets of its last output."""

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.containers import EachRow, Namespace, Object, Table
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_outputs import row_fields
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob, constants, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.agent_loop import MODULE, OUTPUT, WORKER, make_worker
from rl_sentinel.adapters.verl.agent_script import untimed
from rl_sentinel.adapters.verl.arguments import section
from rl_sentinel.adapters.verl.reward_fakes import SOURCE, Tokens, score
from rl_sentinel.adapters.verl.rewards import LOOP
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

SCORES = f"{WORKER}._compute_score"
MANAGER = LOOP["naive"]

#: The number of outputs of a trajectory; an earlier one has a shorter prompt and a longer response than the last.
SETTINGS: Mapping[str, Settings] = {"one output": {"outputs": 1}, "two outputs": {"outputs": 2}}

#: The prompt of the first output, that of a later output, and the tokens by which an earlier response is longer.
_PROMPT, _LATER, _LONGER = [7], [7, 7, 7, 7], 2

_DOCS = claims(
    "reward_loop/reward_manager/naive.py, run_single, comment: for multi-sequence outputs, the reward is based on the "
    "last sequence; agent_loop.py, _compute_score, docstring: reward score for all outputs in a trajectory",
    conserves=True,
)
_PRODUCED = (
    "v1/agent_loop_tq.py, _agent_loop_postprocess: the outputs of an agent loop without padding, and the columns of "
    "the data set; reward_loop.py, compute_score: run_single of the manager"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of a trajectory's score, in releases that score the outputs of a trajectory together."""
    known = all(map(target.has, (SCORES, MANAGER, OUTPUT))) and not any(map(target.fails, (WORKER, MANAGER)))
    if known and "outputs" in inspect.signature(target.find(SCORES)).parameters:
        yield from try_bind(target, SCORES, "batch", lambda: [_scored()])


class WholeText(Tokens):
    """A fake tokenizer in which each token has a text, padding too."""

    def decode(self, ids: Any, **_options: object) -> str:  # noqa: ANN401 - a tensor or a list
        """The ids as text."""
        return " ".join(str(int(token)) for token in ids)


def scores_of_trajectories(  # noqa: PLR0913 - classes of the target, the rows, and a setting
    worker: Any,  # noqa: ANN401 - a worker of the target
    make: Callable[..., Any],
    manager: Callable[..., Any],
    config: Any,  # noqa: ANN401 - a section of the target's configuration
    rows: list[dict[str, Any]],
    outputs: int,
) -> list[float]:
    """Score each trajectory; a score is 1 higher if the scoring function gets another text than the last response."""

    async def run() -> list[float]:
        scorer = manager(config, WholeText(), score)
        worker.reward_loop_worker_handles = [SimpleNamespace(compute_score=SimpleNamespace(remote=scorer.run_single))]
        return [await _score(worker, make, row, outputs) for row in rows]

    return asyncio.run(run())


async def _score(worker: Any, make: Callable[..., Any], row: dict[str, Any], outputs: int) -> float:  # noqa: ANN401
    tokens = [abs(token) + 1 for token in row["tokens"]]
    earlier = [_output(make, _PROMPT, [*tokens, *[1] * _LONGER]) for _ in range(outputs - 1)]
    last = _output(make, _LATER if earlier else _PROMPT, tokens)
    truth = {"text": WholeText().decode(tokens), "reward": row["reward"]}
    labels = {"data_source": SOURCE, "reward_model": {"ground_truth": truth}, "extra_info": {}}
    await worker._compute_score([*earlier, last], kwargs=labels)  # noqa: SLF001 - the method that runs
    return float(last.reward_score)


def _output(make: Callable[..., Any], prompt: list[int], response: list[int]) -> Any:  # noqa: ANN401 - of the target
    """An output of an agent loop that has no score yet."""
    return make(
        prompt_ids=prompt,
        response_ids=response,
        response_mask=[1] * len(response),
        num_turns=2,
        metrics={},
        extra_fields={},
    )


def _scored() -> Boundary:
    rollout = Namespace(**constants(prompt_length=8, response_length=64))
    parts = {"owner": Constant(Function(WORKER)), "rollout": rollout}
    texts = constants(trainer={"experiment_name": "house"}, data={"reward_fn_key": "data_source"})
    config = section({"reward": Table({"reward_kwargs": Table({})}), **texts})
    return one_call(
        path=f"{SCORES} -> {MANAGER}.run_single",
        stage="batch",
        call=scores_of_trajectories,
        name="scores",
        arguments={
            "worker": Object(make_worker, parts, {"rollout": "rollout_config"}),
            **functions(make=OUTPUT, manager=MANAGER),
            "config": config,
            "rows": EachRow(Table(row_fields("tokens", "reward"))),
            "outputs": Knob("outputs"),
        },
        fakes={f"{MODULE}.simple_timer": untimed},
        produced_by={"rows": _PRODUCED},
        unused=frozenset({"token"}),
        outputs={"reward": Output("B", "reward", "reward", at=Use("scores"), form=PerRow("list"))},
        settings=SETTINGS,
        claims=_DOCS,
        reach="every agent loop; trainer.use_v1=True (the default) with an agent loop that returns several outputs",
        requires=(no_empty_response,),
    )
