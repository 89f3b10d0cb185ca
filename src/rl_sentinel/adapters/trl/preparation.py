"""TRL's data preparation: tokens compared with the chat template, and which tokens are trained."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import ResponseMask
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.pair_codecs import NoPadding
from rl_sentinel.adapters.trl.preference_trainers import make_pair_trainer
from rl_sentinel.adapters.trl.preferences import CPO, CPO_NOW, DPO, ORPO, ORPO_NOW, trainer_path
from rl_sentinel.adapters.trl.release import fields_of
from rl_sentinel.adapters.trl.supervised import SFT
from rl_sentinel.adapters.trl.tiny_trainer import END
from rl_sentinel.adapters.trl.unpaired import KTO, KTO_BEFORE
from rl_sentinel.core.batch import Batch, take_rows, with_columns
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

#: Rows and tokens of a case at most: what is made of a row does not depend on more of them.
ROWS, TOKENS = 2, 3

_FORMATS = (
    "docs/source/dataset_formats.md: conversational data is laid out by the chat template, and is ready as it is; to "
    "plain text the trainer adds the token that ends a completion"
)


@dataclass(frozen=True)
class Kind:
    """A trainer's places in the releases, and the columns of its data set that are completions of a prompt."""

    places: tuple[str, ...]
    sides: tuple[str, ...]


