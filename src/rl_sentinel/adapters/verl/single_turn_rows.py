"""Run verl's single-turn data sets on files in memory, and compare each row with its source text."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import torch

from rl_sentinel.adapters.kit.chat_template import ChatTokenizer
from rl_sentinel.adapters.kit.replacement import installed_modules, replaced_globals


class TensorTokenizer(ChatTokenizer):
    """A fake tokenizer that also returns the mask of the tokens and, on request, tensors of one row."""

    #: Some releases require a template, which they do not read.
    chat_template = "ChatML"

    def __call__(self, text: str, **options: object) -> Any:  # noqa: ANN401 - lists or tensors
        """The tokens of a text and their mask."""
        ids = super().__call__(text)["input_ids"]
        found = {"input_ids": ids, "attention_mask": [1] * len(ids)}
        return {name: torch.tensor([row]) for name, row in found.items()} if options.get("return_tensors") else found


class Processor(TensorTokenizer):
    """A fake processor and its tokenizer in one object, for a model whose images take several tokens each."""

    image_processor = SimpleNamespace(patch_size=1)

    @property
    def tokenizer(self) -> "Processor":
        """The tokenizer."""
        return self

    def __call__(self, text: Any, images: Any = None, **options: object) -> Any:  # noqa: ANN401 - one text, or a list
        """The tokens of a text, or those of a list of one text with its images."""
        if isinstance(text, str):
            return super().__call__(text, **options)
        found = super().__call__(text[0].replace(IMAGE, IMAGE * TOKENS_OF_IMAGE) if images else text[0], **options)
        return found if options.get("return_tensors") else {name: [row] for name, row in found.items()}

    def apply_chat_template(self, messages: Sequence[dict[str, Any]], **options: Any) -> Any:  # noqa: ANN401
        """The conversation, with a mark in the place of each image."""
        return super().apply_chat_template([{**one, "content": _marked(one["content"])} for one in messages], **options)


#: The mark of an image in a text, and the number of tokens that take its place.
IMAGE, TOKENS_OF_IMAGE = "<image>", 4


def _marked(content: Any) -> str:  # noqa: ANN401 - a text, or parts
    return content if isinstance(content, str) else "".join(part.get("text", IMAGE) for part in content)


def images_of_messages(messages: Sequence[dict[str, Any]], **_options: object) -> tuple[list[Any], None]:
    """A fake of ``qwen_vl_utils.process_vision_info``: the images of messages, and no videos."""
    parts = [part for one in messages for part in one["content"] if isinstance(part, dict)]
    return [part["image"] for part in parts if part["type"] == "image"], None


class Picture:
    """A fake of Pillow's class of images, without instances: rows have paths."""


@contextmanager
def vision(dataset: Callable[..., Any]) -> Iterator[None]:
    """Replace the packages for images, and the module of verl that needs them."""
    fake: Any = SimpleNamespace(
        process_vision_info=images_of_messages, process_image=unchanged, process_video=unchanged
    )
    modules = dict.fromkeys(("qwen_vl_utils", "verl.utils.dataset.vision_utils"), fake)
    names = vars(dataset)["__init__"].__globals__
    with installed_modules(modules), replaced_globals(names, Image=SimpleNamespace(Image=Picture)):
        yield


def unchanged(image: object, **_options: object) -> object:
    """The image itself."""
    return image


class Table(list[dict[str, Any]]):
    """A fake for tables of datasets and data frames of pandas, with the methods that verl's data sets use."""

    def __getitem__(self, place: Any) -> Any:  # noqa: ANN401 - a row, or a column
        """A copy of a row; or the values of a column, where only the first of several columns counts."""
        if isinstance(place, int):
            return deepcopy(super().__getitem__(place))
        name = place if isinstance(place, str) else place[0]
        return SimpleNamespace(tolist=lambda: [row[name] for row in self])

    def filter(self, keep: Callable[[dict[str, Any]], bool], **_about: object) -> "Table":
        """The rows that are kept."""
        return Table(row for row in self if keep(deepcopy(row)))


