"""SkyRL's merge of the steps of a trajectory whose prompts extend each other."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_outputs import row_fields, row_outputs
from rl_sentinel.adapters.kit.value_codecs import Knob, functions
from rl_sentinel.adapters.skyrl.arguments import steps_in_order
from rl_sentinel.adapters.skyrl.dynamic_sampling import TRAJECTORY
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

PATH = "skyrl.train.generators.utils.merge_stepwise_output"

#: The first token of a prompt that the agent has rewritten, so that it does not extend the one before it.
_REWRITTEN = 1_000_000

FAMILIES: Mapping[str, Settings] = {
    "prompts extend": {"rewritten": False},
    "every other prompt rewritten": {"rewritten": True},
}

_DOCS = (
    "generators/utils.py, merge_stepwise_output: consecutive turns are merged where prompt and response are a prefix "
    "of the next prompt; per-token fields are concatenated, with 0 for the observation between them"
)
_PRODUCER = (
    "skyrl_gym_generator.py, agent_loop, step_wise_trajectories: one entry per step, whose prompt is the conversation "
    "so far, with rewards per token; trainer.py, postprocess_generator_output: merged if merge_stepwise_output"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the merge of steps, for prompts that extend the previous one and for prompts that do not."""
    if target.has(PATH) and target.has(TRAJECTORY):
        yield from bindable(target, _boundary())


def merge_steps(
    merge: Callable[..., Any],
    trajectory: Callable[..., Any],
    rows: list[dict[str, Any]],
    rewritten: bool,  # noqa: FBT001 - a setting
) -> dict[str, list[Any]]:
    """Merge the steps, and read the columns of each step from the merged entries."""
    prompts = _prompts(rows, rewritten=rewritten)
    entries = merge(
        {
            "prompt_token_ids": prompts,
            "response_ids": [list(row["tokens"]) for row in rows],
            "rewards": [[0.0] * (len(row["tokens"]) - 1) + [row["reward"]] for row in rows],
            "loss_masks": [list(row["mask"]) for row in rows],
            "stop_reasons": ["stop"] * len(rows),
            "rollout_metrics": None,
            "rollout_logprobs": [list(row["logprobs"]) for row in rows],
            "trajectory_ids": [trajectory(f"prompt-{row['group']}", row["trajectory"]) for row in rows],
            "is_last_step": [row["last_step"] for row in rows],
            "rollout_expert_indices": None,
        }
    )
    columns: dict[str, list[Any]] = {"tokens": [], "masks": [], "logprobs": [], "rewards": []}
    trained = [0] * len(entries["response_ids"])
    found = [_places(entries, row, prompt) for row, prompt in zip(rows, prompts, strict=True)]
    for row, places in zip(rows, found, strict=True):
        for entry, _ in places:
            trained[entry] += sum(row["mask"])
    for row, places in zip(rows, found, strict=True):
        # The tokens of a step count as lost if it is in no entry or in two, or if its entry trains more than its steps.
        whole = len(places) == 1 and trained[places[0][0]] == sum(entries["loss_masks"][places[0][0]])
        for name, value in _read(entries, row, *places[0], whole=whole).items() if places else _lost(row).items():
            columns[name].append(value)
    return columns


def with_step_rewards(batch: Batch) -> Batch:
    """The batch with a reward at each step before the last, as from environments that score every step."""
    return with_columns(batch, reward=torch.where(batch.last_step, batch.reward, 0.25 * (batch.step + 1)))


def _prompts(rows: list[dict[str, Any]], *, rewritten: bool) -> list[list[int]]:
    """The prompt of each step: the trajectory so far and a new observation, or a rewritten context."""
    prompts, held, step = list[list[int]](), list[int](), 0
    for number, row in enumerate(rows):
        step = 0 if not number or rows[number - 1]["last_step"] else step + 1
        prompt = list(row["prompt"]) if not step else [*held, *row["prompt"]]
        if step and rewritten and step % 2:
            prompt = [_REWRITTEN, *row["prompt"]]
        prompts.append(prompt)
        held = [*prompt, *row["tokens"]]
    return prompts


def _places(entries: Mapping[str, Any], row: dict[str, Any], prompt: list[int]) -> list[tuple[int, int]]:
    """The merged entries that contain the row's response, each with the position of the response in the entry."""
    whole, found = [*prompt, *row["tokens"]], []
    for entry, trajectory in enumerate(entries["trajectory_ids"]):
        first, response = entries["prompt_token_ids"][entry], entries["response_ids"][entry]
        if trajectory.repetition_id == row["trajectory"] and [*first, *response][: len(whole)] == whole:
            start = len(prompt) - len(first)
            found += [(entry, start)] if start >= 0 else []
    return found


def _read(entries: Mapping[str, Any], row: dict[str, Any], entry: int, start: int, *, whole: bool) -> dict[str, Any]:
    end = start + len(row["tokens"])
    response = torch.tensor(entries["response_ids"][entry][start:end])
    return {
        "tokens": response if whole else torch.full_like(response, -1),
        "masks": torch.tensor(entries["loss_masks"][entry][start:end], dtype=torch.bool),
        "logprobs": torch.tensor(entries["rollout_logprobs"][entry][start:end]),
        "rewards": float(sum(entries["rewards"][entry][start:end])),
    }


def _lost(row: dict[str, Any]) -> dict[str, Any]:
    nothing = torch.full((len(row["tokens"]),), -1)
    return {"tokens": nothing, "masks": nothing > 0, "logprobs": nothing.float(), "rewards": float("inf")}


def _boundary() -> Boundary:
    row = Table(row_fields("group", "trajectory", "last_step", "prompt", "tokens", "mask", "logprobs", "reward"))
    return one_call(
        path=PATH,
        stage="batch",
        call=merge_steps,
        name="merged",
        arguments={
            **functions(merge=PATH, trajectory=TRAJECTORY),
            "rows": EachRow(row),
            "rewritten": Knob("rewritten"),
        },
        produced_by={"rows": _PRODUCER},
        outputs=row_outputs(Use("merged"), "rollout_logprob", "token", "mask", "reward"),
        settings=FAMILIES,
        claims=claims(_DOCS, conserves=True),
        reach="generator.step_wise_trajectories=true, generator.merge_stepwise_output=true",
        requires=(no_empty_response, steps_in_order),
        domain=with_step_rewards,
    )
