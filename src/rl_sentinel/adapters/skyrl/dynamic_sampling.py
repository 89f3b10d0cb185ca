"""SkyRL's dynamic sampling: the trainer replaces uninformative prompts, or samples until the batch is full."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.configs import Config
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.requirements import groups_are_equal, no_empty_response, prompts_are_contiguous
from rl_sentinel.adapters.kit.row_codecs import Cell
from rl_sentinel.adapters.kit.row_outputs import row_fields
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, constants
from rl_sentinel.adapters.skyrl.arguments import CONFIG, STEP_WISE, TRAINER, steps_in_order
from rl_sentinel.adapters.skyrl.prompt_filters import several_responses
from rl_sentinel.adapters.skyrl.rollout import GENERATED
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs
from rl_sentinel.core.errors import Unbindable

PATH = f"{TRAINER}.handle_dynamic_sampling"
TRAJECTORY = "skyrl.train.generators.base.TrajectoryID"
OUTPUT = "skyrl.train.generators.base.GeneratorOutput"

_SECTION = "trainer.algorithm.dynamic_sampling"
#: The setting that makes the sampler return the experts of each token, which the trainer replays.
ROUTED = "generator.inference_engine.enable_return_routed_experts"

#: Columns that only some samplers return: log-probs of tokens, and the experts of prompt and response tokens.
LOGPROBS, EXPERTS = "rollout_logprobs", "rollout_expert_indices"

_TYPE, _RATIO = f"{_SECTION}.type", f"{_SECTION}.min_replace_ratio"

#: Name -> settings. A ratio of 0 replaces prompts wherever one prompt is informative.
FAMILIES: Mapping[str, Settings] = {
    "replace": {_TYPE: "replace", _RATIO: 0.0},
    "filter": {_TYPE: "filter"},
    "replace, step-wise": {_TYPE: "replace", _RATIO: 0.0, STEP_WISE: True},
    "filter, step-wise": {_TYPE: "filter", STEP_WISE: True},
    "replace, routed experts": {_TYPE: "replace", _RATIO: 0.0, ROUTED: True},
    "filter, routed experts": {_TYPE: "filter", ROUTED: True},
}

_KEPT = "prompts with unequal rewards"
_DOC = (
    "trainer_utils.py, handle_dynamic_sampling: filter out groups with std == 0 and group size > 1, or replace them "
    "with samples of std > 0"
)
_STEPS = claims(
    f"{_DOC}; trainer.py, compute_advantages_and_returns: the reward of the last step is the trajectory's outcome",
    output_algorithms={"keep": "prompts with unequal outcomes of trajectories"},
    trajectories="step-wise",
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the trainer's method under the entries of :data:`FAMILIES` that the release supports."""
    if not target.has(PATH):
        return
    for name, settings in FAMILIES.items():
        try:
            Config(CONFIG, knobs_at={path: path for path in settings}).check(target)
        except Unbindable:
            continue  # the release lacks a setting of this family
        if STEP_WISE not in settings or target.has(TRAJECTORY):
            yield from bindable(target, _boundary(target, name, settings))