def files_of(rows: Table) -> SimpleNamespace:
    """A fake of the packages datasets and pandas; all files contain these rows."""
    return SimpleNamespace(
        load_dataset=lambda *_about, **_options: {"train": rows},
        concatenate_datasets=lambda parts: parts[0],
        read_parquet=lambda *_about, **_options: rows,
        concat=lambda parts, **_options: parts[0],
        DataFrame=Table,
    )


def with_files(
    dataset: Callable[..., Any], package: str, rows: Sequence[dict[str, Any]], make: Callable[[], Any]
) -> Any:  # noqa: ANN401 - a data set
    """Call ``make`` while the module of a data set reads these rows through a fake of the package."""
    names = vars(dataset)["__init__"].__globals__
    before = names[package]
    names[package] = files_of(Table(rows))
    try:
        return make()
    finally:
        names[package] = before


def text_of(row: int, words: int) -> str:
    """The text of a row, with this number of words."""
    return " ".join(f"w{row}{number}" for number in range(words))


def compare_prompts(  # noqa: PLR0913 - a setting has several parts
    dataset: Callable[..., Any],
    rows: list[list[int]],
    truncation: str,
    system: str,
    limit: int,
    images: bool = False,  # noqa: FBT001, FBT002 - a setting
) -> dict[str, Any]:
    """Load the prompts, with an image before each text if ``images``, and compare each prompt with its text.

    Returns:
        ``count``: the number of tokens of the prompt before filtering and truncation; ``tokens``: its number of wrong
        tokens; ``uses``: 1 if it is filtered as documented: the number of uses of a prompt that must stay, and 1 plus
        the number of uses of a prompt that must go.
    """
    filtered = truncation == "error" or images
    options: dict[str, Any] = {"system": system} if system else {}
    mark = IMAGE if images else ""
    turns = [[{"role": "user", "content": mark + text_of(row, len(own))}] for row, own in enumerate(rows)]
    table = [{"prompt": turn, "data_source": "task", "extra_info": {"index": row}} for row, turn in enumerate(turns)]
    config = {
        "max_prompt_length": limit,
        "truncation": truncation,
        "filter_overlong_prompts": filtered,
        "filter_overlong_prompts_workers": 1,
        "apply_chat_template_kwargs": options,
    }
    words = Processor()
    more = {"processor": words} if images else {}
    for row, line in enumerate(table if images else ()):
        line["images"] = [{"image": f"image of {row}"}]
    with vision(dataset):
        made = with_files(dataset, "datasets", table, lambda: dataset(["prompts.parquet"], words, config, **more))
        found = [made[place] for place in range(len(made))]
    kept = [row["index"] for row in found]
    texts = [words.apply_chat_template(turn, add_generation_prompt=True, tokenize=False, **options) for turn in turns]
    whole = [words(text.replace(IMAGE, IMAGE * TOKENS_OF_IMAGE))["input_ids"] for text in texts]
    fits = [len(ids) <= limit or not filtered for ids in whole]
    own = {
        row["index"]: _prompt_differs(row, whole[row["index"]], turns[row["index"]], _kept(truncation, limit))
        for row in found
    }
    return {
        "count": [float(len(ids)) for ids in whole],
        "tokens": [own.get(row, 0.0) for row in range(len(turns))],
        "uses": [float(kept.count(row) if fit else 1 + kept.count(row)) for row, fit in enumerate(fits)],
    }


def _kept(truncation: str, limit: int) -> Callable[[list[int]], list[int]]:
    """The part of a prompt that remains after truncation at a limit."""
    half = limit // 2
    cuts: dict[str, Callable[[list[int]], list[int]]] = {
        "error": lambda ids: ids,
        "left": lambda ids: ids[-limit:],
        "right": lambda ids: ids[:limit],
        "middle": lambda ids: [*ids[:half], *ids[half - limit :]] if len(ids) > limit else ids,
    }
    return cuts[truncation]


