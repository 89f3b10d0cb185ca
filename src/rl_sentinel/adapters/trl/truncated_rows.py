"""TRL's data sets with rows over a length limit: what the trainers keep of each prompt and of each completion."""

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import ResponseMask
from rl_sentinel.adapters.kit.containers import Table
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, IfSet
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.bco import BCO, BCO_EXPERIMENTAL
from rl_sentinel.adapters.trl.dataset_preparation import KINDS, OPTIONAL, Kind, a_few_rows, ids_of, prepared_tokens
from rl_sentinel.adapters.trl.pair_codecs import NoPadding
from rl_sentinel.adapters.trl.preference_trainers import make_pair_trainer
from rl_sentinel.adapters.trl.preferences import arguments_of, trainer_path
from rl_sentinel.adapters.trl.release import fields_of
from rl_sentinel.adapters.trl.tiny_trainer import END
from rl_sentinel.adapters.trl.token_differences import ROWS, count_differences
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

#: Words of the prompts of even and of odd rows.
LONG, SHORT = 4, 2

#: Completions of a row have at most this many words.
WORDS = 3

#: The first word of completions: no prompt has it.
FIRST = 9

#: Setting -> limits, in releases that limit the prompt too. A long prompt and a completion exceed ``max_length``.
WITH_PROMPTS: Mapping[str, Settings] = {
    "long rows": {"max_length": 7, "max_prompt_length": 4},
    "long prompts": {"max_length": 6, "max_prompt_length": 2},
    "long completions": {"max_length": 512, "max_prompt_length": 128, "max_completion_length": 2},
}

#: Setting -> limits, in other releases; a long prompt alone may fill ``max_length``.
OF_ROWS: Mapping[str, Settings] = {
    "long rows": {"max_length": 7},
    "prompts that fill the limit": {"max_length": 4},
}

#: Source text of releases that separate prompt and completion before they collate a row.
SEPARATE = ('"completion_mask"', "def tokenize_row", "def _process_tokens")

#: Source text of releases whose limit of a completion applies to decoder-only models too.
CUTS_COMPLETIONS = "[:max_completion_length]"

#: Which end of a row is kept, in releases with this setting.
MODES = ("keep_start", "keep_end")

_DOCS = (
    "dpo_config.py, cpo_config.py, kto_config.py, sft_config.py: max_length of prompt and completion together, "
    "max_prompt_length, max_completion_length, and truncation_mode, the end of a long row that is kept"
)


