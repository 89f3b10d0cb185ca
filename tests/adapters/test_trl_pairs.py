"""TRL's trainers of pairs, of distillation and of PPO, on a specimen of their call shapes in words of our own."""

from collections.abc import Callable

import pytest

from adapters.checks import answering, judged_at
from adapters.kit.round_trip import check_round_trips
from adapters.trl_pairs_specimen import TRANSFORMERS, files
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, distillation, ppo, preferences, self_play, unpaired
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001
from rl_sentinel.laws.row_order_matters import LAW as PRM001
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

Loads = Callable[..., Target]

DPO = "trl.trainer.dpo_trainer.DPOTrainer.compute_loss"
KTO = "trl.trainer.kto_trainer.KTOTrainer.compute_loss"
GKD = "trl.trainer.gkd_trainer.GKDTrainer"
PPO = "trl.trainer.ppo_trainer.PPOTrainer"


def _bound(target: Target) -> dict[tuple[str, str], Boundary]:
    """(path, setting) to boundary."""
    every = [b for module in (preferences, unpaired, self_play, distillation, ppo) for b in module.boundaries(target)]
    return {(b.path, setting): b for b in every if isinstance(b, Boundary) for setting in b.settings}


def _load(loads: Loads, **choices: str) -> Target:
    return loads(FRAMEWORK, files(**choices), {**overlay(), "transformers.py": TRANSFORMERS})


def test_all_boundaries_answer(loads: Loads) -> None:
    """Each form that the release names binds, and its outputs move."""
    target = _load(loads)
    boundaries = _bound(target)
    losses = {setting for path, setting in boundaries if path == DPO}
    assert losses == {
        "default",
        "ipo",
        *(f"{n}, {cut}" for n in ("default", "ipo") for cut in ("keep_start", "keep_end")),
    }
    assert {setting for path, setting in boundaries if path.startswith(PPO)} == {
        "default",
        "response masks",
        *(f"kl_penalty={name}" for name in ppo.PENALTIES),
    }
    assert answering(boundaries, target) == []


def test_every_call_reads_back(loads: Loads) -> None:
    """Columns, settings and arguments of every boundary survive the round trip."""
    target = _load(loads)
    check_round_trips(target, _bound(target).values())


@pytest.mark.parametrize("law", [REF001, SPL001, PRM001])
def test_pairs_in_micro_batches(loads: Loads, law: Law) -> None:
    """A sound loss on pairs is that of its formula, in parts and in any order of the pairs."""
    target = _load(loads)
    judgement = judged_at(law, _bound(target)[DPO, "default"], "default", target)
    assert judgement.found is None
    assert judgement.tried > 0


@pytest.mark.parametrize(("shift", "sound"), [("[:, 1:]", True), ("", False)])
def test_length_of_a_truncated_response(loads: Loads, shift: str, sound: bool) -> None:  # noqa: FBT001 - parametrised
    """A mean over tokens counts those that are scored: the first one kept of a sequence is not."""
    target = _load(loads, shift=shift)
    judgement = judged_at(REF001, _bound(target)[DPO, "ipo, keep_end"], "ipo, keep_end", target)
    assert (judgement.found is None) is sound
    assert judgement.tried > 0


@pytest.mark.parametrize(("detach", "sound"), [(".detach()", True), ("", False)])
def test_reference_point_of_kto(loads: Loads, detach: str, sound: bool) -> None:  # noqa: FBT001 - parametrised
    """No gradient flows to the KL term that responses are compared with."""
    target = _load(loads, detach=detach)
    judgement = judged_at(REF001, _bound(target)[KTO, "weighted"], "weighted", target)
    assert (judgement.found is None) is sound
    assert judgement.tried > 0


@pytest.mark.parametrize(("share", "sound"), [("beta", True), ("1 - beta", False)])
def test_share_of_the_teacher(loads: Loads, share: str, sound: bool) -> None:  # noqa: FBT001 - parametrised
    """The mixture has beta of the teacher."""
    target = _load(loads, share=share)
    judgement = judged_at(REF001, _bound(target)[f"{GKD}.generalized_jsd_loss", "beta 0.1"], "beta 0.1", target)
    assert (judgement.found is None) is sound
    assert judgement.tried > 0


@pytest.mark.parametrize(
    ("count", "sound"), [("math.ceil(len(queries) / size)", True), ("len(queries) // size", False)]
)
def test_last_mini_batch_of_a_pass(loads: Loads, count: str, sound: bool) -> None:  # noqa: FBT001 - parametrised
    """A pass keeps the rows of a last, smaller mini-batch."""
    target = _load(loads, count=count)
    judgement = judged_at(PLC004, _bound(target)[f"{PPO}.batched_forward_pass", "default"], "default", target)
    assert (judgement.found is None) is sound
    assert judgement.tried > 0
