"""TRL's chat templating of prompts and completions, compared with the template of the whole conversation."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import ResponseMask
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import TRAINERS, WITH_TOOLS, trainer
from rl_sentinel.adapters.trl.dataset_preparation import a_few_rows, ids_of
from rl_sentinel.adapters.trl.pair_codecs import NoPadding
from rl_sentinel.adapters.trl.release import source_of
from rl_sentinel.adapters.trl.rollout_fakes import ready_to_train
from rl_sentinel.adapters.trl.sampling_engine_fakes import arguments
from rl_sentinel.adapters.trl.tiny_trainer import END, TEMPLATE, make_tokenizer
from rl_sentinel.adapters.trl.token_differences import ROWS, count_differences, token_outputs
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

APPLY = "trl.data_utils.apply_chat_template"
WORKER = "trl.experimental.async_grpo.async_rollout_worker.AsyncRolloutWorker"

#: A template that opens a thought where the assistant is asked to reply, as those of reasoning models do.
THINKING = TEMPLATE.replace("{{ 'w28 ' }}{% endif %}", "{{ 'w28 w26 ' }}{% endif %}")

#: A template with a line break after each message, as those of Qwen have.
BROKEN_LINES = TEMPLATE.replace("{{ ' <eos> ' }}", "{{ ' <eos> w25 ' }}")

#: Trainers that tokenize prompts for sampling.
SAMPLING: Mapping[str, str] = {
    **TRAINERS,
    "sdpo": "trl.experimental.sdpo.sdpo_trainer.SDPOTrainer",
    "sdft": "trl.experimental.sdft.sdft_trainer.SDFTTrainer",
}

#: Methods that give the tokens after a reply that calls a tool.
AFTER_A_CALL = (
    *(f"{TRAINERS[kind]}._get_tool_suffix_ids" for kind in WITH_TOOLS),
    f"{WORKER}._get_tool_suffix_ids",
    f"{WORKER}._build_messages_suffix_ids",
)

_PROMPTS = (
    "docs/source/dataset_formats.md: a conversational prompt ends with the generation prompt, any other prompt is text"
)
_FORMATS = "docs/source/dataset_formats.md: a prompt and its completions together are the text that the template gives"
_SUFFIX = (
    "grpo_trainer.py, _tool_call_loop; async_rollout_worker.py, _generate_one: prompt + completion + tool suffix, as "
    "the template lays out the whole"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the template of prompts and completions, the text after a tool call, and tokenized prompts."""
    if target.has(APPLY) and not target.fails(APPLY):
        for name, sides in {"pairs": ("chosen", "rejected"), "completions": ("completion",)}.items():
            for thinks in (False, True):
                yield from bindable(target, _applied(name, sides, thinks=thinks))
    for path in AFTER_A_CALL:
        if target.has(path) and not target.fails(path):
            yield from bindable(target, *(_after_a_call(path, lines=lines) for lines in (False, True)))
    for kind, owner in SAMPLING.items():
        path = _tokenizing(target, owner)
        if path:
            yield from bindable(target, *(_prompts(kind, owner, path, chat=chat) for chat in (False, True)))


def _applied(name: str, sides: tuple[str, ...], *, thinks: bool) -> Boundary:
    outputs = {side: Output("B", "tokens", "tokens_off_template", at=Use("differ")[side], form=ROWS) for side in sides}
    return one_call(
        path=APPLY,
        stage="batch",
        call=applied_rows,
        name="differ",
        arguments={
            "apply": Constant(Function(APPLY)),
            "sides": Constant(sides),
            "lengths": ResponseMask(NoPadding()),
            "thinks": Knob("thinks"),
        },
        remembered=True,
        produced_by={"lengths": "each trainer's _prepare_dataset: rows of conversations"},
        outputs={"words": Output("B", "tokens", at=Use("differ")["count"], form=ROWS), **outputs},
        settings={f"{name}, thoughts" if thinks else name: {"thinks": thinks}},
        claims=claims(_FORMATS),
        reach="conversational data, and a template that opens a reasoning block" if thinks else "conversational data",
        requires=(no_empty_response,),
        domain=a_few_rows,
    )


