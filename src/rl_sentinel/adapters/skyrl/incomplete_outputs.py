"""Generator outputs in which a row lacks a part: whether SkyRL's trainer refuses them, or trains the row."""

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachPrompt
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.incomplete_rows import shortened, unless_refused
from rl_sentinel.adapters.kit.requirements import groups_are_equal, no_empty_response, prompts_are_contiguous
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.skyrl.arguments import STEP_WISE, TRAINER, UIDS
from rl_sentinel.adapters.skyrl.dynamic_sampling import TRAJECTORY
from rl_sentinel.adapters.skyrl.generator import has_setting
from rl_sentinel.adapters.skyrl.rollout import (
    CONVERT,
    GENERATED,
    MERGE,
    OUTPUT,
    PROCESS,
    generated,
    output_of,
    trainer_object,
)
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.codec import Inputs

GENERATE = f"{TRAINER}.generate"

#: Setting -> the column in which one row lacks its last number, and whether each row is a step of a trajectory.
SHORT: Mapping[str, Settings] = {
    "log-prob missing": {"column": "rollout_logprobs"},
    "mask entry missing": {"column": "loss_masks"},
    "log-prob missing, step-wise": {"column": "rollout_logprobs", "step_wise": True},
    "mask entry missing, step-wise": {"column": "loss_masks", "step_wise": True},
}

