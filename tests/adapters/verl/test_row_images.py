"""Images of the rows of verl's micro-batches, on specimens of a worker and an engine in words of our own."""

import pytest

from adapters.checks import Loads, by_setting, check_verdict, rewritten
from adapters.kit.round_trip import check_calls
from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl.test_engine_passes import engine_tree
from adapters.verl.worker_specimen import update_files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, row_images
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.columns_out_of_step import LAW as DAT001
from rl_sentinel.laws.valid_input_raises import LAW as RAI001

ACTOR = """
    import torch

    class DataParallelPPOActor:
        def __init__(self, config, actor_module, actor_optimizer):
            self.config, self.actor_module, self.actor_optimizer = config, actor_module, actor_optimizer

        def _forward_micro_batch(self, micro_batch, temperature):
            rows, images = micro_batch["multi_modal_inputs"], {}
            for key in KEYS:
                images[key] = torch.cat([row[key] for row in rows WITH])
            labels = micro_batch["responses"]
            places, mask = micro_batch["position_ids"], micro_batch["attention_mask"]
            places = places.transpose(0, 1) if places.dim() == 3 else places
            images |= {"position_ids": AXES, "attention_mask": mask}
            logits = self.actor_module(input_ids=micro_batch["input_ids"], **images).logits / temperature
            scores = logits[:, -labels.shape[1] - 1 : -1].log_softmax(-1)
            return -(scores.exp() * scores).sum(-1), scores.gather(-1, labels.unsqueeze(-1)).squeeze(-1)

        def compute_log_prob(self, data, calculate_entropy):
            size, images = data.meta_info["micro_batch_size"], data.non_tensor_batch["multi_modal_inputs"]
            order = list(range(len(data)))[::-1 if data.meta_info["use_dynamic_bsz"] else 1]
            scored = []
            for start in range(0, len(data), size):
                rows = order[start : start + size]
                part = {name: column[rows] for name, column in data.batch.items()}
                part["multi_modal_inputs"] = [images[row] for row in PLACES]
                scored.append(self._forward_micro_batch(part, data.meta_info["temperature"]))
            entropys, log_probs = (torch.cat(part) for part in zip(*scored))
            return log_probs, entropys
"""

SOUND = {
    "KEYS": "{key for row in rows for key in row}",
    "WITH": "if key in row",
    "PLACES": "rows",
    "AXES": "places",
}

DATA = """
    class RLHFDataset:
        def __getitem__(self, place):
            return {"multi_modal_inputs": {}} if self.processor is not None else {}
"""

#: Places of the specimen of another test, whose engine also passes images here.
TRAINER, ENGINE = "verl/trainer/ppo/ray_trainer.py", "verl/workers/engine/fsdp/transformer_impl.py"

#: What the engine does before the forward pass of a micro-batch.
SELECT = """rows_of_images = [data["images"][i] for i in IMAGES]
                keys = {key for row in rows_of_images for key in row}  # of multi_modal_inputs
                self.seen = {k: torch.cat([row[k] for row in rows_of_images if k in row]) for k in keys}
                """


def _worker(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    source = rewritten(ACTOR, SOUND | broken)
    tree = {"verl/workers/actor/dp_actor.py": source, "verl/utils/dataset/rl_dataset.py": DATA}
    return _bound(loads(FRAMEWORK, update_files() | tree))


def _engine(loads: Loads, images: str) -> tuple[Target, dict[str, Boundary]]:
    tree, before = engine_tree(), "for name, values in self.forward_step("
    passed = '{"rows": rows, "images": batch.non_tensor_batch["multi_modal_inputs"]}'
    tree[TRAINER] = tree[TRAINER].replace('{"rows": rows}', passed)
    engine = tree[ENGINE].replace(before, SELECT.replace("IMAGES", images) + before)
    tree[ENGINE] = engine.replace("position_ids=places[None]", "position_ids=places[None], **self.seen")
    return _bound(loads(FRAMEWORK, tree, {"omegaconf/__init__.py": OMEGACONF}))


def _bound(target: Target) -> tuple[Target, dict[str, Boundary]]:
    return target, by_setting(row_images.boundaries(target))


@pytest.mark.slow
def test_a_worker_reads_back(loads: Loads) -> None:
    """All boundaries of a worker answer, and their calls are read back."""
    target, made = _worker(loads)
    ends = ("default", "dynamic batch size")
    assert set(made) == {f"{family}, {end}" for family in row_images.FAMILIES for end in ends}
    check_calls(target, made.values())


def test_an_engine_reads_back(loads: Loads) -> None:
    """The boundary of an engine answers, and its call is read back; the specimen knows one axis of positions."""
    target, made = _engine(loads, "order[start : start + size]")
    assert set(made) == {"images, packed", "axes of positions, packed"}
    made.pop("axes of positions, packed")
    check_calls(target, made.values())


@pytest.mark.parametrize(
    ("setting", "broken", "found"),
    [
        ("images, default", {}, False),
        ("images of some rows, default", {}, False),
        ("images, dynamic batch size", {}, False),
        ("images of some rows, default", {"KEYS": "rows[0]"}, True),
        ("images, default", {"KEYS": "rows[0]"}, False),
        ("images, dynamic batch size", {"PLACES": "range(start, start + len(rows))"}, True),
        ("images, default", {"KEYS": '["pixel_values"]'}, True),
        ("axes of positions, default", {}, False),
        ("axes of positions, dynamic batch size", {}, False),
        ("axes of positions, default", {"AXES": "places[0]"}, True),
        ("axes of positions, default", {"AXES": "places[[0, 1, 1, 1]]"}, True),
        ("axes of positions, default", {"AXES": "places.transpose(1, 2).reshape(places.shape)"}, True),
    ],
)
def test_images_of_a_worker(loads: Loads, setting: str, broken: dict[str, str], *, found: bool) -> None:
    """The keys of the first row; images at the places of other rows; no grids; axes that are lost or mixed up."""
    target, worker = _worker(loads, **broken)
    check_verdict(DAT001, worker[setting], setting, target, found=found)


@pytest.mark.parametrize(("broken", "found"), [({}, False), ({"WITH": ""}, True)])
def test_a_row_without_images(loads: Loads, broken: dict[str, str], *, found: bool) -> None:
    """A row without images beside one with images must not raise."""
    setting = "images of some rows, default"
    target, worker = _worker(loads, **broken)
    check_verdict(RAI001, worker[setting], setting, target, found=found)


@pytest.mark.parametrize(("images", "found"), [("order[start : start + size]", False), ("range(size)", True)])
def test_images_of_an_engine(loads: Loads, images: str, *, found: bool) -> None:
    """Images of the rows before these are put into another order."""
    target, engine = _engine(loads, images)
    check_verdict(DAT001, engine["images, packed"], "images, packed", target, found=found)
