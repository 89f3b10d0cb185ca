"""TRL's training on images: whether the model gets the images of its rows, and a type for each of their tokens."""

import importlib.util
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import ResponseMask
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.dataset_preparation import a_few_rows
from rl_sentinel.adapters.trl.pair_codecs import NoPadding
from rl_sentinel.adapters.trl.preference_trainers import (
    make_pair_trainer,
    make_supervised_trainer,
    start_optimizer_step,
    train_one_batch,
)
from rl_sentinel.adapters.trl.preferences import DPO
from rl_sentinel.adapters.trl.supervised import SFT
from rl_sentinel.adapters.trl.tiny_trainer import make_tokenizer
from rl_sentinel.adapters.trl.token_differences import ROWS
from rl_sentinel.adapters.trl.token_model import set_logprobs
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

#: The word that the processor repeats once per patch of an image.
IMAGE = "w20"

#: Names under which a model gets the type of each token: 1 for the tokens of an image, else 0.
GEMMA, QWEN = "token_type_ids", "mm_token_type_ids"

#: Inputs that only a model for images takes.
OF_IMAGES = ("pixel_values", "image_grid_thw", GEMMA, QWEN)

#: The processor of the models that get types under the name :data:`QWEN`.
PROCESSOR = "transformers.models.qwen2_5_vl"

#: How its module states that it returns types by default, in transformers 5 and in transformers 4.
_RETURNS_TYPES = re.compile(r"return_mm_token_type_ids\"?(: True| = True)")

#: Setting -> the name of the types.
FAMILIES: Mapping[str, Settings] = {"images": {"types": ""}, "types of Gemma": {"types": GEMMA}}
FAMILIES_OF_QWEN: Mapping[str, Settings] = {"types of Qwen": {"types": QWEN}}

_PRODUCED = (
    "transformers, Qwen2_5_VLProcessor.__call__ and Gemma3Processor.__call__: token ids in which an image has one "
    "token per patch, pixel_values and image_grid_thw of all images in order, and a type for each token"
)
_DOCS = claims(
    "dpo_trainer.py and sft_trainer.py, docstring of the collator for images: pixel_values, and additional keys that "
    "depend on the processor; transformers, get_rope_index and the attention of Gemma 3: positions and attention of a "
    "token follow from its type"
)


@dataclass(frozen=True)
class Kind:
    """A trainer, its collator for images, and the data set columns that contain completions."""

    trainer: str
    collator: str
    sides: tuple[str, ...]

    @property
    def path(self) -> str:
        """The path of the boundary: the collator, then the trainer's loss."""
        return f"{self.collator}.torch_call -> {self.trainer}.compute_loss"


