"""Boundary of verl's agent loop on prompts with images or videos: those of each padded row, and its positions."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.value_codecs import Constant, constants, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import agent_loop
from rl_sentinel.adapters.verl.prompt_positions import axes_off, positions_on_axes
from rl_sentinel.adapters.verl.row_images import FAMILIES, IMAGES, image_of, numbers_of
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims

_DOCS = claims(
    "agent_loop.py, _postprocess: add multi_modal_inputs to non_tensor_batch if any samples have them; single_turn_"
    "agent_loop.py and tool_agent_loop.py, run: the images of the conversation"
)
_PRODUCED = (
    "single_turn_agent_loop.py and tool_agent_loop.py, run: multi_modal_data has the images, or is empty; "
    "agent_loop.py, AgentLoopWorker: the processor of the model, of any class"
)


class Features(dict[str, Any]):
    """A fake of the ``BatchFeature`` of transformers."""

    def convert_to_tensors(self, *_kind: object) -> "Features":
        """The features, which are tensors."""
        return self


#: The frames per second that transformers assumes for a video without metadata.
ASSUMED_FPS = 24.0


def video_of(row: int, fps: float) -> dict[str, Tensor]:
    """The video of a row: one patch that contains the number of the row, its grid, and the seconds of a frame."""
    patch, grid = torch.full((1, 1), row + 1.0), torch.tensor([[1, 1, 1]])
    return {"pixel_values_videos": patch, "video_grid_thw": grid, "second_per_grid_ts": torch.tensor([1.0 / fps])}


class ImageProcessor:
    """A fake processor of any class; an image is the number of its row, as are the frames of a video.

    Releases since 2026 bind ``get_rope_index`` of the model to its processor, and some call it for all models.
    """

    image_processor = object()

    def __call__(
        self,
        *,
        images: Sequence[int] | None = None,
        videos: Sequence[Tensor] | None = None,
        video_metadata: Sequence[Mapping[str, float]] | None = None,
        **_about: object,
    ) -> Features:
        """The tensors of the image or the video, if there is one; those of the text are not read.

        As in transformers, an unknown keyword is ignored. Its versions 5.10 and 5.23 read the frame rate of Qwen2.5-VL
        from the metadata.
        """
        image = image_of(images[0]) if images else {}
        if not videos:
            return Features(image)
        fps = video_metadata[0]["fps"] if video_metadata else ASSUMED_FPS
        return Features(image | video_of(int(videos[0][0]), fps))

    @staticmethod
    def get_rope_index(*, input_ids: Tensor, attention_mask: Tensor, **_about: object) -> tuple[Tensor, None]:
        """Positions ``[3, 1, S]`` of the tokens, and None."""
        own = positions_on_axes(None, input_ids=input_ids[0], attention_mask=attention_mask[0])
        return own.unsqueeze(1), None


class DecodingTokenizer(agent_loop.PaddingTokenizer):
    """A padding tokenizer that decodes all tokens to an empty text."""

    def decode(self, *_ids: object, **_options: object) -> str:
        """An empty text."""
        return ""


#: The only class of image processors that the loop of some releases calls; with others, rows lose their images.
_ONLY = "Qwen2VLImageProcessor"

#: Names in releases whose videos are pairs of frames and metadata.
_SPLIT = ("video_metadata", "build_multimodal_processor_inputs")


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the images in the rows of a batch, in releases that pad rows with images."""
    for made in agent_loop.boundaries(target):
        if isinstance(made, Boundary) and made.path.endswith("._postprocess"):
            source = inspect.getsource(target.module(agent_loop.MODULE))
            if "processor" in source and f'non_tensor_batch["{IMAGES}"]' in source:
                key = "images" if 'get("images")' in source else "image"
                other = f" whose image processor is not a {_ONLY}" if _ONLY in source else ""
                videos = 'get("videos")' in source and any(word in source for word in _SPLIT)
                yield _with_images(made, key, other, videos=videos, placed="processor.get_rope_index" in source)


def images_off_rows(  # noqa: PLR0913 - a worker, its outputs, and settings
    run: Callable[..., Any],
    worker: Any,  # noqa: ANN401 - of the target
    outputs: list[Any],
    key: str,
    some: bool,  # noqa: FBT001 - a setting
    videos: bool,  # noqa: FBT001 - a setting
    placed: bool,  # noqa: FBT001 - a property of the release
) -> dict[str, list[float]]:
    """Pad the outputs of agent loops.

    The images of an output are its ``multi_modal_data[key]``. With ``some``, every second output has none. With
    ``videos``, outputs have videos, each with its metadata, in place of images.

    Returns:
        Per row, 1 if the batch has other images than those of its output. If ``placed``, also how many tokens have
        other positions than those that the processor gives, over all axes.
    """
    worker.processor, worker.tokenizer = ImageProcessor(), DecodingTokenizer()
    shown = [not some or row % 2 == 1 for row in range(len(outputs))]
    for row, output in enumerate(outputs):
        video = (torch.full((2,), row), {"fps": row + 1.0})
        data = {"videos": [video]} if videos else {key: [row]}
        output.multi_modal_data = data if shown[row] else {}
    batch = run(worker, outputs)
    rows = batch.non_tensor_batch.get(IMAGES, [{}] * len(outputs))
    whole = [video_of(row, row + 1.0) if videos else image_of(row) for row in range(len(outputs))]
    expected = [own if seen else {} for own, seen in zip(whole, shown, strict=True)]
    names = (*image_of(0), *video_of(0, 1.0))
    wrong = [
        float(any(numbers_of([(own or {}).get(name)]) != numbers_of([right.get(name)]) for name in names))
        for own, right in zip(rows, expected, strict=True)
    ]
    if not placed:
        return {"images": wrong}
    places = zip(batch.batch["position_ids"], batch.batch["attention_mask"].bool(), strict=True)
    return {"images": wrong, "positions": [sum(axes_off(own, inside)) for own, inside in places]}


def _with_images(made: Boundary, key: str, other: str, *, videos: bool, placed: bool) -> Boundary:
    (step,) = made.steps
    families = {
        name: {"some": chosen["some"], "videos": False} for name, chosen in FAMILIES.items() if not chosen["axes"]
    }
    families |= {"videos": {"some": False, "videos": True}} if videos else {}
    known = constants(key=key, placed=placed)
    arguments = {"run": Constant(step.call), **step.arguments, **known, **knobs("some", "videos")}
    off = replace(
        step, call=images_off_rows, name="off", arguments=arguments, produced_by={**step.produced_by, "run": _PRODUCED}
    )
    result, form = Use("off"), PerRow("list")
    positions = Output("B", "tokens", "columns_of_others", at=result["positions"], form=form)
    return replace(
        made,
        steps=(off,),
        unused=frozenset(),
        reads=frozenset({"length"}),
        outputs={
            "other images": Output("B", "samples", "columns_of_others", at=result["images"], form=form),
            **({"other positions": positions} if placed else {}),
        },
        settings=families,
        claims=_DOCS,
        reach=f"a data set with images or videos, and a model with vision{other}",
    )
