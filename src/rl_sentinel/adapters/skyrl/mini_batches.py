"""SkyRL's mini-batches of prompts: the rows of each optimizer step, also with one row per step."""

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from typing_extensions import override

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Labels, PromptIds
from rl_sentinel.adapters.kit.containers import EachRow, Object, Table
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.requirements import (
    group_sizes,
    groups_are_equal,
    no_empty_response,
    prompts_are_contiguous,
)
from rl_sentinel.adapters.kit.row_codecs import RowPrompt, RowTokens
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Earlier, constants, functions
from rl_sentinel.adapters.skyrl.arguments import STEP_WISE, TRAINER, config, steps_in_order
from rl_sentinel.adapters.skyrl.generator import TRAJECTORY
from rl_sentinel.adapters.skyrl.rollout import CONVERT, GENERATED, PAD, trainer_of
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs
from rl_sentinel.core.errors import Unbindable

EXECUTE = f"{TRAINER}._execute_training_step"
STAGE = "skyrl.backends.skyrl_train.distributed.dispatch.MeshDispatch.stage_chunks"

_DOCS = (
    "configuration, trainer.policy_mini_batch_size: the number of prompts of a mini-batch, for each of which there is "
    "one optimizer step"
)
_PRODUCED = {
    "output": f"{GENERATED}; trainer.py, postprocess_generator_output: rewards per token; agent_loop, "
    "step_wise_trajectories: a row for each step, with is_last_step and the trajectory's id"
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the mini-batches and the logged length of a training batch, whose rows are responses or steps."""
    if not target.has(CONVERT) or not target.has(TRAJECTORY):
        return
    mini_batches = target.has(EXECUTE) and target.has(STAGE) and not target.fails(STAGE)
    logs = '"avg_response_length"' in inspect.getsource(target.find(CONVERT))
    for step_wise in (False, True):
        try:
            config({}, {STEP_WISE: step_wise}).check(target)
        except Unbindable:
            return
        if mini_batches:
            yield from bindable(target, _mini_batches(target, step_wise=step_wise))
        if logs:
            yield from bindable(target, _lengths(target, step_wise=step_wise))


class Status(dict[str, Any]):
    """The metrics of a training step, as a dict or as an attribute; both are empty."""

    @property
    def metrics(self) -> dict[str, float]:
        """No metrics."""
        return {}


class Dispatch:
    """Fake workers: one data-parallel rank that records the rows of each optimizer step."""

    def __init__(self, stage: Callable[..., Any]) -> None:
        """Store ``stage``, which splits the training batch into mini-batches."""
        self.stage, self.steps = stage, list[list[int]]()

    def get_lcm_dp_size(self) -> int:
        """The number of ranks, 1."""
        return 1

    def stage_data(self, _model: str, data: Any, mini_batches: Any) -> Any:  # noqa: ANN401 - the target's
        """The mini-batches; each mini-batch is a list with one part per rank."""
        return self.stage(1, data, mini_batches)

    def forward_backward_from_staged(self, _model: str, parts: list[Any], **_options: object) -> Status:
        """Record the rows of a mini-batch."""
        self.steps.append([int(place) for part in parts for place in part["place"].tolist()])
        return Status()

    def optim_step(self, _model: str) -> None:
        """Return no gradient norm."""


def convert(  # noqa: PLR0913 - classes of the target, and their arguments
    owner: type,
    trajectory: Callable[..., Any],
    trainer: Any,  # noqa: ANN401 - a fake with the attributes of the trainer
    output: dict[str, Any],
    uids: list[str],
    last_steps: list[bool],
) -> Any:  # noqa: ANN401 - the trainer, with its training batch in ``data``
    """Convert the generator's output to the training batch; with step-wise trajectories, each row is a step."""
    whole = bare_instance(owner, **vars(trainer), all_timings={}, has_critic=False)
    rewards = [[0.0] * len(response) for response in output["response_ids"]]
    steps: Mapping[str, Any] = {}
    if whole.cfg.generator.step_wise_trajectories:
        started = [0, *itertools.accumulate(map(int, last_steps))]
        ids = [trajectory(uid, number) for uid, number in zip(uids, started, strict=False)]
        steps = {"is_last_step": [bool(last) for last in last_steps], "trajectory_ids": ids}
    whole.data = whole.convert_to_training_input({**output, "rewards": rewards, **steps}, uids)
    return whole


def mean_length(trainer: Any) -> float:  # noqa: ANN401 - of :func:`convert`
    """The mean length of a response that the trainer logs."""
    return float(trainer.data.metadata["avg_response_length"])


def prepare(trainer: Any, stage: Callable[..., Any]) -> Any:  # noqa: ANN401 - a fake of the trainer
    """The trainer with mini-batches of one prompt, and workers that record their rows."""
    trainer.cfg.trainer.policy_mini_batch_size = 1
    trainer.dispatch = Dispatch(stage)
    return trainer


def train(stage: Callable[..., Any], trainer: Any, uids: list[str]) -> dict[str, list[Any]]:  # noqa: ANN401 - of :func:`convert`
    """Train on mini-batches of one prompt.

    Returns, per row, ``uids``: its uid, or "-1" if it is not in its prompt's mini-batch; and ``uses``: how often it is
    trained.
    """
    data = trainer.data
    data["advantages"] = torch.zeros_like(data["loss_mask"])
    data["place"] = torch.arange(len(data["loss_mask"]))
    with replaced_globals(stage.__globals__, ray=_Store()):
        trainer._execute_training_step("policy", data)  # noqa: SLF001 - the audited method
    places = [[row for row in rows if row < len(uids)] for rows in trainer.dispatch.steps]
    prompts = list(dict.fromkeys(uids))
    mini_batch = {row: number for number, rows in enumerate(places) for row in rows}
    return {
        "uids": [uid if mini_batch.get(row) == prompts.index(uid) else "-1" for row, uid in enumerate(uids)],
        "uses": [float(sum(rows.count(row) for rows in places)) for row in range(len(uids))],
    }


class _Store:
    """A fake of Ray's object store: a reference is the object."""

    @staticmethod
    def put(value: Any) -> Any:  # noqa: ANN401 - any object
        """The object itself."""
        return value


class Uids(PerRow):
    """Read uids as the labels that they contain, and "-1" as -1."""

    @override
    def read(self, value: Any, sizes: Any) -> torch.Tensor:
        return torch.tensor([-1 if uid == "-1" else int(uid.rpartition("-")[2]) for uid in value])


def _converted(trainer: Codec) -> Step:
    output: dict[str, Codec] = {
        "prompt_token_ids": EachRow(RowPrompt()),
        "response_ids": EachRow(RowTokens("token", "int")),
        "loss_masks": EachRow(RowTokens("mask", "int")),
        "rollout_logprobs": EachRow(RowTokens("rollout_logprob")),
    }
    return Step(
        call=convert,
        name="converted",
        arguments={
            **functions(owner=TRAINER, trajectory=TRAJECTORY),
            "trainer": trainer,
            "output": Table(output),
            "uids": PromptIds("strings-list"),
            "last_steps": Labels("last_step"),
        },
        produced_by=_PRODUCED,
    )


def _trainer(target: Target, *, step_wise: bool) -> Object:
    return Object(
        trainer_of,
        {
            "cfg": config({}, {STEP_WISE: step_wise}),
            "prompts": Derived(lambda inputs: len(group_sizes(inputs))),
            "samples": Derived(lambda inputs: 1 if step_wise else group_sizes(inputs)[0]),
            **constants(workers=1, pad_batch=Function(PAD) if target.has(PAD) else None),
        },
    )


def _requires(*, step_wise: bool) -> tuple[Callable[[Inputs], str], ...]:
    further = (steps_in_order, _one_trajectory) if step_wise else (groups_are_equal,)
    return (prompts_are_contiguous, no_empty_response, *further)


def _mini_batches(target: Target, *, step_wise: bool) -> Boundary:
    trainer = Object(prepare, {"trainer": _trainer(target, step_wise=step_wise), "stage": Constant(Function(STAGE))})
    step = Step(
        call=train,
        name="trained",
        arguments={
            "stage": Constant(Function(STAGE)),
            "trainer": Earlier(Use("converted")),
            "uids": Earlier(Use("uids")),
        },
    )
    return Boundary(
        path=f"{CONVERT} -> {EXECUTE} -> {STAGE}",
        stage="batch",
        steps=(_converted(trainer), step),
        reads=frozenset({"group", *(("trajectory", "last_step") if step_wise else ())}),
        outputs={
            "prompt of the mini-batch": Output("B", "", "group", at=Use("trained")["uids"], form=Uids()),
            "uses": Output("B", "samples", "uses", at=Use("trained")["uses"], form=PerRow("list")),
        },
        settings={"step-wise" if step_wise else "responses": {}},
        claims=claims(_DOCS, conserves=True),
        reach=f"{STEP_WISE}=true" if step_wise else "every run; several mini-batches per training batch",
        requires=_requires(step_wise=step_wise),
        domain=one_trajectory_per_prompt if step_wise else None,
    )


def _lengths(target: Target, *, step_wise: bool) -> Boundary:
    read = Step(call=mean_length, name="length", arguments={"trainer": Earlier(Use("converted"))})
    return Boundary(
        path=CONVERT,
        stage="metric",
        steps=(_converted(_trainer(target, step_wise=step_wise)), read),
        reads=frozenset({"length"}),
        outputs={"avg_response_length": Output("", "tokens", "response_length.mean", over="all", at=Use("length"))},
        settings={"length of steps" if step_wise else "length of responses": {}},
        claims=claims("trainer.py, convert_to_training_input: avg_response_length of the rows of the training batch"),
        reach=f"{STEP_WISE}=true" if step_wise else "every run",
        requires=_requires(step_wise=step_wise),
        domain=one_trajectory_per_prompt if step_wise else None,
    )


def one_trajectory_per_prompt(batch: Batch) -> Batch:
    """Make the rows of each prompt the steps of one trajectory."""
    prompts, sizes = torch.unique_consecutive(batch.group, return_inverse=True, return_counts=True)[1:]
    ends = sizes.cumsum(0)
    places = torch.arange(batch.rows, device=prompts.device)
    return with_columns(
        batch,
        trajectory=prompts,
        step=places - (ends - sizes)[prompts],
        last_step=places == (ends - 1)[prompts],
    )


def _one_trajectory(inputs: Inputs) -> str:
    same = torch.equal(one_trajectory_per_prompt(inputs.batch).last_step, inputs.batch.last_step)
    return "" if same else "a prompt has more than one trajectory, and the call takes one number for all trajectories"
