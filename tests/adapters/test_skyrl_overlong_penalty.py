"""The overlong penalty of SkyRL's DAPO trainer, on a specimen of its call shape in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, the_only
from adapters.kit.round_trip import check_round_trips
from rl_sentinel.adapters.skyrl import FRAMEWORK, overlong_penalty
from rl_sentinel.laws.differs_from_reference import LAW as REF001

CONFIG = """
    from types import SimpleNamespace

    def SkyRLTrainConfig():
        trainer = SimpleNamespace(train_batch_size=8, policy_mini_batch_size=8, algorithm=SimpleNamespace())
        sampling = SimpleNamespace(max_generate_length=1)
        return SimpleNamespace(trainer=trainer, generator=SimpleNamespace(sampling_params=sampling))
"""

TRAINER = """
    class RayPPOTrainer:
        def __init__(self):
            raise RuntimeError("a cluster was started")

        def postprocess_generator_output(self, output, uids):
            pairs = zip(output["response_ids"], output["rewards"])
            return {**output, "rewards": [[0.0] * (len(ids) - 1) + [reward] for ids, reward in pairs]}, uids
"""

EXAMPLE = """
    from skyrl.train.trainer import RayPPOTrainer

    class DAPOTrainer(RayPPOTrainer):
        def postprocess_generator_output(self, output, uids):
            options, most = self.cfg.trainer.algorithm, self.cfg.generator.sampling_params.max_generate_length
            for row, ids in enumerate(output["response_ids"]):
                over = LENGTH + options.overlong_buffer_len - most
                if over > 0:
                    share = over / options.overlong_buffer_len
                    output["rewards"][row] -= share * options.overlong_buffer_penalty_factor
            return super().postprocess_generator_output(output, uids)
"""


def _files(length: str) -> dict[str, str]:
    return {
        "skyrl/train/config.py": CONFIG,
        "skyrl/train/trainer.py": TRAINER,
        "examples/train/algorithms/dapo/main_dapo.py": EXAMPLE.replace("LENGTH", length),
    }


@pytest.mark.parametrize(("length", "found"), [("len(ids)", False), ("len(ids) - 1", True), ("min(len(ids), 3)", True)])
def test_penalty_of_long_responses(loads: Loads, length: str, found: bool) -> None:
    """A penalty that begins one token late, or stops to rise, is found; rewards changed in place are not."""
    target = loads(FRAMEWORK, _files(length))
    boundary = the_only(overlong_penalty.boundaries(target))
    check_round_trips(target, [boundary])
    check_verdict(REF001, boundary, "overlong", target, found=found)


@pytest.mark.parametrize("item", ["overlong_buffer.{}", "overlong_buffer['{}']"])
def test_section_of_earlier_releases(loads: Loads, item: str) -> None:
    """The numbers are in a section, whose values the trainer reads as attributes or as items."""
    texts, place = _files("len(ids)"), "examples/train/algorithms/dapo/main_dapo.py"
    for name in ("len", "penalty_factor"):
        texts[place] = texts[place].replace(f"overlong_buffer_{name}", item.format(name))
    target = loads(FRAMEWORK, texts)
    check_verdict(REF001, the_only(overlong_penalty.boundaries(target)), "overlong", target, found=False)


def test_release_without_examples(loads: Loads) -> None:
    """A package has no examples."""
    files = {path: text for path, text in _files("len(ids)").items() if path.startswith("skyrl/")}
    assert list(overlong_penalty.boundaries(loads(FRAMEWORK, files))) == []
