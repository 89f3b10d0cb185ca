"""SkyRL's calls of workers on a mesh, on a specimen of its call shape in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, rewritten, the_only
from adapters.kit.round_trip import check_calls
from adapters.test_skyrl_rollout import CONFIG, PREPROCESS
from rl_sentinel.adapters.skyrl import FRAMEWORK, mesh_dispatch
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

BATCH = """
    import torch

    class TrainingInputBatch(dict):
        metadata = None

        def __len__(self):
            return len(self["response_mask"])

        def chunk(self, size):
            starts = range(0, len(self), size)
            return [TrainingInputBatch({k: v[i : i + size] for k, v in self.items()}) for i in starts]

    class TrainingOutputBatch(dict):
        @classmethod
        def cat(cls, parts):
            return cls({key: torch.cat([part[key] for part in parts]) for key in parts[0]})
"""

DISPATCH = """
    from dataclasses import dataclass
    import ray
    from skyrl.backends.skyrl_train.training_batch import TrainingOutputBatch

    @dataclass
    class MeshRank:
        dp: int
        sp: int
        tp: int
        pp: int
        dp_size: int
        FIELD

    @dataclass
    class ActorInfo:
        handle: object
        rank: MeshRank

    class MeshDispatch:
        @classmethod
        def dispatch(cls, actors, method, data):
            parts = [ray.put(part) for part in data.chunk(len(data) // actors[0].rank.dp_size)]
            return [getattr(actor.handle, method).remote(parts[actor.rank.PART]) for actor in actors]

        @classmethod
        def validate_dispatch_args(cls, *args, **kwargs):
            return args, kwargs

    def concatenate_outputs_after_mesh_dispatch(actors, outputs):
        pairs = [(a.rank, out) for a, out in zip(actors, outputs) if a.rank.pp == STAGE and a.rank.tp == a.rank.sp == 0]
        return TrainingOutputBatch.cat([out for _, out in sorted(pairs, key=lambda pair: ORDER)])
"""

TRAINER = """
    class RayPPOTrainer:
        def compute_advantages_and_returns(self, data): return data
"""

SOUND = {"FIELD": "pp_size: int", "PART": "dp", "STAGE": "a.rank.pp_size - 1", "ORDER": "pair[0].dp"}


def _bound(loads: Loads, **broken: str) -> tuple[Target, Boundary]:
    source = rewritten(DISPATCH, SOUND | broken)
    folder = "skyrl/backends/skyrl_train"
    tree = {
        f"{folder}/training_batch.py": BATCH,
        f"{folder}/distributed/dispatch.py": source,
        "skyrl/train/config.py": CONFIG,
        "skyrl/train/dataset/preprocess.py": PREPROCESS,
        "skyrl/train/trainer.py": TRAINER,
    }
    target = loads(FRAMEWORK, tree)
    return target, the_only(mesh_dispatch.boundaries(target))


def test_reads_back(loads: Loads) -> None:
    """The boundary answers, and its call is read back."""
    target, boundary = _bound(loads)
    check_calls(target, [boundary])


@pytest.mark.parametrize(
    ("broken", "found"),
    [
        ({}, False),
        ({"FIELD": "pass", "STAGE": "0"}, False),  # without pipeline stages
        ({"PART": "tp"}, True),
        ({"STAGE": "0"}, True),
        ({"ORDER": "-pair[0].dp"}, True),
    ],
)
def test_rows_of_ranks(loads: Loads, broken: dict[str, str], *, found: bool) -> None:
    """Rows by another rank, the outputs of the first stage, parts in another order."""
    target, boundary = _bound(loads, **broken)
    check_verdict(PLC004, boundary, "default", target, found=found)
