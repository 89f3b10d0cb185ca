"""Boundary of verl's agent loop on prompts with images: the images of each padded row."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.value_codecs import Constant, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import agent_loop
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


class ImageProcessor:
    """A fake processor of any class; an image is the number of its row.

    Releases since 2026 bind ``get_rope_index`` of the model to its processor, and some call it for all models.
    """

    image_processor = object()

    def __call__(self, *, images: Sequence[int] | None = None, **_about: object) -> Features:
        """The tensors of the image, if there is one; those of the text are not read."""
        return Features(image_of(images[0]) if images else {})

    @staticmethod
    def get_rope_index(*, input_ids: Tensor, **_about: object) -> tuple[Tensor, None]:
        """Positions of the tokens on three axes."""
        return torch.arange(input_ids.shape[1]).expand(3, 1, -1), None


class DecodingTokenizer(agent_loop.PaddingTokenizer):
    """A padding tokenizer that decodes all tokens to an empty text."""

    def decode(self, *_ids: object, **_options: object) -> str:
        """An empty text."""
        return ""


#: The only class of image processors that the loop of some releases calls; with others, rows lose their images.
_ONLY = "Qwen2VLImageProcessor"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the images in the rows of a batch, in releases that pad rows with images."""
    for made in agent_loop.boundaries(target):
        if isinstance(made, Boundary) and made.path.endswith("._postprocess"):
            source = inspect.getsource(target.module(agent_loop.MODULE))
            if "processor" in source and f'non_tensor_batch["{IMAGES}"]' in source:
                key = "images" if 'get("images")' in source else "image"
                yield _with_images(made, key, f" whose image processor is not a {_ONLY}" if _ONLY in source else "")


def images_off_rows(
    run: Callable[..., Any],
    worker: Any,  # noqa: ANN401 - of the target
    outputs: list[Any],
    key: str,
    some: bool,  # noqa: FBT001 - a setting
) -> list[float]:
    """Pad the outputs of agent loops; per row, return 1 if the batch has other images than those of its output.

    The images of an output are its ``multi_modal_data[key]``. With ``some``, every second output has none.
    """
    worker.processor, worker.tokenizer = ImageProcessor(), DecodingTokenizer()
    shown = [not some or row % 2 == 1 for row in range(len(outputs))]
    for row, output in enumerate(outputs):
        output.multi_modal_data = {key: [row]} if shown[row] else {}
    rows = run(worker, outputs).non_tensor_batch.get(IMAGES, [{}] * len(outputs))
    expected = [image_of(row) if shown[row] else {} for row in range(len(outputs))]
    names = ("pixel_values", "image_grid_thw")
    return [
        float(any(numbers_of([(own or {}).get(name)]) != numbers_of([right.get(name)]) for name in names))
        for own, right in zip(rows, expected, strict=True)
    ]


def _with_images(made: Boundary, key: str, other: str) -> Boundary:
    (step,) = made.steps
    arguments = {"run": Constant(step.call), **step.arguments, "key": Constant(key), **knobs("some")}
    off = replace(
        step, call=images_off_rows, name="off", arguments=arguments, produced_by={**step.produced_by, "run": _PRODUCED}
    )
    return replace(
        made,
        steps=(off,),
        unused=frozenset(),
        reads=frozenset({"length"}),
        outputs={"other images": Output("B", "samples", "columns_of_others", at=Use("off"), form=PerRow("list"))},
        settings={name: {"some": chosen["some"]} for name, chosen in FAMILIES.items() if not chosen["axes"]},
        claims=_DOCS,
        reach=f"a data set with images, and a model with vision{other}",
    )
