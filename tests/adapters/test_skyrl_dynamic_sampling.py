"""SkyRL's dynamic sampling, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, answering, by_setting, check_verdict, judged_at, rewritten, the_bound
from adapters.kit.round_trip import check_round_trips
from rl_sentinel.adapters.skyrl import FRAMEWORK, cut_trajectories, dynamic_sampling
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.columns_out_of_step import LAW as DAT001
from rl_sentinel.laws.differs_from_reference import LAW as REF001

CONFIG = """
    from types import SimpleNamespace

    def SkyRLTrainConfig():
        sampling = SimpleNamespace(type=None, min_replace_ratio=0.3, max_sample_batches=30)
        trainer = SimpleNamespace(train_batch_size=8, algorithm=SimpleNamespace(dynamic_sampling=sampling))
        engine = SimpleNamespace(enable_return_routed_experts=False)
        generator = SimpleNamespace(n_samples_per_prompt=5, step_wise_trajectories=False, inference_engine=engine)
        return SimpleNamespace(trainer=trainer, generator=generator)
"""

BASE = """
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class TrajectoryID:
        instance_id: str
        repetition_id: int
"""

TRAINER = """
    SHARED = ("rollout_metrics",)

    def taken(output, rows):
        return {
            name: column if name in SHARED LEFT else [column[row] for row in rows]
            for name, column in output.items() KEPT
        }

    def joined(first, second):
        return {name: column if name in SHARED else [*column, *second[name]] for name, column in first.items()}

    def informative(output, uids):
        last = output.get("is_last_step") or [True] * len(uids)
        outcomes = {}
        for reward, uid, counts in zip(output["rewards"], uids, last):
            if counts OR_ANY:
                outcomes.setdefault(uid, set()).add(sum(reward) if isinstance(reward, list) else reward)
        return [uid for uid, rewards in outcomes.items() if len(rewards) > 1]

    class RayPPOTrainer:
        def handle_dynamic_sampling(self, generator_output, uids):
            good = informative(generator_output, uids)
            if self.cfg.trainer.algorithm.dynamic_sampling.type == "replace":
                rows = []
                for uid in dict.fromkeys(uids):
                    source = uid if uid in good else good[0]
                    rows += [row for row, other in enumerate(uids) if other == source]
                return taken(generator_output, rows), [uids[row] for row in rows], False
            rows = [row for row, uid in enumerate(uids) if uid in good]
            output, kept = taken(generator_output, rows), [uids[row] for row in rows]
            if self.dynamic_sampling_state is not None:
                before, uids_before = self.dynamic_sampling_state
                output, kept = joined(before, output), [*uids_before, *kept]
            self.dynamic_sampling_state = output, kept
            size = self.cfg.trainer.train_batch_size
            if len(set(kept)) < size:
                return generator_output, uids, True
            rows = [row for row in range(len(kept)) if WITHIN]
            return taken(output, rows), [kept[row] for row in rows], False
"""

SOUND = {" LEFT": "", " OR_ANY": "", " KEPT": "", " WITHIN": " kept[row] in list(dict.fromkeys(kept))[:size]"}


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    source = rewritten(TRAINER, {**SOUND, **{f" {word}": code for word, code in broken.items()}})
    files = {
        "skyrl/train/config.py": CONFIG,
        "skyrl/train/generators/base.py": BASE,
        "skyrl/train/trainer.py": source,
    }
    target = loads(FRAMEWORK, files)
    return target, by_setting(dynamic_sampling.boundaries(target))


def test_sound(loads: Loads) -> None:
    """Every family answers, keeps informative prompts alone, and keeps the columns of a row together."""
    target, found = _bound(loads)
    assert list(found) == list(dynamic_sampling.FAMILIES)
    assert answering({(name, name): one for name, one in found.items()}, target) == []
    for name, boundary in found.items():
        for law in (DAT001, REF001):
            judgement = judged_at(law, boundary, name, target)
            assert judgement.tried > 0
            assert judgement.found is None, (name, law.code)


@pytest.mark.slow
def test_round_trips(loads: Loads) -> None:
    target, found = _bound(loads)
    check_round_trips(target, found.values())


@pytest.mark.parametrize(
    ("law", "setting", "broken"),
    [
        (DAT001, "replace", {"LEFT": ' or name == "rewards"'}),
        (DAT001, "replace", {"LEFT": ' or name == "rollout_logprobs"'}),
        (DAT001, "replace, step-wise", {"LEFT": ' or name == "trajectory_ids"'}),
        (DAT001, "replace, routed experts", {"LEFT": ' or name == "rollout_expert_indices"'}),
        (DAT001, "filter, routed experts", {"KEPT": ' if name != "rollout_expert_indices"'}),
        (REF001, "filter, step-wise", {"OR_ANY": " or True"}),
    ],
)
def test_broken(loads: Loads, law: Law, setting: str, broken: dict[str, str]) -> None:
    """A column that stays where it was, and steps that are compared as outcomes."""
    target, found = _bound(loads, **broken)
    check_verdict(law, found[setting], setting, target, found=True)


@pytest.mark.parametrize(
    ("within", "broken"),
    [
        ("kept[row] in list(dict.fromkeys(kept))[:size]", False),
        ("row < size * self.cfg.generator.n_samples_per_prompt", True),
    ],
)
def test_batch_that_is_cut_between_prompts(loads: Loads, within: str, *, broken: bool) -> None:
    """A batch of whole prompts, and one of as many rows as it would have with one step per trajectory."""
    target, _ = _bound(loads, WITHIN=f" {within}")
    boundary = the_bound(cut_trajectories.boundaries(target))
    (setting,) = boundary.settings
    assert answering({(setting, setting): boundary}, target) == []
    check_verdict(DAT001, boundary, setting, target, found=broken)