def _prompt_differs(
    row: dict[str, Any], ids: list[int], turns: list[dict[str, Any]], kept: Callable[[list[int]], list[int]]
) -> float:
    """The number of wrong tokens and positions of a row or, in newer releases without these, 1 if its turns differ."""
    if "input_ids" not in row:
        return float(row["raw_prompt"] != turns)
    expected, own = kept(ids), row["attention_mask"].bool()
    wrong = _unlike(row["input_ids"][own].tolist(), expected) + _unlike(row["raw_prompt_ids"], expected)
    return wrong + _unlike(row["position_ids"][own].tolist(), range(len(expected)))


def _unlike(found: Sequence[int], expected: Sequence[int]) -> float:
    """The number of positions at which two sequences differ, including those that only one of them has."""
    return float(sum(a != b for a, b in zip(found, expected, strict=False)) + abs(len(found) - len(expected)))


def compare_replies(dataset: Callable[..., Any], rows: list[list[int]]) -> dict[str, list[float]]:
    """Load the rows; count the wrong tokens and position ids of each row, and its wrong mask values."""
    words = TensorTokenizer()
    texts = [(f"question {row}", text_of(row, len(own))) for row, own in enumerate(rows)]
    table = [{"prompt": prompt, "response": reply} for prompt, reply in texts]
    config = {"prompt_key": "prompt", "response_key": "response", "max_length": 64, "truncation": "error"}
    passed = _accepted(
        dataset, tokenizer=words, config=config, prompt_key="prompt", response_key="response", max_length=64
    )
    made = with_files(dataset, "pd", table, lambda: dataset(["replies.parquet"], **passed))
    counts = []
    for number, (prompt, reply) in enumerate(texts):
        turn = [{"role": "user", "content": prompt}]
        asked = words.apply_chat_template(turn, add_generation_prompt=True)
        answer = words(reply + words.eos_token)["input_ids"]
        row = made[number]
        own = row["attention_mask"].bool()
        mask = [0] * (len(asked) - 1) + [1] * len(answer)
        wrong = _unlike(row["loss_mask"][own].tolist()[:-1], mask) + float(row["loss_mask"][~own].sum())
        tokens = _unlike(row["input_ids"][own].tolist(), [*asked, *answer])
        counts.append((tokens + _unlike(row["position_ids"][own].tolist(), range(len(asked) + len(answer))), wrong))
    return {"tokens": [tokens for tokens, _ in counts], "masks": [wrong for _, wrong in counts]}


def compare_pairs(dataset: Callable[..., Any], rows: list[list[int]]) -> dict[str, list[float]]:
    """Load the pairs; count the wrong tokens in each pair, and its positions with a wrong attention mask."""
    words = TensorTokenizer()
    texts = [(f"question {row}", text_of(row, len(own)), text_of(row, 1)) for row, own in enumerate(rows)]
    table = [dict(zip(("prompt", "chosen", "rejected"), text, strict=True)) for text in texts]
    made = with_files(dataset, "pd", table, lambda: dataset(["pairs.parquet"], words, max_length=64))
    counts = []
    for number, (prompt, *replies) in enumerate(texts):
        row, wrong = made[number], [0.0, 0.0]
        for side, reply in enumerate(replies):
            ids = [*words(prompt)["input_ids"], *words(reply)["input_ids"], words.eos_token_id]
            wrong[0] += _unlike(row["input_ids"][side].tolist()[: len(ids)], ids)
            wrong[1] += _unlike(row["attention_mask"][side].tolist(), [1] * len(ids) + [0] * (64 - len(ids)))
        counts.append(wrong)
    return {"tokens": [tokens for tokens, _ in counts], "masks": [wrong for _, wrong in counts]}


def _accepted(dataset: Callable[..., Any], **options: Any) -> dict[str, Any]:  # noqa: ANN401 - arguments of a constructor
    """The options that the constructor of a release takes."""
    return {name: value for name, value in options.items() if name in inspect.signature(dataset).parameters}