KINDS = (
    Kind(DPO, "trl.trainer.dpo_trainer.DataCollatorForVisionPreference", ("chosen", "rejected")),
    Kind(SFT, "trl.trainer.sft_trainer.DataCollatorForVisionLanguageModeling", ("completion",)),
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of each trainer's loss on images, in releases with a collator for images."""
    families = {**FAMILIES, **(FAMILIES_OF_QWEN if returns_types() else {})}
    for kind in KINDS:
        paths = (f"{kind.trainer}.compute_loss", f"{kind.collator}.torch_call")
        if all(target.has(path) and not target.fails(path) for path in paths):
            yield from bindable(target, *(_boundary(kind, name, chosen) for name, chosen in families.items()))


def returns_types() -> bool:
    """Whether the installed transformers has a processor that returns types under the name :data:`QWEN`."""
    try:
        spec = importlib.util.find_spec(PROCESSOR)
    except ModuleNotFoundError:
        return False
    folders = (spec.submodule_search_locations or ()) if spec else ()
    files = [Path(folder, f"processing_{PROCESSOR.rpartition('.')[2]}.py") for folder in folders]
    return any(_RETURNS_TYPES.search(file.read_text(encoding="utf-8")) for file in files if file.is_file())


class Processor:
    """A fake processor of texts with images: one token per patch of an image, and all patches in order."""

    def __init__(self, types: str) -> None:
        """``types`` is the name under which it returns the type of each token; empty for none."""
        self.tokenizer, self.types = make_tokenizer(), types
        self.pad_token_id, self.image = self.tokenizer.pad_token_id, self.tokenizer.convert_tokens_to_ids(IMAGE)

    def __call__(
        self,
        images: Sequence[Sequence[Tensor]] | None = None,
        text: Sequence[str] = (),
        **options: Any,  # noqa: ANN401 - options of the tokenizer
    ) -> dict[str, Tensor]:
        """Token ids and attention mask, types, and patches and grids of the images, if there are any."""
        found = list(images or ([] for _ in text))
        whole = [_with_patches(words, own) for words, own in zip(text, found, strict=True)]
        made: dict[str, Tensor] = dict(self.tokenizer(text=whole, **options))
        made.pop(GEMMA, None)  # of the tokenizer
        if self.types:
            made[self.types] = (made["input_ids"] == self.image).long()
        patches = [image for own in found for image in own]
        if patches:
            made["pixel_values"] = torch.cat(patches)
            made["image_grid_thw"] = torch.tensor([[1, 1, len(image)] for image in patches])
        return made


def _with_patches(words: str, images: Sequence[Tensor]) -> str:
    """The text with its image words repeated once per patch; there is one word per image."""
    for image in images:
        words = words.replace(f"{IMAGE} ", " <patch>" * len(image) + " ", 1)
    return words.replace("<patch>", IMAGE)


def image_of(row: int) -> Tensor:
    """The image of a row: one or two patches that contain the number of the row."""
    return torch.full((1 + row % 2, 1), row + 1.0)


def example(row: int, words: int, sides: Sequence[str]) -> dict[str, Any]:
    """A row of the data set: an image, a prompt with the number of the row, and completions of different lengths."""
    texts = {side: "".join(f" w{3 + n}" for n in range(words + s)) for s, side in enumerate(sides)}
    return {"images": [image_of(row)], "prompt": f"{IMAGE} w{10 + row}", **texts}


def inputs_off_rows(
    trainer: Callable[..., Any], collator: Callable[..., Any], sides: Sequence[str], lengths: Tensor, types: str
) -> list[float]:
    """Train on one batch; return, per row, 0 if each model got its completions with the right images and types, else 1.

    Every row has 1 if a call has wrong images, or if a model is never called.
    """
    rows = [example(row, words, sides) for row, words in enumerate(lengths.sum(1).tolist())]
    processor = Processor(types)
    texts = {tuple(_ids(processor, row, side)): number for number, row in enumerate(rows) for side in sides}
    make = make_pair_trainer if len(sides) > 1 else make_supervised_trainer
    ready = start_optimizer_step(make(trainer), 1)
    ready._is_vision_dataset = True  # noqa: SLF001 - the constructor sets it for a data set with images
    calls = [_watched(model) for model in (ready.model, getattr(ready, "ref_model", None)) if model is not None]
    train_one_batch(trainer.compute_loss, ready, collator(processor=processor)(rows))  # type: ignore[attr-defined]  # a class
    met = [_met(call, texts, processor) for one in calls for call in one]
    return [float(any(own.count(row) != len(sides) for own in met) or not all(calls)) for row in range(len(rows))]


def _ids(processor: Processor, row: Mapping[str, Any], side: str) -> list[int]:
    """The token ids of a prompt with one of its completions."""
    own = processor(images=[row["images"]], text=[f"{row['prompt']}{row[side]}"], return_tensors="pt")
    ids: list[int] = own["input_ids"].flatten().tolist()
    return ids


def _watched(model: Any) -> list[Mapping[str, Any]]:  # noqa: ANN401 - a model of transformers
    """Record the inputs of each call of a model, which reads only those that a model for text takes."""
    calls: list[Mapping[str, Any]] = []
    forward = model.forward
    set_logprobs(model, torch.full((1, 1), -1.0, requires_grad=True))

    def record(*_inputs: object, **inputs: Any) -> Any:  # noqa: ANN401 - inputs and outputs of the model
        calls.append(inputs)
        return forward(*_inputs, **{name: value for name, value in inputs.items() if name not in OF_IMAGES})

    model.forward = record
    return calls


def _met(call: Mapping[str, Any], texts: Mapping[tuple[int, ...], int], processor: Processor) -> list[int]:
    """The row of each sequence of a call that is complete and has its types; empty if the call has wrong images."""
    ids, attended = call["input_ids"], call["attention_mask"].bool()
    own = [texts.get(tuple(row[kept].tolist()), -1) for row, kept in zip(ids, attended, strict=True)]
    if not _has_images(call, [image_of(row) for row in own if row >= 0]):
        return []
    if not processor.types:
        return own
    types = call.get(processor.types)
    if types is None or types.shape != ids.shape:
        return []
    right = [bool(((ids[n] == processor.image).long() == types[n])[attended[n]].all()) for n in range(len(ids))]
    return [row for row, same in zip(own, right, strict=True) if same]


def _has_images(call: Mapping[str, Any], images: Sequence[Tensor]) -> bool:
    """Whether a call has exactly these images, in this order, each with its grid; False without images."""
    found, grids = call.get("pixel_values"), call.get("image_grid_thw")
    if not images or found is None or grids is None:
        return False
    return bool(grids.tolist() == [[1, 1, len(image)] for image in images] and torch.equal(found, torch.cat([*images])))


def _boundary(kind: Kind, name: str, chosen: Settings) -> Boundary:
    return one_call(
        path=kind.path,
        stage="batch",
        call=inputs_off_rows,
        name="off",
        arguments={
            **functions(trainer=kind.trainer, collator=kind.collator),
            "sides": Constant(kind.sides),
            "lengths": ResponseMask(NoPadding()),
            "types": Knob("types"),
        },
        remembered=True,
        produced_by={"lengths": _PRODUCED},
        outputs={"other images or types": Output("B", "samples", "columns_of_others", at=Use("off"), form=ROWS)},
        settings={name: chosen},
        claims=_DOCS,
        reach="a data set with images",
        requires=(no_empty_response,),
        domain=a_few_rows,
    )
