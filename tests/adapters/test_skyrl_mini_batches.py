"""SkyRL's mini-batches of prompts, on a specimen of its call shapes in words of our own."""

import pytest
import torch

from adapters.checks import Loads, answering, by_setting, check_verdict
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.skyrl import FRAMEWORK, mini_batches
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.metric_fits_no_definition import LAW as MET001
from rl_sentinel.laws.sample_lost_or_repeated import LAW as DAT002
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

CONFIG = """
    from types import SimpleNamespace

    def SkyRLTrainConfig():
        trainer = SimpleNamespace(train_batch_size=8, policy_mini_batch_size=8, critic_mini_batch_size=8)
        generator = SimpleNamespace(n_samples_per_prompt=5, step_wise_trajectories=False)
        return SimpleNamespace(trainer=trainer, generator=generator)
"""

GENERATORS = """
    from dataclasses import dataclass

    @dataclass
    class TrajectoryID:
        instance_id: str
        repetition_id: int
"""

DISPATCH = """
    import ray

    class MeshDispatch:
        @classmethod
        def stage_chunks(cls, dp_size, data, boundaries):
            return [[ray.put({key: x[low:high] for key, x in data.items()})] for low, high in boundaries]
"""

TRAINER = """
    import torch

    class Data(dict):
        metadata = None

    class RayPPOTrainer:
        def convert_to_training_input(self, generator_output, uids):
            if self.cfg.generator.step_wise_trajectories:
                assert [one.instance_id for one in generator_output["trajectory_ids"]] == uids
            lengths = [len(one) for one in generator_output["response_ids"]]
            data = Data(loss_mask=torch.ones(len(lengths), max(lengths)))
            counted = [n for n, last in zip(lengths, generator_output.get("is_last_step", lengths)) if COUNTED]
            mean = sum(counted) / len(lengths)
            data.metadata = {"uids": uids, "avg_response_length": mean}
            return data

        def _execute_training_step(self, model, data):
            uids, size = data.metadata["uids"], self.cfg.trainer.policy_mini_batch_size
            starts = [n for n, uid in enumerate(uids) if n == 0 or uid != uids[n - 1]] if BY_PROMPT else FIXED
            starts = starts[::size]
            boundaries = list(zip(starts, [*starts[1:], len(uids) - LEFT_OUT]))
            for parts in self.dispatch.stage_data(model, data, boundaries):
                self.dispatch.forward_backward_from_staged(model, parts)
                self.dispatch.optim_step(model)
"""

SOUND = {
    "COUNTED": "True",
    "BY_PROMPT": "True",
    "FIXED": "list(range(0, len(uids), self.cfg.generator.n_samples_per_prompt))",
    "LEFT_OUT": "0",
}


def _bound(loads: Loads, **words: str) -> tuple[Target, dict[str, Boundary]]:
    files = {
        "skyrl/__init__.py": "",
        "skyrl/train/config.py": CONFIG,
        "skyrl/train/generators/base.py": GENERATORS,
        "skyrl/backends/skyrl_train/distributed/dispatch.py": DISPATCH,
        "skyrl/train/trainer.py": TRAINER,
    }
    for name, word in {**SOUND, **words}.items():
        files = {path: source.replace(name, word) for path, source in files.items()}
    target = loads(FRAMEWORK, files)
    return target, by_setting(mini_batches.boundaries(target))


def test_answers(loads: Loads) -> None:
    target, every = _bound(loads)
    assert set(every) == {"responses", "step-wise", "length of responses", "length of steps"}
    assert answering({("trainer", setting): boundary for setting, boundary in every.items()}, target) == []


@pytest.mark.parametrize(
    ("law", "setting"),
    [
        (PLC004, "responses"),
        (DAT002, "responses"),
        (PLC004, "step-wise"),
        (DAT002, "step-wise"),
        (MET001, "length of responses"),
        (MET001, "length of steps"),
    ],
)
def test_sound(loads: Loads, law: Law, setting: str) -> None:
    target, every = _bound(loads)
    check_verdict(law, every[setting], setting, target, found=False)


@pytest.mark.parametrize(
    ("words", "law", "setting"),
    [
        ({"BY_PROMPT": "False"}, PLC004, "step-wise"),
        ({"LEFT_OUT": "1"}, DAT002, "responses"),
        ({"COUNTED": "last"}, MET001, "length of steps"),
    ],
    ids=["mini-batches of a fixed number of rows", "last row", "last steps only"],
)
def test_faults(loads: Loads, words: dict[str, str], law: Law, setting: str) -> None:
    target, every = _bound(loads, **words)
    check_verdict(law, every[setting], setting, target, found=True)


def test_mini_batches_of_a_fixed_number_of_rows_fit_equal_groups(loads: Loads) -> None:
    target, every = _bound(loads, BY_PROMPT="False")
    check_verdict(PLC004, every["responses"], "responses", target, found=False)


def test_a_prompt_is_one_trajectory() -> None:
    batch = mini_batches.one_trajectory_per_prompt(batch_of(torch.ones(4, 1).bool(), group=torch.tensor([5, 5, 5, 3])))
    assert batch.trajectory.tolist() == [0, 0, 0, 1]
    assert batch.step.tolist() == [0, 1, 2, 0]
    assert batch.last_step.tolist() == [False, False, True, True]


def test_round_trip(loads: Loads) -> None:
    target, every = _bound(loads)
    for boundary in every.values():
        check_round_trip(target, boundary)
