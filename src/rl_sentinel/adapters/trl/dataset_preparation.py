"""TRL's data set preparation: token ids and trained tokens of conversations and of plain text."""

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import ResponseMask
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.kto import KTO, KTO_EXPERIMENTAL
from rl_sentinel.adapters.trl.pair_codecs import NoPadding
from rl_sentinel.adapters.trl.preference_trainers import make_pair_trainer
from rl_sentinel.adapters.trl.preferences import CPO, CPO_EXPERIMENTAL, DPO, ORPO, ORPO_EXPERIMENTAL, trainer_path
from rl_sentinel.adapters.trl.release import fields_of
from rl_sentinel.adapters.trl.rollout_fakes import FIRST_WORD
from rl_sentinel.adapters.trl.supervised import SFT
from rl_sentinel.adapters.trl.tiny_trainer import END, START, make_starting_tokenizer, make_tokenizer
from rl_sentinel.adapters.trl.token_differences import count_differences, mask_output, token_outputs
from rl_sentinel.core.batch import Batch, take_rows, with_columns
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

#: Maximum number of rows, and of tokens per row: the preparation of a row does not depend on more.
ROWS, TOKENS = 2, 3

#: The setting of conversations with a tokenizer that starts each text with a token.
STARTED = "conversations, a token starts texts"

#: Settings of plain text: as it is, with that tokenizer, and with completions that end with the end token already.
PLAIN: Mapping[str, Settings] = {
    "plain text": {},
    "plain text, a token starts texts": {"starts": True},
    "plain text with its end token": {"ends": True},
}

#: The starts of a row that a text need not have: the BOS token of either tokenizer.
OPTIONAL = ([END], [FIRST_WORD + int(START[1:])])

_FORMATS = (
    "docs/source/dataset_formats.md: the chat template formats conversational data, and nothing is added; to plain "
    "text the trainer adds the token that ends a completion"
)


@dataclass(frozen=True)
class Kind:
    """A trainer: its path in each release, and the data set columns that contain completions."""

    paths: tuple[str, ...]
    sides: tuple[str, ...]