def reply(row: int, words: int, side: int, *, thinks: bool) -> str:
    """The words of a reply; with ``thinks``, every other reply starts inside the template's reasoning block."""
    opened = ["w26"] if thinks and (row + side) % 2 == 0 else []
    return " ".join([*opened, *(f"w{3 + n + 5 * side}" for n in range(words))])


def applied_rows(
    apply: Callable[..., Any], sides: Sequence[str], lengths: Tensor, *, thinks: bool
) -> dict[str, list[float]]:
    """Count, per row and side, the words that differ from the template of the whole conversation."""
    tokenizer = make_tokenizer()
    tokenizer.chat_template = THINKING if thinks else TEMPLATE
    found: dict[str, list[float]] = {name: [] for name in ("count", *sides)}
    for row, words in enumerate(lengths.sum(1).tolist()):
        prompt = [{"role": "user", "content": "w1 w2"}]
        texts = {side: reply(row, words, s, thinks=thinks) for s, side in enumerate(sides)}
        replies = {side: [{"role": "assistant", "content": text}] for side, text in texts.items()}
        made = apply({"prompt": prompt, **replies}, tokenizer)
        for side in sides:
            whole = tokenizer.apply_chat_template([*prompt, *replies[side]], tokenize=False).split()
            found[side].append(count_differences((made["prompt"] + made[side]).split(), whole))
        found["count"].append(float(words))
    return found


def _after_a_call(path: str, *, lines: bool) -> Boundary:
    result = Use("differ")
    return one_call(
        path=path,
        stage="batch",
        call=suffixes,
        name="differ",
        arguments={
            "entry": Constant(Function(path)),
            "lengths": ResponseMask(NoPadding()),
            "lines": Knob("line_breaks"),
        },
        produced_by={"lengths": _SUFFIX},
        outputs=token_outputs(result, "words"),
        settings={"line breaks" if lines else "plain": {"line_breaks": lines}},
        claims=claims(_SUFFIX),
        reach="tools, and a template with a line break after each message" if lines else "tools",
        requires=(no_empty_response,),
        domain=a_few_rows,
    )


def suffixes(entry: Callable[..., Any], lengths: Tensor, *, lines: bool) -> dict[str, list[float]]:
    """Count the tokens that differ from the template, in a reply with its end token and in the text after it."""
    tokenizer = make_tokenizer()
    tokenizer.chat_template = BROKEN_LINES if lines else TEMPLATE
    trainer = SimpleNamespace(
        processing_class=tokenizer,
        _tokenizer=tokenizer,
        tokenizer=tokenizer,
        chat_template=None,
        chat_template_kwargs={},
        eos_token_id=END,
        tools=None,
        _is_vlm=False,
    )
    count, off = [], []
    for words in lengths.sum(1).tolist():
        answer = {"role": "assistant", "content": reply(0, words, 0, thinks=False)}
        results = [{"role": "tool", "name": "look", "content": "w9"}]
        before = [{"role": "user", "content": "w1"}, answer]
        text = tokenizer.apply_chat_template([*before, *results], tokenize=False, add_generation_prompt=True)
        until = ids_of(tokenizer, tokenizer.apply_chat_template(before, tokenize=False))
        sampled = until[: len(until) - until[::-1].index(END)]
        off.append(count_differences([*sampled, *entry(trainer, results)], ids_of(tokenizer, text)))
        count.append(float(words))
    return {"count": count, "tokens": off}


def _tokenizing(target: Target, owner: str) -> str:
    """The trainer's method that tokenizes prompts; empty if the trainer has no such method that can be called alone."""
    if not target.has(owner) or target.fails(owner):
        return ""
    for path in (f"{owner}._tokenize_prompts", f"{owner}._generate_single_turn"):
        if target.has(path) and "processing_class" in source_of(target.find(path)):
            return path
    return ""


