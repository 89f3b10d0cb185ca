"""Run verl's single-turn data sets on files in memory, and compare each row with its source text."""

import inspect
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from rl_sentinel.adapters.kit.chat_template import ChatTokenizer


class TensorTokenizer(ChatTokenizer):
    """A fake tokenizer that also returns the mask of the tokens and, on request, tensors of one row."""

    def __call__(self, text: str, **options: object) -> Any:  # noqa: ANN401 - lists or tensors
        """The tokens of a text and their mask."""
        ids = super().__call__(text)["input_ids"]
        found = {"input_ids": ids, "attention_mask": [1] * len(ids)}
        return {name: torch.tensor([row]) for name, row in found.items()} if options.get("return_tensors") else found


class Table(list[dict[str, Any]]):
    """A fake for tables of datasets and data frames of pandas, with the methods that verl's data sets use."""

    def __getitem__(self, place: Any) -> Any:  # noqa: ANN401 - a row, or a column
        """A copy of a row; or the values of a column, where only the first of several columns counts."""
        if isinstance(place, int):
            return dict(super().__getitem__(place))
        name = place if isinstance(place, str) else place[0]
        return SimpleNamespace(tolist=lambda: [row[name] for row in self])

    def filter(self, keep: Callable[[dict[str, Any]], bool], **_about: object) -> "Table":
        """The rows that are kept."""
        return Table(dict(row) for row in self if keep(dict(row)))


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


def _text(row: int, words: int) -> str:
    return " ".join(f"w{row}{number}" for number in range(words))


def compare_prompts(
    dataset: Callable[..., Any], rows: list[list[int]], truncation: str, system: str, limit: int
) -> dict[str, Any]:
    """Load the prompts, and count the wrong tokens of each prompt.

    A second count is 1 if the prompt is filtered as documented: it is the number of uses of a prompt that must stay,
    and one plus the number of uses of a prompt that must go.
    """
    filtered = truncation == "error"
    options: dict[str, Any] = {"system": system} if system else {}
    turns = [[{"role": "user", "content": _text(row, len(own))}] for row, own in enumerate(rows)]
    table = [{"prompt": turn, "data_source": "task", "extra_info": {"index": row}} for row, turn in enumerate(turns)]
    config = {
        "max_prompt_length": limit,
        "truncation": truncation,
        "filter_overlong_prompts": filtered,
        "filter_overlong_prompts_workers": 1,
        "apply_chat_template_kwargs": options,
    }
    words = TensorTokenizer()
    made = with_files(dataset, "datasets", table, lambda: dataset(["prompts.parquet"], words, config))
    found = [made[place] for place in range(len(made))]
    kept = [row["index"] for row in found]
    whole = [words.apply_chat_template(turn, add_generation_prompt=True, **options) for turn in turns]
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
    texts = [(f"question {row}", _text(row, len(own))) for row, own in enumerate(rows)]
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
    texts = [(f"question {row}", _text(row, len(own)), _text(row, 1)) for row, own in enumerate(rows)]
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