_CUSTOM = (
    "docs, generators: users write generators of their own; trainer.py, generate: validate_generator_output checks "
    f"their output before it trains; {GENERATED}"
)
_ASYNC = (
    "fully_async_trainer.py, convert_generation_group_mini_batch_to_training_input: one output per prompt, from "
    f"generators that users may write; {GENERATED}"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the trainer's way from the generator to the training batch, and of the merge of outputs."""
    if all(target.has(path) for path in (GENERATE, PROCESS, CONVERT)) and not target.fails(TRAINER):
        logprobs, steps = _has_logprobs(target), target.has(TRAJECTORY) and has_setting(target, STEP_WISE)
        settings = {
            name: settings
            for name, settings in SHORT.items()
            if (logprobs or settings["column"] == "loss_masks") and (steps or "step_wise" not in settings)
        }
        yield from bindable(target, _training_batch(target, settings, TRAJECTORY if steps else ""))
    if target.has(MERGE) and not target.fails(MERGE) and _has_logprobs(target):
        yield from bindable(target, _merge())


def _has_logprobs(target: Target) -> bool:
    """Whether the generators of the release return the engine's log-probs."""
    return not target.has(OUTPUT) or "rollout_logprobs" in inspect.getsource(target.find(OUTPUT))


class Generator:
    """A fake generator that returns the same output on each call."""

    def __init__(self, output: Mapping[str, Any]) -> None:
        """Store the output."""
        self.output = output

    async def generate(self, _prompts: Mapping[str, Any]) -> dict[str, Any]:
        """A copy of the output, because the trainer changes it."""
        return dict(self.output)


def train_incomplete(  # noqa: PLR0913 - classes of the target, and its arguments
    owner: Any,  # noqa: ANN401 - the target's class
    trainer: Any,  # noqa: ANN401 - a fake with the attributes of the trainer
    output: dict[str, Any],
    uids: list[str],
    trajectory: Callable[..., Any] | None,
    column: str,
    step_wise: bool,  # noqa: FBT001 - passed by name
) -> dict[str, list[float]]:
    """Make a training batch of the whole output, and one for each row with its last number in ``column`` removed.

    With ``step_wise``, each row is the only step of its trajectory, with a reward per token.

    Returns, per row, ``rewards``: its reward in the batch of the whole output; and ``short``: 1 if the row still trains
    when it is shortened, else 0.
    """
    if step_wise and trajectory:
        trainer.cfg.generator.step_wise_trajectories = True
        output = {
            **output,
            "rewards": [
                [0.0] * (len(t) - 1) + [r] for t, r in zip(output["response_ids"], output["rewards"], strict=True)
            ],
            "trajectory_ids": [trajectory(uid, number) for number, uid in enumerate(uids)],
            "is_last_step": [True] * len(uids),
        }
    whole, short = _batch(owner, trainer, output, uids), []
    rewards = whole["rewards"] if "rewards" in whole else whole["custom_rewards"]
    for row in range(len(uids)):
        damaged = {**output, column: shortened(output[column], row)}
        batch = unless_refused(partial(_batch, owner, trainer, damaged, uids))
        short.append(float(batch is not None and bool(batch["loss_mask"][row].any())))
    return {"rewards": rewards[: len(uids)].sum(1).tolist(), "short": short}


def _batch(owner: Any, trainer: Any, output: dict[str, Any], uids: list[str]) -> Any:  # noqa: ANN401
    """The training batch of a generator's output."""
    trainer.generator, trainer.all_metrics = Generator(output), {}
    made = asyncio.run(owner.generate(trainer, {"prompts": [[{"role": "user", "content": uid}] for uid in uids]}))
    processed = output_of(owner.postprocess_generator_output(trainer, made, list(uids)))
    return owner.convert_to_training_input(trainer, processed, list(uids))


def merge_incomplete(merge: Callable[..., Any], outputs: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Merge the outputs of several prompts, and merge them again without the log-probs of one prompt at a time.

    Returns, per row, ``rewards``: its reward; and ``lost``: how many of the later merges lose or change its log-probs.
    A merge that is refused does not count, and neither does the merge without the log-probs of the row's prompt.
    """
    whole = merge(outputs)
    sizes = [len(output["response_ids"]) for output in outputs]
    lost = [0.0] * sum(sizes)
    for number in range(len(outputs)):
        damaged = [{**one, "rollout_logprobs": None} if n == number else one for n, one in enumerate(outputs)]
        merged = unless_refused(partial(merge, damaged))
        if merged is None:
            continue
        place = 0
        for n, (output, size) in enumerate(zip(outputs, sizes, strict=True)):
            kept = (merged["rollout_logprobs"] or [])[place : place + size]
            if n != number and kept != output["rollout_logprobs"]:
                lost[place : place + size] = [before + 1.0 for before in lost[place : place + size]]
            place += size
    return {"rewards": whole["rewards"], "lost": lost}


def _several_prompts(inputs: Inputs) -> str:
    return "" if len(set(inputs.batch.group.tolist())) > 1 else "the output of one prompt is not merged with another"


def _training_batch(target: Target, settings: Mapping[str, Settings], trajectory: str) -> Boundary:
    made, form = Use("made"), PerRow("list")
    return one_call(
        path=f"{GENERATE} -> {PROCESS} -> {CONVERT}",
        stage="batch",
        call=train_incomplete,
        name="made",
        arguments={
            "owner": Constant(Function(TRAINER)),
            "trainer": trainer_object(target),
            "output": generated(),
            "uids": UIDS,
            "trajectory": Constant(Function(trajectory) if trajectory else None),
            "column": Knob("column"),
            "step_wise": Knob("step_wise", default=False),
        },
        produced_by={"output": _CUSTOM},
        outputs={
            "reward": Output("B", "reward", "reward", at=made["rewards"], form=form),
            "training with a number missing": Output("B", "", "incomplete", at=made["short"], form=form),
        },
        settings=settings,
        reach="a generator that the user writes",
        requires=(prompts_are_contiguous, groups_are_equal, no_empty_response),
    )


def _merge() -> Boundary:
    merged, form = Use("merged"), PerRow("list")
    return one_call(
        path=MERGE,
        stage="batch",
        call=merge_incomplete,
        name="merged",
        arguments={"merge": Constant(Function(MERGE)), "outputs": EachPrompt(generated())},
        produced_by={"outputs": _ASYNC},
        outputs={
            "reward": Output("B", "reward", "reward", at=merged["rewards"], form=form),
            "merges that lose the log-probs": Output("B", "count", "columns_of_others", at=merged["lost"], form=form),
        },
        settings={"a prompt without log-probs": {}},
        reach="fully asynchronous training with a generator that the user writes",
        requires=(prompts_are_contiguous, no_empty_response, _several_prompts),
    )