@dataclass(frozen=True)
class Row:
    """A prompt and a completion, as a trainer has them.

    Attributes:
        before: the tokens that do not train.
        trained: the tokens that train.
        joined: whether prompt and completion are in one sequence.
    """

    before: list[int]
    trained: list[int]
    joined: bool = True


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the data set that each constructor prepares, under each limit and each end that is kept."""
    for kind in (*KINDS, Kind((BCO, BCO_EXPERIMENTAL), ("completion",))):
        path = trainer_path(target, *kind.paths)
        if not target.has(path) or target.fails(path):
            continue
        source = inspect.getsource(inspect.getmodule(target.find(path)))  # type: ignore[arg-type]  # a class has a module
        known = fields_of(target, path) or arguments_of(target.find(path))
        if "max_length" not in known or not any(mark in source for mark in SEPARATE):
            continue
        modes = [mode for mode in MODES if "truncation_mode" in known and f'"{mode}"' in source]
        for name, limits in (WITH_PROMPTS if "max_prompt_length" in known else OF_ROWS).items():
            if "max_completion_length" in limits and CUTS_COMPLETIONS not in source:
                continue
            ends: dict[str, Settings] = {f"{name}, {mode}": {**limits, "truncation_mode": mode} for mode in modes}
            variants = ends or {name: limits}
            yield from bindable(target, *(_truncated(path, kind, *one) for one in variants.items()))


def _truncated(path: str, kind: Kind, name: str, limits: Settings) -> Boundary:
    result = Use("differ")
    return one_call(
        path=path,
        stage="batch",
        call=compare_limits,
        name="differ",
        arguments={
            "trainer": Constant(Function(path)),
            "sides": Constant(kind.sides),
            "lengths": ResponseMask(NoPadding()),
            "limits": Table({field: IfSet(field) for field in limits}),
        },
        remembered=True,
        produced_by={"limits": _DOCS},
        outputs={
            "words": Output("B", "tokens", at=result["count"], form=ROWS),
            "number of tokens that break a limit": Output(
                "B", "tokens", "tokens_off_limit", at=result["tokens"], form=ROWS
            ),
        },
        settings={name: limits},
        claims=claims(_DOCS),
        reach=", ".join(f"{field}={value}" for field, value in limits.items()),
        requires=(no_empty_response,),
        domain=a_few_rows,
    )


def words_of(row: int, count: int, side: int) -> list[str]:
    """The words of a completion, which no other row and no other side has."""
    start = FIRST + WORDS * (2 * row + side)
    return [f"w{start + n}" for n in range(count)]


def prompt_of(row: int) -> list[str]:
    """The words of a prompt, which no other row has."""
    return [f"w{LONG * row + n + 1}" for n in range(SHORT if row % 2 else LONG)]


def example(row: int, count: int, sides: Sequence[str]) -> dict[str, Any]:
    """A row of a data set of plain text: a prompt and its completions of ``count`` words each."""
    texts = {name: f" {' '.join(words_of(row, count, side))}" for side, name in enumerate(sides)}
    return {"prompt": " ".join(prompt_of(row)), **texts}


def compare_limits(
    trainer: Callable[..., Any], sides: Sequence[str], lengths: Tensor, limits: Mapping[str, Any]
) -> dict[str, list[float]]:
    """Build a trainer with these limits, and check the rows that it trains on.

    Returns, per row, ``count``: the number of words of a completion; and ``tokens``: the number of tokens of its prompt
    and completions that break a limit.
    """
    counts = lengths.sum(1).tolist()
    labeled = '"label"' in inspect.getsource(importlib.import_module(trainer.__module__)) and len(sides) == 1
    rows = [example(row, n, sides) for row, n in enumerate(counts)]
    rows.append({"prompt": "w24", **dict.fromkeys(sides, " w25")})  # fits any limit, so that the data set is not empty
    if labeled:
        rows = [{**row, "label": number % 2 == 0} for number, row in enumerate(rows)]
    ready = make_pair_trainer(trainer, rows=rows, **limits)
    tokenizer = getattr(ready, "processing_class", None) or ready.tokenizer
    found = [final_rows(ready, sides, side) for side in range(len(sides))]
    off = []
    for row, n in enumerate(counts):
        prompt = ids_of(tokenizer, " ".join(prompt_of(row)))
        wholes = [ids_of(tokenizer, " ".join(words_of(row, n, side))) for side in range(len(sides))]
        off.append(sum(tokens_off(prompt, own, found[side], limits) for side, own in enumerate(wholes)))
    return {"count": [float(n) for n in counts], "tokens": off}


def final_rows(trainer: Any, sides: Sequence[str], side: int) -> list[Row]:  # noqa: ANN401 - a trainer
    """The rows of one side, after the collator where it truncates; else as the constructor has prepared them."""
    prepared = [dict(row) for row in trainer.train_dataset]
    if getattr(trainer.data_collator, "max_length", None) is None:
        joined = any(name.endswith(("labels", "_mask")) and "attention" not in name for name in prepared[0])
        return [Row(*prepared_tokens(row, sides[side]), joined=joined) for row in prepared]
    batch = trainer.data_collator(prepared)
    trains = batch["completion_mask"].bool() if "completion_mask" in batch else batch["labels"] != -100
    own = slice(side * len(prepared), (side + 1) * len(prepared))
    prefix = "" if "input_ids" in batch else "completion_"  # KTO in the middle of 2026
    ids_, kept = batch[f"{prefix}input_ids"], batch[f"{prefix}attention_mask"].bool()
    parts = zip(*(column[own] for column in (ids_, kept, trains & kept)), strict=True)
    return [Row(ids[near & ~trained].tolist(), ids[trained].tolist()) for ids, near, trained in parts]


def tokens_off(prompt: list[int], completion: list[int], rows: Sequence[Row], limits: Mapping[str, Any]) -> float:
    """The number of tokens by which a row breaks a limit.

    A row keeps the start or the end of its prompt, and the start of its completion, or its end where the end of rows is
    kept. It has at most as many tokens as the limit, and at least one word of the completion. It may be left out if the
    prompt alone fills the limit. A first token that starts texts is optional, and so is the end token, for which some
    releases reserve a place.
    """
    words = {*prompt, *completion}
    row = next((row for row in rows if words & {*row.before, *row.trained}), None)
    most = limits.get("max_length")
    if row is None:
        return 0.0 if most is not None and len(prompt) >= most else float(len(prompt) + len(completion))
    before = row.before[1:] if row.before[:1] in OPTIONAL and prompt[:1] != row.before[:1] else row.before
    trained = row.trained[:-1] if row.trained[-1:] == [END] else row.trained
    mode = limits.get("truncation_mode") if row.joined else None
    prompts = _kept(prompt, len(before), start=mode != "keep_end", end=mode != "keep_start")
    completions = _kept(completion, len(trained), start=True, end=mode == "keep_end")
    off = min(count_differences(before, own) for own in prompts)
    off += min(count_differences(trained, own) for own in completions)
    return off + float(not trained) + _excess(row, limits)


def _kept(whole: list[int], count: int, *, start: bool, end: bool) -> list[list[int]]:
    """The first ``count`` tokens, the last ones, or both."""
    return [*([whole[:count]] if start else []), *([whole[max(len(whole) - count, 0) :]] if end else [])]


def _excess(row: Row, limits: Mapping[str, Any]) -> float:
    """The number of tokens beyond the limit: of the whole row or, if prompt and completion are apart, of each."""
    if row.joined:
        sizes = [(len(row.before) + len(row.trained), limits.get("max_length"))]
    else:
        sizes = [
            (len(row.before), limits.get("max_prompt_length")),
            (len(row.trained), limits.get("max_completion_length")),
        ]
    return float(sum(max(size - most, 0) for size, most in sizes if most is not None))
