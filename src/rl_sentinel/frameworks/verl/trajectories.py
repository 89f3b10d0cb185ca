"""verl's newest trainer: advantages of trajectories with several outputs; and the resampling of PF-PPO."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.errors import NotApplicable, Unbindable
from rl_sentinel.frameworks.target import Target
from rl_sentinel.frameworks.verl.advantages import CLAIMS, estimators
from rl_sentinel.frameworks.verl.columns import absent
from rl_sentinel.frameworks.verl.dispatch import advantages, data_of, reads_of

OUTPUTS = "verl.trainer.ppo.v1.utils.compute_advantage_for_multi_trajectories"
RESAMPLE = "verl.trainer.ppo.core_algos.compute_pf_ppo_reweight_data"

#: Columns that say which outputs belong to one trajectory, and in which order.
_STEPS = frozenset({"trajectory", "step", "last_step"})

#: An estimator that the step hands on to the dispatch, as it does with all but one.
DELEGATED = "rloo"

#: Ways of weighing a row, by verl's own names.
METHODS = ("pow", "max_min", "max_random")


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The newest trainer's step, one setting per kind of estimator; then the resampling."""
    for path, stage in ((OUTPUTS, "advantage"), (RESAMPLE, "batch")):
        try:
            target.find(path)
        except Unbindable as why:
            if not absent(why):
                yield Unbound(path, "advantage" if stage == "advantage" else "batch", str(why))
            continue
        if path == RESAMPLE:
            yield _resampled(target)
            continue
        yield _outputs(target)
        if DELEGATED in estimators(target):
            yield _delegated(target)


def keys(batch: Batch) -> list[str]:
    """One key per row: prompt, trajectory, and the number of the output in it."""
    number = torch.where(batch.last_step, batch.step.max() + 1, batch.step)
    labels = (batch.group.tolist(), batch.trajectory.tolist(), number.tolist())
    return [f"prompt-{g}_{t}_{s}" for g, t, s in zip(*labels, strict=True)]


def _answer(target: Target, batch: Batch, name: str, settings: Settings) -> Mapping[str, Tensor]:
    data = data_of(target, batch, OUTPUTS)
    data = advantages(target, data, name, settings, OUTPUTS, batch_keys=keys(batch))
    return {"advantage": data.batch["advantages"].float(), "returns": data.batch["returns"].float()}


_ADVANTAGES = {
    "advantage": Output("B T", "reward", "advantage"),
    "returns": Output("B T", "reward", "returns"),
}


def _outputs(target: Target) -> Boundary:
    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        return _answer(target, batch, "grpo", settings)

    said = "utils.py, docstring: only the final output takes part, and the result is broadcast to the others"
    return Boundary(
        path=OUTPUTS,
        stage="advantage",
        call=call,
        reads=reads_of("grpo") | _STEPS,
        outputs=_ADVANTAGES,
        settings={"grpo": {}},
        claims=CLAIMS["grpo"] | claims(said, trajectories="step-wise"),
        reach="trainer.use_v1=True algorithm.adv_estimator=grpo",
    )


def _delegated(target: Target) -> Boundary:
    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        return _answer(target, batch, DELEGATED, settings)

    return Boundary(
        path=OUTPUTS,
        stage="advantage",
        call=call,
        reads=reads_of(DELEGATED),
        outputs=_ADVANTAGES,
        settings={DELEGATED: {}},
        claims=CLAIMS[DELEGATED],
        reach=f"trainer.use_v1=True algorithm.adv_estimator={DELEGATED}",
    )


def _resampled(target: Target) -> Boundary:
    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        if not bool(batch.valid.any()):
            message = "a batch without a response has nothing to sample from"
            raise NotApplicable(message)
        data = data_of(target, batch, RESAMPLE)
        data = target.call(RESAMPLE, data, **settings)
        return {"reward": data.batch["token_level_scores"].sum(-1), "mask": data.batch["response_mask"].float()}

    return Boundary(
        path=RESAMPLE,
        stage="batch",
        call=call,
        reads=frozenset({"reward", "token_reward", "length", "mask"}),
        outputs={"reward": Output("B", "reward", "reward"), "mask": Output("B T", "", "mask")},
        settings={method: {"reweight_method": method, "weight_pow": 2.0} for method in METHODS},
        reach="algorithm.adv_estimator=gae algorithm.use_pf_ppo=True",
    )
