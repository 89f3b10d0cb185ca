"""Images and videos of the rows that verl's agent loop pads, on a specimen of its worker in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict
from adapters.kit.round_trip import check_calls
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, padded_images
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.columns_out_of_step import LAW as DAT001

LOOP = """
    from types import SimpleNamespace

    import torch

    class AgentLoopOutput(SimpleNamespace):
        pass

    class AgentLoopWorker:
        async def _agent_loop_postprocess(self, output, **about):
            text = self.tokenizer.decode(output.response_ids)
            images = output.multi_modal_data.get("images")
            output.features = dict(self.processor(text=[text], images=images).convert_to_tensors("pt"))
            return output

        def _postprocess(self, rows):
            non_tensor_batch = {}
            non_tensor_batch["multi_modal_inputs"] = FEATURES
            return SimpleNamespace(batch={}, non_tensor_batch=non_tensor_batch)
"""


def _bound(loads: Loads, features: str) -> tuple[Target, Boundary]:
    target = loads(
        FRAMEWORK, files() | {"verl/experimental/agent_loop/agent_loop.py": LOOP.replace("FEATURES", features)}
    )
    (boundary,) = padded_images.boundaries(target)
    assert isinstance(boundary, Boundary)
    return target, boundary


@pytest.mark.parametrize(
    ("features", "wrong"),
    [
        ("[row.features for row in rows]", set()),
        ("[row.features or None for row in rows]", set()),  # a row without images
        ("[None for row in rows]", {"images", "images of some rows"}),  # as with a processor that is not supported
        ("[row.features for row in reversed(rows)]", {"images", "images of some rows"}),
        ("[row.features or rows[-1].features for row in rows]", {"images of some rows"}),
    ],
)
def test_rows_have_their_images(loads: Loads, features: str, wrong: set[str]) -> None:
    target, boundary = _bound(loads, features)
    check_calls(target, [boundary])
    for name in ("images", "images of some rows"):
        check_verdict(DAT001, boundary, name, target, found=name in wrong)


VIDEOS = """
            videos, video_metadata = output.multi_modal_data.get("videos"), None
            if videos is not None:
                videos, video_metadata = zip(*videos)
            images = output"""


@pytest.mark.parametrize(
    ("passed", "found"),
    [
        ("videos=videos, video_metadata=video_metadata", False),
        ("videos=videos, metadata_of_videos=video_metadata", True),  # an unknown keyword
        ("videos=videos", True),
        ("video_metadata=video_metadata", True),
        ("videos=videos, video_metadata=video_metadata and video_metadata[::-1]", False),  # one video per row
    ],
)
def test_rows_have_their_videos(loads: Loads, passed: str, found: bool) -> None:
    """Videos without metadata, or under a name that the processor ignores, have other seconds per frame."""
    source = LOOP.replace("images = output", VIDEOS.strip()).replace("images=images", f"images=images, {passed}")
    source = source.replace("FEATURES", "[row.features for row in rows]")
    target = loads(FRAMEWORK, files() | {"verl/experimental/agent_loop/agent_loop.py": source})
    (boundary,) = padded_images.boundaries(target)
    assert isinstance(boundary, Boundary)
    check_calls(target, [boundary])
    check_verdict(DAT001, boundary, "videos", target, found=found)
    check_verdict(DAT001, boundary, "images of some rows", target, found=False)


PLACED = """
            ids = torch.tensor([[0, *output.prompt_ids, *output.response_ids]])
            mask = torch.tensor([[0] + [1] * (ids.shape[1] - 1)])
            own, _ = self.processor.get_rope_index(input_ids=ids, attention_mask=mask)
            output.places = torch.nn.functional.pad(GIVEN, (0, 40 - ids.shape[1]))
            output.inside = torch.nn.functional.pad(mask[0], (0, 40 - ids.shape[1]))
            images = output"""


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("torch.cat([mask, own[:, 0]])", False),  # the axis of the text, and those of images
        ("own[:, 0]", False),
        ("own[0, 0]", True),
        ("mask[0].cumsum(0)", True),
        ("own[:, 0].roll(1, dims=1)", True),
    ],
)
def test_rows_have_their_positions(loads: Loads, given: str, found: bool) -> None:
    """Positions of one axis for all, of the text, and of other tokens."""
    source = LOOP.replace("images = output", PLACED.strip().replace("GIVEN", given))
    source = source.replace("FEATURES", "[row.features for row in rows]").replace(
        "batch={}",
        'batch={"position_ids": torch.stack([row.places for row in rows]),'
        ' "attention_mask": torch.stack([row.inside for row in rows])}',
    )
    target = loads(FRAMEWORK, files() | {"verl/experimental/agent_loop/agent_loop.py": source})
    (boundary,) = padded_images.boundaries(target)
    assert isinstance(boundary, Boundary)
    check_calls(target, [boundary])
    check_verdict(DAT001, boundary, "images", target, found=found)


def test_releases_without_images(loads: Loads) -> None:
    """Have no such boundary."""
    source = LOOP.replace("processor", "tokenizer")
    target = loads(FRAMEWORK, files() | {"verl/experimental/agent_loop/agent_loop.py": source})
    assert not list(padded_images.boundaries(target))


@pytest.mark.parametrize("condition", ["", "Qwen2VLImageProcessor"])
def test_reach_names_the_only_supported_processor(loads: Loads, condition: str) -> None:
    source = LOOP.replace("images = output", f"# {condition}\n            images = output")
    target = loads(FRAMEWORK, files() | {"verl/experimental/agent_loop/agent_loop.py": source})
    (boundary,) = padded_images.boundaries(target)
    assert isinstance(boundary, Boundary)
    assert ("Qwen2VLImageProcessor" in boundary.reach) == bool(condition)
