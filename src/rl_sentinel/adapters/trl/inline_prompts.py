"""The prompts that vLLM reads and that TRL trains, in releases whose trainer calls the engine directly."""

from collections.abc import Callable, Iterator
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow, Object, Table
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.requirements import (
    enough_words,
    groups_are_equal,
    no_empty_response,
    prompts_are_contiguous,
)
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.value_codecs import Constant, IfSet, constants
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import TRAINERS, Prompts
from rl_sentinel.adapters.trl.inline_engine_fakes import last_word, make_inline_sampler, sample_inline
from rl_sentinel.adapters.trl.release import fields_of
from rl_sentinel.adapters.trl.sampling import collectives, engines_of, is_inline, sampling_path
from rl_sentinel.adapters.trl.tiny_trainer import WORDS, make_byte_tokenizer
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Inputs

#: Tokens that a prompt may have.
LIMIT = 5

#: The number of words of prompts before the special token, in turn: some prompts are cut, others padded.
_WORDS = (3, 0, 2, 1)

_ONE_PROMPT = (
    "grpo_trainer.py, _generate_and_score_completions: prompt_ids and completion_ids are concatenated for training, so "
    "the completion must be sampled after these prompt_ids"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the prompts of each engine: whole, and also truncated in releases with a length limit."""
    for kind, owner in TRAINERS.items():
        path = sampling_path(target, owner)
        if not target.has(path) or target.fails(owner) or not is_inline(target, path):
            continue
        limits: list[Settings] = [{}, *([{"limit": LIMIT}] if "max_prompt_length" in fields_of(target, owner) else [])]
        for engine in engines_of(target, path):
            yield from bindable(target, *(_prompts(target, path, kind, engine, settings) for settings in limits))


def make_text_sampler(kind: str, engine: str, limit: int | None = None) -> Any:  # noqa: ANN401 - a trainer
    """A trainer with a byte-level tokenizer. A space is part of the next word's token; special tokens have no space."""
    trainer = make_inline_sampler(kind, engine, {})
    trainer.processing_class, trainer.max_prompt_length = make_byte_tokenizer(), limit
    return trainer


def text_of(label: int) -> str:
    """The prompt for a label: 0 to 3 words, a special token, and a word with the label."""
    return " ".join([*["w20"] * _WORDS[label % len(_WORDS)], f"<eos> w{label}"])


def compare_prompts(
    entry: Callable[..., Any],
    trainer: Any,  # noqa: ANN401 - a trainer
    prompts: list[dict[str, str]],
    rows: list[dict[str, Any]],
) -> dict[str, list[float]]:
    """Compare each trained prompt with the prompt that the engine read.

    Returns ``count``, the number of tokens of the trained prompt; ``others``, 1 if the prompts differ; and ``more``,
    the number of additional tokens in the engine's prompt.
    """
    labels = {text: number for number, text in enumerate(dict.fromkeys(row["prompt"] for row in prompts))}
    texts = [text_of(labels[row["prompt"]]) for row in prompts]
    sampled = [([5] * len(row["tokens"]), [0.0] * len(row["tokens"])) for row in rows]
    (answer,), engine = sample_inline(entry, trainer, texts, sampled, 1)
    trained = [list(ids) for ids in answer["prompt_ids"]]
    read = [engine.seen.get(last_word(engine.tokenizer, ids)) or [] for ids in trained]
    return {
        "count": [float(len(ids)) for ids in trained],
        "others": [float(seen != ids) for seen, ids in zip(read, trained, strict=True)],
        "more": [float(max(0, len(seen) - len(ids))) for seen, ids in zip(read, trained, strict=True)],
    }


def few_prompts(inputs: Inputs) -> str:
    """The reason to skip a batch with more prompts than distinct words; empty otherwise.

    Each prompt must end with a different word.
    """
    return enough_words(len(set(inputs.batch.group.tolist())), WORDS)


def _prompts(target: Target, path: str, kind: str, engine: str, settings: Settings) -> Boundary:
    parts = {**constants(kind=kind, engine=engine), **{name: IfSet(name) for name in settings}}
    form, result = PerRow("list"), Use("compared")
    return one_call(
        path=path,
        stage="batch",
        call=compare_prompts,
        name="compared",
        arguments={
            "entry": Constant(Function(path)),
            "trainer": Object(make_text_sampler, parts, at={"limit": "max_prompt_length"}, shared=True),
            "prompts": Prompts(),
            "rows": EachRow(Table({"tokens": RowTokens("token", "int")})),
        },
        fakes=collectives(target, path),
        produced_by={"prompts": "grpo_trainer.py, _get_train_sampler: num_generations consecutive rows per prompt"},
        unused=frozenset({"token"}),
        outputs={
            "tokens of the prompt": Output("B", "tokens", at=result["count"], form=form),
            "prompt of the sampled completion": Output(
                "B", "count", "columns_of_others", at=result["others"], form=form
            ),
            "tokens that only the engine reads": Output(
                "B", "tokens", "columns_of_others", at=result["more"], form=form
            ),
        },
        settings={f"prompts, {engine}, truncated" if settings else f"prompts, {engine}": settings},
        claims=claims(_ONE_PROMPT),
        reach=f"use_vllm=True, vllm_mode={engine}" + (f", max_prompt_length={LIMIT}" if settings else ""),
        requires=(no_empty_response, prompts_are_contiguous, groups_are_equal, few_prompts),
    )
