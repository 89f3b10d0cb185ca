"""The limits of verl's data sets, on specimens of its trainers in words of our own."""

import json

import pytest

from adapters.checks import Loads, check_verdict, rewritten
from adapters.kit.round_trip import check_round_trips
from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, data_limits
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.setting_arrives_changed import LAW as CFG004

CREATE = """
    def NAME(data_paths, data_config, tokenizer, processor, is_train=True, max_samples=-1):
        raise RuntimeError("files are asked for")
"""

#: A trainer that is given no data sets, and one that makes them when it is constructed.
TRAINER = """
    class RayPPOTrainer:
        def _create_dataloader(self, train_dataset, val_dataset):
            from verl.trainer.main_ppo import create_rl_dataset

            data, made = self.config.data, []
            if train_dataset is None:
                for files, limit in ((data.train_files, TRAIN), (data.val_files, VALIDATION)):
                    made.append(create_rl_dataset(files, data, self.tokenizer, self.processor, max_samples=limit))
            self.lengths = [len(one) for one in made]
"""

ROLLOUTER = """
    from verl.trainer.main_ppo import create_rl_dataset

    class FullyAsyncRollouter:
        def __init__(self, config, tokenizer, role_worker_mapping, processor=None):
            if config.data.gen_batch_size != 1 or config.actor_rollout_ref.hybrid_engine:
                raise ValueError("the configuration is of another trainer")
            data = config.data
            self.train = create_rl_dataset(data.train_files, data, tokenizer, processor, True, TRAIN)
            self.validation = create_rl_dataset(data.val_files, data, tokenizer, processor, False, VALIDATION)
"""

SUPERVISED = """
    class SFTTrainer:
        def _build_dataset(self):
            data, of = self.config.data, self.model_config
            self.train = create_sft_dataset(data.train_files, data, of.tokenizer, of.processor, max_samples=TRAIN)
            self.validation = create_sft_dataset(data.val_files, data, of.tokenizer, None, max_samples=VALIDATION)
"""

SOUND = {"TRAIN": 'data.get("train_max_samples", -1)', "VALIDATION": 'data.get("val_max_samples", -1)'}

CONFIG: dict[str, dict[str, object]] = {"data": {}, "actor_rollout_ref": {}, "async_training": {}}


def _bound(loads: Loads, broken: dict[str, str] | None = None, *, limits: bool = True) -> tuple[Target, list[Boundary]]:
    rollouter = "verl/experimental/fully_async_policy/fully_async_rollouter.py"
    sources = {
        "verl/trainer/main_ppo.py": CREATE.replace("NAME", "create_rl_dataset"),
        "verl/trainer/ppo/ray_trainer.py": TRAINER,
        rollouter: ROLLOUTER,
        "verl/trainer/sft_trainer.py": CREATE.replace("NAME", "create_sft_dataset") + SUPERVISED,
    }
    sources = {path: rewritten(source, SOUND | (broken or {})) for path, source in sources.items()}
    tree = files() | sources
    for name in ("ppo_trainer", "sft_trainer_engine"):
        tree[f"verl/trainer/config/{name}.yaml"] = json.dumps(CONFIG)
    if limits:
        tree["verl/trainer/config/data/legacy_data.yaml"] = "train_max_samples: -1\n"
    target = loads(FRAMEWORK, tree, {"omegaconf/__init__.py": OMEGACONF})
    return target, [b for b in data_limits.boundaries(target) if isinstance(b, Boundary)]


def test_reads_back(loads: Loads) -> None:
    """Settings and arguments survive the round trip."""
    target, found = _bound(loads)
    words = ["_create_dataloader", "__init__", "_build_dataset"]
    assert [boundary.path.rpartition(".")[2] for boundary in found] == words
    check_round_trips(target, found)


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"TRAIN": "-1"},
        {"VALIDATION": 'data.get("train_max_samples", -1)'},
        {"TRAIN": 'data.get("max_samples", None)'},
    ],
)
def test_limits_that_do_not_arrive(loads: Loads, broken: dict[str, str]) -> None:
    """A limit is dropped, of the other data set, or read by another name."""
    target, found = _bound(loads, broken)
    for boundary in found:
        check_verdict(CFG004, boundary, "limits", target, found=bool(broken))


def test_releases_without_limits(loads: Loads) -> None:
    """Have no such boundary."""
    assert not _bound(loads, limits=False)[1]
