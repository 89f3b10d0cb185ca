"""AReaL's data-parallel transport, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.areal.test_batches import DATA as PADDED
from adapters.checks import Loads, answering, check_verdict
from adapters.kit.round_trip import check_round_trips
from rl_sentinel.adapters.areal import FRAMEWORK, data_parallel
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.columns_out_of_step import LAW as DAT001
from rl_sentinel.laws.sample_lost_or_repeated import LAW as DAT002
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

GATHER = """
    import torch.distributed as dist

    def all_gather_tensor_container(data, group=None):
        every = [None] * dist.get_world_size(group)
        dist.all_gather_object(every, data, group=group)
        return every

    def gather_everywhere(data, group=None):
        return all_gather_tensor_container(data)[: dist.get_world_size(group)]
"""

REDISTRIBUTED = """
    from types import SimpleNamespace

    import torch.distributed as dist
    from areal.utils.data import GATHER as gathered, concat_padded_tensors

    def redistribute_trajectories(trajectories, group=None):
        every = [one for part in gathered(trajectories, group) for one in part]
        size = dist.get_world_size(group)
        by_length = sorted(range(len(every)), key=lambda n: -int(every[n]["attention_mask"].sum()))
        own = by_length[dist.get_rank(group) :: size] if EVERY else by_length[: len(every) // size]
        return SimpleNamespace(data=[CUT(every[n]) for n in own])

    def without_padding(one):
        width = int(one["attention_mask"].sum(1).max())
        return {key: x[:, :width] if getattr(x, "ndim", 0) > 1 else x for key, x in one.items()}

    def images_of_first(one):
        images = one.get("multi_modal_input", [])
        return without_padding(one) | {"multi_modal_input": images[:1] * len(images)}

    def shortest(one):
        width = int(one["attention_mask"].sum(1).min())
        return {key: x[:, :width] if x.dim() > 1 else x for key, x in one.items()}

    def mask_alone(one):
        wide = {key: x.repeat(1, 2) if x.dim() > 1 else x for key, x in one.items()}
        return wide | {"attention_mask": one["attention_mask"]}
"""

CONTROLLER = """
    class TrainController:
        @property
        def parallel_strategy(self):
            return self.train_alloc.parallel

        def _prepare_dispatch(self, items):
            size = self.parallel_strategy.dp_size
            order = sorted(range(len(items)), key=lambda n: -int(items[n]["attention_mask"].sum()))
            places = [order[rank::size] for rank in range(size)]
            return [[[items[n] for n in part] for part in places]], {}, places

        def _collect_results(self, results, places):
            merged = [None] * sum(map(len, places))
            for part, own in zip(results, places):
                for n, one in zip(own if ORDERED else sorted(own), part):
                    merged[n] = one
            return merged
"""

#: Padding of trajectories with images, in the place of the padding without.
WITH_IMAGES = """
    def concat_padded_tensors(parts):
        images = [one for part in parts for one in part.get("multi_modal_input", [])]
        tensors = [{key: x for key, x in part.items() if key != "multi_modal_input"} for part in parts]
        return padded(tensors) | ({"multi_modal_input": images} if images else {})
"""

SOUND = {"EVERY": "True", "CUT": "without_padding", "ORDERED": "True", "GATHER": "all_gather_tensor_container"}

#: Last part of the path, or of its first function, of each boundary.
_RANKS, _CONTROLLER = "redistribute_trajectories", "_collect_results"


def _bound(loads: Loads, **words: str) -> tuple[Target, dict[str, Boundary]]:
    files = {
        "areal/__init__.py": "",
        "areal/utils/data.py": PADDED.replace("ORDER", "range(len(sizes))") + GATHER,
        "areal/infra/dist_rollout.py": REDISTRIBUTED,
        "areal/infra/controller/train_controller.py": CONTROLLER,
    }
    for name, word in {**SOUND, **words}.items():
        files = {path: source.replace(name, word) for path, source in files.items()}
    target = loads(FRAMEWORK, files)
    every = [b for b in data_parallel.boundaries(target) if isinstance(b, Boundary)]
    return target, {b.path.rpartition(".")[2]: b for b in every}


def _with_images(loads: Loads, cut: str) -> tuple[Target, dict[str, Boundary]]:
    files = {
        "areal/__init__.py": "",
        "areal/utils/data.py": PADDED.replace("ORDER", "range(len(sizes))").replace(
            "def concat_padded_tensors", "def padded"
        )
        + WITH_IMAGES
        + GATHER,
        "areal/infra/dist_rollout.py": REDISTRIBUTED.replace("EVERY", "True")
        .replace("CUT", cut)
        .replace("GATHER", SOUND["GATHER"]),
        "areal/infra/controller/train_controller.py": CONTROLLER.replace("ORDERED", "True"),
    }
    target = loads(FRAMEWORK, files)
    every = [b for b in data_parallel.boundaries(target) if isinstance(b, Boundary) and "images" in b.settings]
    return target, {b.path.rpartition(".")[2]: b for b in every}


@pytest.mark.parametrize(
    ("name", "cut", "found"),
    [
        (_RANKS, "without_padding", False),
        (_CONTROLLER, "without_padding", False),
        (_RANKS, "images_of_first", True),
    ],
)
def test_images_of_rows(loads: Loads, name: str, cut: str, *, found: bool) -> None:
    """Each trajectory keeps its images, or all get those of the first."""
    target, every = _with_images(loads, cut)
    assert answering({(name, "images"): every[name]}, target) == []
    check_verdict(DAT001, every[name], "images", target, found=found)


def test_answers(loads: Loads) -> None:
    target, every = _bound(loads)
    assert set(every) == {_RANKS, _CONTROLLER}
    assert answering({(name, "default"): boundary for name, boundary in every.items()}, target) == []


@pytest.mark.parametrize("law", [PLC004, DAT002], ids=lambda law: law.code)
@pytest.mark.parametrize("name", [_RANKS, _CONTROLLER])
def test_all_rows_once(loads: Loads, name: str, law: Law) -> None:
    target, every = _bound(loads)
    check_verdict(law, every[name], "default", target, found=False)


@pytest.mark.parametrize(
    ("words", "name", "law"),
    [
        ({"EVERY": "False"}, _RANKS, DAT002),
        ({"GATHER": "gather_everywhere"}, _RANKS, DAT002),
        ({"CUT": "shortest"}, _RANKS, PLC004),
        ({"CUT": "mask_alone"}, _RANKS, PLC004),
        ({"ORDERED": "False"}, _CONTROLLER, PLC004),
    ],
    ids=[
        "ranks share rows",
        "gathered from all ranks",
        "cut to the shortest",
        "mask cut alone",
        "merged in another order",
    ],
)
def test_rows_that_are_lost_or_moved(loads: Loads, words: dict[str, str], name: str, law: Law) -> None:
    target, every = _bound(loads, **words)
    check_verdict(law, every[name], "default", target, found=True)


@pytest.mark.slow
def test_round_trip(loads: Loads) -> None:
    target, every = _bound(loads)
    check_round_trips(target, list(every.values()))