def _prompts(kind: str, owner: str, path: str, *, chat: bool) -> Boundary:
    samples = path.endswith("_generate_single_turn")
    return one_call(
        path=path,
        stage="batch",
        call=sampled_prompts if samples else tokenized_prompts,
        name="differ",
        arguments={
            "entry": Constant(Function(path)),
            "owner": trainer(kind, {}) if samples else Constant(Function(owner)),
            "lengths": ResponseMask(NoPadding()),
            "chat": Knob("conversations"),
        },
        produced_by={"lengths": "each trainer's _generate_and_score_completions: the column prompt of its rows"},
        outputs=token_outputs(Use("differ"), "words"),
        settings={"conversations as prompts" if chat else "texts as prompts": {"conversations": chat}},
        claims=claims(_PROMPTS),
        reach="conversational prompts" if chat else "prompts of plain text",
        requires=(no_empty_response,),
        domain=a_few_rows,
    )


def prompts_of(lengths: Tensor, *, chat: bool) -> list[Any]:
    """Prompts with as many words as the responses; every other conversation contains an earlier reply."""
    texts = [" ".join(f"w{3 + n}" for n in range(count)) for count in lengths.sum(1).tolist()]
    earlier = [{"role": "user", "content": "w1"}, {"role": "assistant", "content": "w2 w3"}]
    asked = [[*earlier[: 2 * (row % 2)], {"role": "user", "content": text}] for row, text in enumerate(texts)]
    return asked if chat else texts


def tokenized_prompts(entry: Callable[..., Any], owner: type, lengths: Tensor, *, chat: bool) -> dict[str, list[float]]:
    """Count the tokens of each prompt, tokenized by the trainer's method, that differ from the chat template."""
    tokenizer, prompts = make_tokenizer(), prompts_of(lengths, chat=chat)
    absent = ("environment_factories", "tools", "chat_template", "max_prompt_length")
    about = {"processing_class": tokenizer, "_tokenizer": tokenizer, "chat_template_kwargs": {}, "_is_vlm": False}
    found = entry(bare_instance(owner, **about, **dict.fromkeys(absent)), prompts)
    return _differences(tokenizer, prompts, found[0] if isinstance(found, tuple) else found, lengths)


def sampled_prompts(
    entry: Callable[..., Any],
    owner: Any,  # noqa: ANN401 - a trainer
    lengths: Tensor,
    *,
    chat: bool,
) -> dict[str, list[float]]:
    """Count the tokens of each prompt that differ from the chat template, in releases whose method also samples."""
    ready, prompts = ready_to_train(owner, 1), prompts_of(lengths, chat=chat)
    asked: list[list[int]] = []
    ready.model.generate = partial(_asked, asked)
    entry(ready, **arguments(entry, [[0]] * len(prompts)) | {"prompts": prompts})
    return _differences(owner.processing_class, prompts, asked, lengths)


def _asked(asked: list[list[int]], input_ids: Tensor, attention_mask: Tensor, **_options: object) -> Tensor:
    """A fake ``generate`` of the model: it records the tokens under the attention mask, and returns an end token."""
    asked += [ids[own.bool()].tolist() for ids, own in zip(input_ids, attention_mask, strict=True)]
    return torch.cat([input_ids, torch.full_like(input_ids[:, :1], END)], 1)


def _differences(tokenizer: Any, prompts: list[Any], found: list[Any], lengths: Tensor) -> dict[str, list[float]]:  # noqa: ANN401
    texts = [
        prompt
        if isinstance(prompt, str)
        else tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
        for prompt in prompts
    ]
    whole = [ids_of(tokenizer, text) for text in texts]
    off = [count_differences(list(own), ids) for own, ids in zip(found, whole, strict=True)]
    return {"count": [float(count) for count in lengths.sum(1).tolist()], "tokens": off}
