"""Boundaries of the v1 trainer's advantages for trajectories of several outputs, and of PF-PPO's resampling."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from typing_extensions import override

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.codecs import partition
from rl_sentinel.adapters.kit.forms import Cast, Padded
from rl_sentinel.adapters.kit.result_forms import RowSum
from rl_sentinel.adapters.kit.value_codecs import IfSet, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.advantages import CLAIMS, advantage_outputs, estimators
from rl_sentinel.adapters.verl.arguments import MASK_PRODUCER, trainer_data
from rl_sentinel.adapters.verl.dispatch import ESTIMATED, estimate, estimator_data, unused_of
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs, Sizes

OUTPUTS = "verl.trainer.ppo.v1.utils.compute_advantage_for_multi_trajectories"
RESAMPLE = "verl.trainer.ppo.core_algos.compute_pf_ppo_reweight_data"

#: An estimator that the function delegates to the dispatch, as it does with all except GRPO.
DELEGATED = "rloo"

#: Methods that weight the rows, by verl's names, with the numbers that they use.
METHODS: Mapping[str, Settings] = {"pow": {"weight_pow": 2.0}, "max_min": {}, "max_random": {}}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the advantages with GRPO and with an estimator to which the code delegates, then the resampling."""
    yield from try_bind(target, OUTPUTS, "advantage", lambda: _steps(target))
    yield from try_bind(target, RESAMPLE, "batch", lambda: [_resampled(target)])


def _steps(target: Target) -> Iterator[Boundary]:
    yield _outputs(target)
    if DELEGATED in estimators(target):
        yield _delegated(target)


def batch_keys(batch: Batch) -> list[str]:
    """One key per row: prompt, trajectory, and number of the output in the trajectory."""
    number = torch.where(batch.last_step, batch.step.max() + 1, batch.step)
    labels = (batch.group.tolist(), batch.trajectory.tolist(), number.tolist())
    return [f"prompt-{g}_{t}_{s}" for g, t, s in zip(*labels, strict=True)]


@dataclass(frozen=True, slots=True)
class TrajectoryKeys(Codec):
    """One key per row: prompt, trajectory and index of the output. Only the order of the indices matters."""

    @property
    @override
    def columns(self) -> frozenset[str]:
        return frozenset({"group", "trajectory", "step", "last_step"})

    @override
    def put(self, inputs: Inputs) -> list[str]:
        return batch_keys(inputs.batch)

    @override
    def sizes(self, value: list[str]) -> Sizes:
        return Sizes(rows=len(value))

    def take(self, value: list[str], sizes: Sizes) -> Mapping[str, Tensor]:  # noqa: ARG002 - the keys are enough
        """Partitions by prompt and trajectory; the last output is the one with the highest number."""
        uids, names, numbers = zip(*(key.rsplit("_", 2) for key in value), strict=True)
        number, trajectory = torch.tensor([int(n) for n in numbers]), partition(list(zip(uids, names, strict=True)))
        last = torch.stack([n == number[trajectory == t].max() for n, t in zip(number, trajectory, strict=True)])
        step = torch.where(last, (number - 1).clamp(min=0), number)
        return {"group": partition(uids), "trajectory": trajectory, "step": step, "last_step": last}

    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        """The columns after a round trip: the last output has the highest number."""
        names = list(zip(batch.group.tolist(), batch.trajectory.tolist(), strict=True))
        step = torch.where(batch.last_step, batch.step.max(), batch.step)
        labels = {"group": partition(batch.group), "trajectory": partition(names), "step": step}
        return {**labels, "last_step": batch.last_step}


def _step(target: Target, name: str) -> Step:
    data = estimator_data(target, name, OUTPUTS)
    step = estimate(target, OUTPUTS, name, data)
    return replace(step, arguments={**step.arguments, "batch_keys": TrajectoryKeys()})


def _outputs(target: Target) -> Boundary:
    claimed = "utils.py, docstring: only the final output takes part, and the result is broadcast to the others"
    return Boundary(
        path=OUTPUTS,
        stage="advantage",
        steps=(_step(target, "grpo"),),
        unused=unused_of("grpo"),
        outputs=advantage_outputs(ESTIMATED["advantages"], ESTIMATED["returns"]),
        settings={"grpo": {}},
        claims=CLAIMS["grpo"] | claims(claimed, trajectories="step-wise"),
        reach="trainer.use_v1=True, algorithm.adv_estimator=grpo",
    )


def _delegated(target: Target) -> Boundary:
    return Boundary(
        path=OUTPUTS,
        stage="advantage",
        steps=(_step(target, DELEGATED),),
        unused=unused_of(DELEGATED) | {"trajectory", "step", "last_step"},
        outputs=advantage_outputs(ESTIMATED["advantages"], ESTIMATED["returns"]),
        settings={DELEGATED: {}},
        claims=CLAIMS[DELEGATED],
        reach=f"trainer.use_v1=True, algorithm.adv_estimator={DELEGATED}",
    )


def _has_response(inputs: Inputs) -> str:
    return "" if bool(inputs.batch.valid.any()) else "all responses are empty, so there is nothing to resample"


def _resampled(target: Target) -> Boundary:
    batch = Use("resampled").attribute("batch")
    return one_call(
        path=RESAMPLE,
        stage="batch",
        call=RESAMPLE,
        name="resampled",
        arguments={
            "data": trainer_data(target, ""),
            "reweight_method": Knob("reweight_method"),
            "weight_pow": IfSet("weight_pow"),
        },
        produced_by={"data": MASK_PRODUCER},
        unused=frozenset({"token", "group"}),
        outputs={
            "reward": Output("B", "reward", "reward", at=batch["token_level_scores"], form=RowSum()),
            "mask": Output("B T", "", "mask", at=batch["response_mask"], form=Cast(Padded(), torch.float32)),
        },
        settings={method: {"reweight_method": method, **number} for method, number in METHODS.items()},
        reach="algorithm.adv_estimator=gae algorithm.use_pf_ppo=True",
        requires=(_has_response,),
    )
