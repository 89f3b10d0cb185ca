"""SkyRL's dynamic sampling, which cuts a batch with too many prompts: whether it cuts between prompts."""

from collections.abc import Callable, Iterator
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.configs import Config
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.skyrl.arguments import CONFIG, TRAINER
from rl_sentinel.adapters.skyrl.dynamic_sampling import (
    FAMILIES,
    LOGPROBS,
    PATH,
    TRAJECTORY,
    Rollouts,
    columns_read,
    requirements,
    sampled_rows,
)
from rl_sentinel.adapters.skyrl.rollout import GENERATED
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.codec import Inputs
from rl_sentinel.core.errors import Unbindable

_FAMILY = "filter, step-wise"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The boundary of one round of sampling that gives more prompts than a batch has."""
    if not target.has(PATH) or not target.has(TRAJECTORY):
        return
    try:
        _config().check(target)
    except Unbindable:
        return  # the release has no step-wise trajectories, or no filter
    yield from bindable(target, _boundary())


def sample_once(
    owner: type,
    cfg: Any,  # noqa: ANN401 - the target's class
    rows: list[dict[str, Any]],
    trajectory: Callable[..., Any],
) -> dict[str, list[float]]:
    """Sample the prompts of the case and as many others, for a batch of one prompt fewer than the case has.

    Each row of the case is the second step of a trajectory, after a first step with reward 0. Returns, per row of the
    case, ``rewards``: the sum of its rewards in the batch; and ``missing``: how many steps of its prompt are not in the
    batch. Both are 0 for a row that is not in the batch.
    """
    rollouts = Rollouts(rows, trajectory, (LOGPROBS,))
    prompts = len({row["group"] for row in rows})
    cfg.generator.n_samples_per_prompt, cfg.trainer.train_batch_size = rollouts.samples, prompts - 1
    steps = [step for row in rollouts.of_case() for step in (_first_step(row), row)]
    sampled = [*steps, *[row for _ in range(prompts) for row in rollouts.of_another_prompt()]]
    trainer = bare_instance(owner, cfg=cfg, dynamic_sampling_state=None)
    uids = [row["uid"] for row in sampled]
    output, _uids, _goes_on = trainer.handle_dynamic_sampling(rollouts.output(sampled), uids)
    paid = {
        number: sum(reward) for (number,), reward in zip(output["prompt_token_ids"], output["rewards"], strict=True)
    }
    missing = [0.0] * len(rows)
    for number, row in enumerate(rows):
        if number in paid:
            missing[number] = float(sum(s["number"] not in paid for s in steps if s["group"] == row["group"]))
    return {"rewards": [float(paid.get(number, 0.0)) for number in range(len(rows))], "missing": missing}


def _first_step(row: dict[str, Any]) -> dict[str, Any]:
    """The first step of the trajectory that ends with this row; its number is negative."""
    return {**row, "number": -1 - row["number"], "last_step": False, "reward": 0.0}


def _config() -> Config:
    return Config(CONFIG, knobs_at={path: path for path in FAMILIES[_FAMILY]})


def _several_prompts(inputs: Inputs) -> str:
    return "" if len(set(inputs.batch.group.tolist())) > 1 else "the batch has only one prompt"


def _boundary() -> Boundary:
    settings = FAMILIES[_FAMILY]
    form = PerRow("list")
    return one_call(
        path=PATH,
        stage="batch",
        call=sample_once,
        name="sampled",
        arguments={
            "owner": Constant(Function(TRAINER)),
            "cfg": _config(),
            "rows": sampled_rows(step_wise=False),
            "trajectory": Constant(Function(TRAJECTORY)),
        },
        produced_by={
            "rows": f"{GENERATED}; skyrl_gym_generator.py, generate, step_wise_trajectories: a row per step, whose "
            "uid is the instance_id of its trajectory"
        },
        reads=columns_read(step_wise=False),
        outputs={
            "reward": Output("B", "reward", at=Use("sampled")["rewards"], form=form),
            "steps missing from a prompt that trains": Output(
                "B", "count", "incomplete", at=Use("sampled")["missing"], form=form
            ),
        },
        settings={f"{_FAMILY}, too many prompts": settings},
        reach=", ".join(f"{path}={value}" for path, value in settings.items()),
        requires=(_several_prompts, *requirements(step_wise=False)),
    )
