"""Boundary of verl's data set of prompts with images: the positions of the tokens on each axis of the model."""

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.single_turn import PROMPTS, TOKENS_OF_ROWS, a_few_words, fakes_of_files
from rl_sentinel.adapters.verl.single_turn_rows import IMAGE, Processor, Table, files_of, text_of, unchanged, vision
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims

#: The axes of a position in models with mrope, and by how much the positions of neighboring axes differ here.
AXES, APART = ("temporal", "height", "width"), 1000

#: Modules with the function that gives the positions, by the model.
_MODELS = tuple(f"verl.models.transformers.{name}" for name in ("qwen2_vl", "qwen3_vl", "glm4v"))

_DOCS = claims(
    "rl_dataset.py, __getitem__, comment: position ids (3, seq_len) of qwen-vl mrope, by get_rope_index; the model "
    "repeats positions of one axis for all axes"
)
_FILE = "a Parquet file with columns of messages and images, as examples/data_preprocess writes it"


class Qwen2VLImageProcessor:
    """A fake of the image processor of Qwen2-VL; its images have four patches."""

    merge_size, patch_size = 1, 1

    def __call__(self, images: Sequence[object], **_options: object) -> dict[str, Tensor]:
        """The grid of each image."""
        return {"image_grid_thw": torch.tensor([[1, 2, 2]] * len(images))}


class VisionProcessor(Processor):
    """A fake processor of Qwen2-VL."""

    image_processor: Any = Qwen2VLImageProcessor()
    image_token = "<|image_pad|>"  # noqa: S105 - a token of a text


class Frame(Table):
    """A fake of a data frame, which early releases index by ``iloc``."""

    @property
    def iloc(self) -> "Frame":
        """The rows, by number."""
        return self

    def __getitem__(self, place: Any) -> Any:  # noqa: ANN401 - a row, or a column
        """A copy of a row, or a column."""
        row = super().__getitem__(place)
        return Row(row) if isinstance(place, int) else row


class Row(dict[str, Any]):
    """A row of a data frame."""

    def to_dict(self) -> dict[str, Any]:
        """The row as a dict."""
        return dict(self)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The boundary of the data set, in releases whose data set gives tokens their positions."""
    if target.has(PROMPTS) and not target.fails(PROMPTS):
        source = inspect.getsource(target.find(PROMPTS))
        if "get_rope_index" in source and "image_key" in source:
            yield from try_bind(target, PROMPTS, "batch", lambda: [_positions(target)])


def positions_on_axes(_processor: object, *, input_ids: Tensor, attention_mask: Tensor, **_about: object) -> Tensor:
    """A fake of ``get_rope_index``: positions ``[3, S]``; a position tells its axis."""
    inside = attention_mask.bool()
    positions = torch.ones((len(AXES), len(input_ids)), dtype=torch.long)
    positions[:, inside] = expected_positions(int(inside.sum()))
    return positions


def expected_positions(tokens: int) -> Tensor:
    """The positions ``[3, S]`` of a prompt without padding."""
    return torch.arange(tokens) + APART * torch.arange(1, len(AXES) + 1).unsqueeze(1)


def positions_off(dataset: Callable[..., Any], rows: list[list[int]]) -> dict[str, list[float]]:
    """Load prompts with an image each; per axis and row, return the number of tokens with another position."""
    texts = [IMAGE + text_of(row, len(own)) for row, own in enumerate(rows)]
    table = [
        {
            "prompt": [{"role": "user", "content": text}],
            "images": [{"image": f"image of {row}"}],
            "data_source": "task",
            "extra_info": {"index": row},
        }
        for row, text in enumerate(texts)
    ]
    names, words = vars(dataset)["__init__"].__globals__, VisionProcessor()
    files = files_of(Frame(table))
    packages = {name: files for name in ("pd", "datasets") if name in names}
    config = {"max_prompt_length": 64, "truncation": "error", "filter_overlong_prompts": False}
    given: dict[str, Any] = {"tokenizer": words, "processor": words, "config": config, "max_prompt_length": 64}
    accepted = {name: value for name, value in given.items() if name in inspect.signature(dataset).parameters}
    models = {name: ModuleType(name) for name in _MODELS}
    for module in models.values():
        vars(module)["get_rope_index"] = positions_on_axes
    process = {"process_image": unchanged} if "process_image" in names else {}
    with patch.dict(sys.modules, models), vision(dataset), replaced_globals(names, **packages, **process):
        made = dataset(["prompts.parquet"], **accepted)
        found = [made[place] for place in range(len(rows))]
    counts = [axes_off(row["position_ids"], row["attention_mask"].bool()) for row in found]
    return {axis: [one[number] for one in counts] for number, axis in enumerate(AXES)}


def axes_off(positions: Tensor, inside: Tensor) -> list[float]:
    """Per axis, the number of tokens with another position; positions of one axis are those of all axes."""
    axes = positions[-len(AXES) :] if positions.dim() > 1 else positions.expand(len(AXES), -1)
    unlike = axes[:, inside] != expected_positions(int(inside.sum()))
    return [float(count) for count in unlike.sum(1)]


def _positions(target: Target) -> Boundary:
    result = Use("off")
    return one_call(
        path=f"{PROMPTS}.__getitem__",
        stage="batch",
        call=positions_off,
        name="off",
        arguments={**functions(dataset=PROMPTS), "rows": TOKENS_OF_ROWS},
        remembered=True,
        fakes=fakes_of_files(target, PROMPTS),
        produced_by={"rows": _FILE},
        reads=frozenset({"length"}),
        outputs={
            f"other {axis} positions": Output("B", "tokens", "columns_of_others", at=result[axis], form=PerRow("list"))
            for axis in AXES
        },
        settings={"positions of prompts with images": {}},
        claims=_DOCS,
        reach="a column of images (data.image_key), with Qwen2-VL or Qwen2.5-VL",
        requires=(no_empty_response,),
        domain=a_few_words,
    )