class Rollouts:
    """Outputs of the generator: for the rows of the case, and for other prompts whose rewards differ."""

    def __init__(
        self,
        rows: list[dict[str, Any]],
        trajectory: Callable[..., Any] | None,
        of_sampler: Sequence[str],
    ) -> None:
        """Store the rows of the case, and ``of_sampler``, columns that only some samplers return."""
        self.of_sampler = of_sampler
        self.rows, self.trajectory, self.samples = rows, trajectory, _samples(rows)
        self.others = 0

    def of_case(self) -> list[dict[str, Any]]:
        """The rows of the case, each with its number and the uid of its prompt."""
        return [{**row, "number": n, "uid": f"prompt-{row['group']}"} for n, row in enumerate(self.rows)]

    def of_another_prompt(self) -> list[dict[str, Any]]:
        """Responses of another prompt, of one step each and with different rewards."""
        self.others += 1
        first = len(self.rows) + self.others * self.samples
        return [
            {
                "number": first + n,
                "uid": f"other-{self.others}",
                "trajectory": first + n,
                "last_step": True,
                "mask": [1, 1],
                "reward": float(n == 0),
            }
            for n in range(self.samples)
        ]

    def rounds(self, cfg: Any) -> list[list[dict[str, Any]]]:  # noqa: ANN401 - the target's class
        """The rows of each sampling round. Sets the batch size in ``cfg`` to the number of prompts of the case plus 2.

        1. Only if prompts are filtered: one informative prompt, which has different rewards.
        2. The prompts of the case, and one more informative prompt.
        3. As many informative prompts as the case has prompts, so that the batch can be filled.
        """
        prompts = len({row["group"] for row in self.rows})
        cfg.generator.n_samples_per_prompt, cfg.trainer.train_batch_size = self.samples, prompts + 2
        filters = cfg.trainer.algorithm.dynamic_sampling.type == "filter"
        return [
            *([self.of_another_prompt()] if filters else []),
            [*self.of_case(), *self.of_another_prompt()],
            [row for _ in range(prompts) for row in self.of_another_prompt()],
        ]

    def output(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """The generator's output for these rows; tokens, log-probs and experts show the number of their row."""
        output = {
            "prompt_token_ids": [[row["number"]] for row in rows],
            "response_ids": [[row["number"]] * len(row["mask"]) for row in rows],
            "rewards": [row["reward"] for row in rows],
            "loss_masks": [list(row["mask"]) for row in rows],
            "stop_reasons": [_stop_reason(row) for row in rows],
            "rollout_metrics": {},
        }
        widths = [(row["number"], len(row["mask"])) for row in rows]
        columns = {
            LOGPROBS: [[-1.0 - number] * width for number, width in widths],
            EXPERTS: [[[[number]]] * (1 + width) for number, width in widths],  # of one layer, one expert per token
        }
        output |= {name: columns[name] for name in self.of_sampler}
        if self.trajectory is None:
            return output
        last = [row["last_step"] for row in rows]
        return {
            **output,
            "rewards": [[0.0] * (len(row["mask"]) - 1) + [row["reward"] if row["last_step"] else 0.0] for row in rows],
            "trajectory_ids": [self.trajectory(row["uid"], row["trajectory"]) for row in rows],
            "is_last_step": last,
        }


def _stop_reason(row: Mapping[str, Any]) -> str:
    return "length" if row["number"] % 2 else "stop"


def _samples(rows: list[dict[str, Any]]) -> int:
    """The number of responses of a prompt."""
    return len({row["trajectory"] for row in rows}) // len({row["group"] for row in rows})


def sample_batch(
    owner: type,
    cfg: Any,  # noqa: ANN401 - the target's class
    rows: list[dict[str, Any]],
    trajectory: Callable[..., Any] | None,
    of_sampler: Sequence[str],
) -> dict[str, list[float]]:
    """Sample until the batch is full, at most all rounds.

    Returns, per row of the case, ``keep``: 1 if it is in the batch, else 0; and ``others``: how many of its columns,
    including the uid, are lost or come from another row. If another prompt's row replaces it, they are those of that
    row.
    """
    rollouts = Rollouts(rows, trajectory, of_sampler)
    rounds = rollouts.rounds(cfg)
    trainer = bare_instance(owner, cfg=cfg, dynamic_sampling_state=None)
    for sampled in rounds:
        output, uids, goes_on = trainer.handle_dynamic_sampling(
            rollouts.output(sampled), [row["uid"] for row in sampled]
        )
        if not goes_on:
            break
    known = {row["number"]: row for some in rounds for row in some}
    kept, others = [0.0] * len(rows), [0.0] * len(rows)
    for place, (number,) in enumerate(output["prompt_token_ids"]):
        wrong = _columns_of_others(rollouts.output([known[number]]), output, place, known[number]["uid"] == uids[place])
        if number < len(rows):
            kept[number] = 1.0
        # A row of another prompt is counted at the row that it replaces.
        where = number if number < len(rows) else min(place, len(rows) - 1)
        others[where] += wrong
    return {"keep": kept, "others": others}


def _columns_of_others(rollout: Mapping[str, Any], output: Mapping[str, Any], index: int, same_uid: bool) -> int:  # noqa: FBT001 - a fact
    """The number of columns at ``index`` that are lost or differ from ``rollout``, plus 1 if the uid is wrong."""
    names = [name for name in rollout if name != "rollout_metrics"]
    wrong = [name for name in names if not output.get(name) or output[name][index] != rollout[name][0]]
    return len(wrong) + int(not same_uid)


def with_equal_first_rewards(batch: Batch) -> Batch:
    """Set all rewards of the first prompt to 1, so that dynamic sampling must drop it."""
    return with_columns(batch, reward=torch.where(batch.group == batch.group[0], 1.0, batch.reward))


def several_trajectories(inputs: Inputs) -> str:
    """The reason to skip a batch whose prompts have different numbers of trajectories, or only one; else empty."""
    batch = inputs.batch
    counts = {len(set(batch.trajectory[batch.group == g].tolist())) for g in batch.group.tolist()}
    return (
        ""
        if len(counts) == 1 and min(counts) > 1
        else "prompts differ in their number of trajectories, or have only one"
    )


def sampled_rows(*, step_wise: bool) -> EachRow:
    """The columns of each row that :class:`Rollouts` reads."""
    columns: dict[str, Codec] = {
        "group": Cell("group", "int"),
        "trajectory": Cell("trajectory", "int") if step_wise else Derived(lambda inputs: inputs.part[0]),
        "last_step": Cell("last_step", "bool") if step_wise else Constant(value=True),
        **row_fields("mask", "reward"),
    }
    return EachRow(Table(columns))


def columns_read(*, step_wise: bool) -> frozenset[str]:
    """The columns that decide which rows are sampled and kept."""
    return frozenset({"reward", "group"} | ({"trajectory", "last_step"} if step_wise else set()))


def requirements(*, step_wise: bool) -> tuple[Callable[[Inputs], str], ...]:
    """Checks that prompts are contiguous, and have the same number of trajectories, at least two and none empty.

    With ``step_wise``, the steps of a trajectory must also be in order.
    """
    plain = (groups_are_equal, several_responses)
    sizes = (steps_in_order, several_trajectories) if step_wise else plain
    return (prompts_are_contiguous, no_empty_response, *sizes)


def _boundary(target: Target, name: str, settings: Settings) -> Boundary:
    step_wise = bool(settings.get(STEP_WISE))
    # The first releases have no log-probs of the sampler.
    has_logprobs = not target.has(OUTPUT) or LOGPROBS in vars(target.find(OUTPUT))["__annotations__"]
    of_sampler = ((LOGPROBS,) if has_logprobs else ()) + ((EXPERTS,) if settings.get(ROUTED) else ())
    cfg = Config(CONFIG, knobs_at={path: path for path in settings})
    form = PerRow("list")
    return one_call(
        path=PATH,
        stage="batch",
        call=sample_batch,
        name="sampled",
        arguments={
            "owner": Constant(Function(TRAINER)),
            "cfg": cfg,
            "rows": sampled_rows(step_wise=step_wise),
            **constants(trajectory=Function(TRAJECTORY) if step_wise else None, of_sampler=of_sampler),
        },
        produced_by={"rows": f"{GENERATED}; the uid of a step is the instance_id of its trajectory"},
        reads=columns_read(step_wise=step_wise),
        outputs={
            "keep": Output("B", "", "keep", "group", at=Use("sampled")["keep"], form=form),
            "number of columns from other samples": Output(
                "B", "", "columns_of_others", at=Use("sampled")["others"], form=form
            ),
        },
        settings={name: settings},
        claims=_STEPS if step_wise else claims(_DOC, output_algorithms={"keep": _KEPT}),
        reach=", ".join(f"{path}={value}" for path, value in settings.items()),
        requires=requirements(step_wise=step_wise),
        domain=with_equal_first_rewards,
    )