KINDS = (
    Kind((DPO,), ("chosen", "rejected")),
    Kind((CPO, CPO_NOW), ("chosen", "rejected")),
    Kind((ORPO, ORPO_NOW), ("chosen", "rejected")),
    Kind((KTO, KTO_BEFORE), ("completion",)),
    Kind((SFT,), ("completion",)),
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The data set of each trainer that prepares one in its constructor, from conversations and from plain text."""
    for kind in KINDS:
        path = trainer_path(target, *kind.places)
        if not target.has(path) or target.fails(path) or not fields_of(target, path):
            continue
        source = inspect.getsource(inspect.getmodule(target.find(path)))  # type: ignore[arg-type]  # a class has a module
        if ("apply_chat_template" in source and '"completion_mask"' in source) or path != SFT:
            yield from bindable(target, _prepared(path, kind, "conversations", chat=True))
        if "eos_token" in source and (path != SFT or "Adding EOS" in source):
            yield from bindable(target, _prepared(path, kind, "plain text", chat=False))


def _prepared(path: str, kind: Kind, name: str, *, chat: bool) -> Boundary:
    step = Step(
        call=prepared_rows,
        name="differ",
        arguments={
            "trainer": Constant(Function(path)),
            "sides": Constant(kind.sides),
            "lengths": ResponseMask(NoPadding()),
            "chat": Knob("conversational"),
        },
        remembered=True,
        produced_by={"lengths": _FORMATS},
    )
    form, place = PerRow("list"), Use("differ")
    return Boundary(
        path=path,
        stage="batch",
        steps=(step,),
        outputs={
            "tokens": Output("B", "tokens", at=place["count"], form=form),
            "tokens unlike the template": Output("B", "tokens", "tokens_off_template", at=place["tokens"], form=form),
            "mask unlike the replies": Output("B", "tokens", "mask_off_replies", at=place["masks"], form=form),
        },
        settings={name: {"conversational": chat}},
        claims=claims(_FORMATS),
        reach=f"the constructor, with a data set of {name}",
        requires=(no_empty_response,),
        domain=a_few_rows,
    )


def a_few_rows(batch: Batch) -> Batch:
    """Few rows and tokens, one of them at least in each row; the batch itself if it is so."""
    few = take_rows(batch, torch.arange(min(batch.rows, ROWS))) if batch.rows > ROWS else batch
    length = few.length.clamp(1, TOKENS)
    return few if bool((length == few.length).all()) else with_columns(few, length=length)


def example(row: int, words: int, sides: Sequence[str], *, chat: bool) -> dict[str, Any]:
    """A row of a data set: a question, of several turns in odd rows of conversations, and its completions."""
    texts = {side: " ".join(f"w{3 + n + 5 * s}" for n in range(words)) for s, side in enumerate(sides)}
    label = {"label": row % 2 == 0} if tuple(sides) == ("completion",) else {}
    if not chat:
        return {"prompt": "w1 w2", **{side: f" {text}" for side, text in texts.items()}, **label}
    turns = [{"role": "user", "content": "w1 w2"}]
    if row % 2:
        turns += [{"role": "assistant", "content": "w2"}, {"role": "user", "content": "w1"}]
    replies = {side: [{"role": "assistant", "content": text}] for side, text in texts.items()}
    return {"prompt": turns, **replies, **label}


def wanted(tokenizer: Any, one: dict[str, Any], side: str, *, chat: bool) -> tuple[list[int], list[int]]:  # noqa: ANN401 - a tokenizer
    """The tokens of the prompt, and those of a completion with its end."""
    if not chat:
        return ids_of(tokenizer, one["prompt"]), [*ids_of(tokenizer, one[side]), END]
    whole = tokenizer.apply_chat_template([*one["prompt"], *one[side]], tokenize=False)
    before = tokenizer.apply_chat_template(one["prompt"], tokenize=False, add_generation_prompt=True)
    prompt = ids_of(tokenizer, before)
    return prompt, ids_of(tokenizer, whole)[len(prompt) :]


def ids_of(tokenizer: Any, text: str) -> list[int]:  # noqa: ANN401 - a tokenizer
    """The tokens of a text, without those that start or end a sequence."""
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def made(row: dict[str, Any], side: str) -> tuple[list[int], list[int]]:
    """The tokens that a prepared row has before a completion, and those of the completion that train."""
    names = (f"{side}_input_ids", f"{side}_ids", f"input_ids_{side}", "input_ids")
    ids = list(next(row[name] for name in names if name in row))
    labels = row.get(f"{side}_labels") or row.get("labels")
    if labels is None:
        trained = row.get("completion_mask")
        if trained is None:
            return list(row.get("prompt_ids") or row.get("prompt_input_ids") or []), ids
    else:
        trained = [label != -100 for label in labels]
    first = next((n for n, one in enumerate(trained) if one), len(ids))
    return ids[:first], [token for token, one in zip(ids[first:], trained[first:], strict=True) if one]


def prepared_rows(
    trainer: Callable[..., Any], sides: Sequence[str], lengths: Tensor, *, chat: bool
) -> dict[str, list[float]]:
    """How many tokens each row has, at how many it differs from the template, and how many train wrongly or do not.

    A first token that only starts sequences may be there or not.
    """
    words = lengths.sum(1).tolist()
    rows = [example(row, n, sides, chat=chat) for row, n in enumerate(words)]
    ready = make_pair_trainer(trainer, rows=rows)
    tokenizer = getattr(ready, "processing_class", None) or ready.tokenizer
    count, off, wrong = [], [], []
    for one, found in zip(rows, ready.train_dataset, strict=True):
        unlike = [_differences(wanted(tokenizer, one, side, chat=chat), made(found, side)) for side in sides]
        count.append(float(sum(len(made(found, side)[1]) for side in sides)))
        off.append(float(sum(tokens for tokens, _ in unlike)))
        wrong.append(float(sum(masks for _, masks in unlike)))
    return {"count": count, "tokens": off, "masks": wrong}


def _differences(expected: tuple[list[int], list[int]], found: tuple[list[int], list[int]]) -> tuple[int, int]:
    """Tokens that differ, and where none does, by how many tokens the completion starts elsewhere."""
    before, prompt = found[0], expected[0]
    before = before[1:] if before[:1] == [END] and prompt[:1] != [END] else before
    whole, right = [*before, *found[1]], [*prompt, *expected[1]]
    unlike = sum(a != b for a, b in zip(whole, right, strict=False)) + abs(len(whole) - len(right))
    return unlike, 0 if unlike else abs(len(before) - len(prompt))