KINDS = (
    Kind((DPO,), ("chosen", "rejected")),
    Kind((CPO, CPO_EXPERIMENTAL), ("chosen", "rejected")),
    Kind((ORPO, ORPO_EXPERIMENTAL), ("chosen", "rejected")),
    Kind((KTO, KTO_EXPERIMENTAL), ("completion",)),
    Kind((SFT,), ("completion",)),
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the data set that each constructor prepares, from conversations and from plain text.

    Both also with a tokenizer that starts each text with a token, which the chat template has already. With that
    tokenizer, masks are not compared: early releases of supervised fine-tuning have none.
    """
    for kind in KINDS:
        path = trainer_path(target, *kind.paths)
        if not target.has(path) or target.fails(path) or not fields_of(target, path):
            continue
        source = inspect.getsource(inspect.getmodule(target.find(path)))  # type: ignore[arg-type]  # a class has a module
        if ("apply_chat_template" in source and '"completion_mask"' in source) or path != SFT:
            yield from bindable(target, _dataset(path, kind, "conversations", {}, chat=True))
        if "apply_chat_template" in source and ("completion" in source or path != SFT):
            yield from bindable(target, _dataset(path, kind, STARTED, {"starts": True}, chat=True))
        if adds_end_token(path, source):
            yield from bindable(target, *(_dataset(path, kind, *form, chat=False) for form in PLAIN.items()))


def adds_end_token(path: str, source: str) -> bool:
    """Whether a trainer, with the source of its module, adds the end token to plain text."""
    return "eos_token" in source and (path != SFT or "Adding EOS" in source)


def _dataset(path: str, kind: Kind, name: str, form: Settings, *, chat: bool) -> Boundary:
    result = Use("differ")
    return one_call(
        path=path,
        stage="batch",
        call=compare_rows,
        name="differ",
        arguments={
            "trainer": Constant(Function(path)),
            "sides": Constant(kind.sides),
            "lengths": ResponseMask(NoPadding()),
            "chat": Knob("conversational"),
            "starts": Knob("starts", default=False),
            "ends": Knob("ends", default=False),
        },
        remembered=True,
        produced_by={"lengths": _FORMATS},
        outputs=token_outputs(result) | ({} if "starts" in form else mask_output(result)),
        settings={name: {"conversational": chat, **form}},
        claims=claims(_FORMATS),
        reach=f"the constructor, with a data set of {name}",
        requires=(no_empty_response,),
        domain=a_few_rows,
    )


def a_few_rows(batch: Batch) -> Batch:
    """Limit the batch to :data:`ROWS` rows with 1 to :data:`TOKENS` tokens each."""
    few = take_rows(batch, torch.arange(min(batch.rows, ROWS))) if batch.rows > ROWS else batch
    length = few.length.clamp(1, TOKENS)
    return few if bool((length == few.length).all()) else with_columns(few, length=length)


def example(row: int, words: int, sides: Sequence[str], *, chat: bool, ends: bool = False) -> dict[str, Any]:
    """A row of a data set: a prompt and its completions. In conversations, odd rows have a prompt of several turns.

    With ``ends``, completions of plain text end with the end token.
    """
    texts = {side: " ".join(f"w{3 + n + 5 * s}" for n in range(words)) for s, side in enumerate(sides)}
    label = {"label": row % 2 == 0} if tuple(sides) == ("completion",) else {}
    if not chat:
        end = " <eos>" if ends else ""
        return {"prompt": "w1 w2", **{side: f" {text}{end}" for side, text in texts.items()}, **label}
    turns = [{"role": "user", "content": "w1 w2"}]
    if row % 2:
        turns += [{"role": "assistant", "content": "w2"}, {"role": "user", "content": "w1"}]
    replies = {side: [{"role": "assistant", "content": text}] for side, text in texts.items()}
    return {"prompt": turns, **replies, **label}


def examples_for(
    trainer: Callable[..., Any], words: Sequence[int], sides: Sequence[str], *, chat: bool, ends: bool = False
) -> list[dict[str, Any]]:
    """The rows of a data set for this trainer, which have a label only in modules that read one."""
    labeled = '"label"' in inspect.getsource(importlib.import_module(trainer.__module__))
    rows = [example(row, n, sides, chat=chat, ends=ends) for row, n in enumerate(words)]
    return [{name: part for name, part in row.items() if name != "label" or labeled} for row in rows]


def expected_tokens(tokenizer: Any, row: dict[str, Any], side: str, *, chat: bool) -> tuple[list[int], list[int]]:  # noqa: ANN401 - a tokenizer
    """The expected tokens of the prompt, and of the completion with one EOS."""
    if not chat:
        completion = [token for token in ids_of(tokenizer, row[side]) if token != END]
        return ids_of(tokenizer, row["prompt"]), [*completion, END]
    whole = tokenizer.apply_chat_template([*row["prompt"], *row[side]], tokenize=False)
    before = tokenizer.apply_chat_template(row["prompt"], tokenize=False, add_generation_prompt=True)
    prompt = ids_of(tokenizer, before)
    return prompt, ids_of(tokenizer, whole)[len(prompt) :]


def ids_of(tokenizer: Any, text: str) -> list[int]:  # noqa: ANN401 - a tokenizer
    """The tokens of a text, without special tokens at its start or end."""
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def prepared_tokens(row: dict[str, Any], side: str) -> tuple[list[int], list[int]]:
    """The tokens of a prepared row before its first trained token, and its trained tokens.

    Without labels or a mask: the columns of the prompt and of the completion.
    """
    names = (f"{side}_input_ids", f"{side}_ids", f"input_ids_{side}", "input_ids")
    ids = list(next(row[name] for name in names if name in row))
    labels = row.get(f"{side}_labels") or row.get("labels")
    if labels is None:
        trained = row.get("completion_mask")
        if trained is None:
            return list(row.get("prompt_ids") or row.get("prompt_input_ids") or []), ids
    else:
        trained = [label != -100 for label in labels]
    first = next((n for n, trains in enumerate(trained) if trains), len(ids))
    return ids[:first], [token for token, trains in zip(ids[first:], trained[first:], strict=True) if trains]


def compare_rows(  # noqa: PLR0913 - a trainer, its data, and the settings
    trainer: Callable[..., Any], sides: Sequence[str], lengths: Tensor, *, chat: bool, starts: bool, ends: bool
) -> dict[str, list[float]]:
    """Count, per row, the trained tokens, the wrong tokens, and the tokens with a wrong mask.

    One BOS token at the start of a row is optional, unless the chat template has one.
    """
    words = lengths.sum(1).tolist()
    rows = examples_for(trainer, words, sides, chat=chat, ends=ends)
    ready = make_pair_trainer(trainer, rows=rows, tokenizer=make_starting_tokenizer if starts else make_tokenizer)
    tokenizer = getattr(ready, "processing_class", None) or ready.tokenizer
    count, off, wrong = [], [], []
    for row, prepared in zip(rows, ready.train_dataset, strict=True):
        found = {side: prepared_tokens(prepared, side) for side in sides}
        counts = [differences(expected_tokens(tokenizer, row, side, chat=chat), found[side]) for side in sides]
        count.append(float(sum(len(completion) for _, completion in found.values())))
        off.append(float(sum(tokens for tokens, _ in counts)))
        wrong.append(float(sum(masks for _, masks in counts)))
    return {"count": count, "tokens": off, "masks": wrong}


def differences(expected: tuple[list[int], list[int]], found: tuple[list[int], list[int]]) -> tuple[float, float]:
    """The number of wrong tokens and, if it is 0, the number of tokens by which the start of the completion is off."""
    before, prompt = found[0], expected[0]
    before = before[1:] if before[:1] in OPTIONAL and prompt[:1] != before[:1] else before
    whole, right = [*before, *found[1]], [*prompt, *expected[1]]
    unlike = count_differences(whole, right)
    return unlike, 0 if unlike else abs(len(before) - len(prompt))
