"""TRL's collator of conversations for distillation: tokens, labels and byte offsets, whole and truncated."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import ResponseMask
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.dataset_preparation import a_few_rows, ids_of
from rl_sentinel.adapters.trl.pair_codecs import NoPadding
from rl_sentinel.adapters.trl.templates import reply
from rl_sentinel.adapters.trl.tiny_trainer import make_byte_tokenizer, make_tokenizer
from rl_sentinel.adapters.trl.token_differences import ROWS, count_differences, mask_output, token_outputs
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

CHATML = ("trl.trainer.utils.DataCollatorForChatML", "trl.experimental.utils.DataCollatorForChatML")

#: How releases that keep the end of a conversation truncate it.
KEEPS_END = "[-self.max_length :]"

#: How many tokens of its prompt the conversation with the longest completion keeps.
KEPT = 2

_CHATML = "trainer/utils.py, DataCollatorForChatML: ids of the whole conversation, labels of its last message"
_TRUNCATED = "experimental/utils.py, DataCollatorForChatML, comment: the last max_length tokens are kept"
_OFFSETS = "experimental/utils.py, DataCollatorForChatML, comment: offsets in bytes, from the start of the completion"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the collator for whole conversations.

    In releases that keep the end of a long conversation, also for truncated conversations.
    """
    for path in CHATML:
        if target.has(path) and not target.fails(path) and target.find(path).__module__ == path.rpartition(".")[0]:
            source = inspect.getsource(target.find(path))
            cuts = (False, True) if KEEPS_END in source else (False,)
            yield from bindable(target, *(_collated(path, cuts=one, offsets="byte_offsets" in source) for one in cuts))


def _collated(path: str, *, cuts: bool, offsets: bool) -> Boundary:
    result = Use("differ")
    outputs = token_outputs(result, "words") | mask_output(result)
    if offsets and cuts:
        outputs["number of tokens that are not at their byte offset"] = Output(
            "B", "tokens", "tokens_off_template", at=result["offsets"], form=ROWS
        )
    return one_call(
        path=f"{path}.__call__",
        stage="batch",
        call=collated_rows,
        name="differ",
        arguments={
            "make": Constant(Function(path)),
            "lengths": ResponseMask(NoPadding()),
            "cuts": Knob("truncates"),
            "offsets": Constant(offsets and cuts),
        },
        remembered=True,
        produced_by={"lengths": "gkd_trainer.py: rows with a conversation in the column messages"},
        outputs=outputs,
        settings={"truncated conversations" if cuts else "conversations": {"truncates": cuts}},
        claims=claims(_CHATML) | (claims(f"{_TRUNCATED}; {_OFFSETS}") if cuts else claims(_CHATML)),
        reach="GKD or GOLD on conversations longer than max_length" if cuts else "GKD on conversations",
        requires=(no_empty_response,),
        domain=a_few_rows,
    )


def conversations(counts: Sequence[int]) -> list[list[dict[str, str]]]:
    """One conversation per number of words in the last reply; every other conversation has two replies."""
    rows = []
    for row, words in enumerate(counts):
        turns = [{"role": "user", "content": "w1 w2"}]
        if row % 2:
            turns += [{"role": "assistant", "content": "w2"}, {"role": "user", "content": "w1"}]
        rows.append([*turns, {"role": "assistant", "content": reply(row, words, 0, thinks=False)}])
    return rows


def collated_rows(make: Callable[..., Any], lengths: Tensor, *, cuts: bool, offsets: bool) -> dict[str, list[float]]:
    """Count, per collated row, the tokens that differ from the chat template, and the tokens with a wrong mask.

    Masks are compared only in rows whose tokens are correct. With ``cuts``, the conversation with the longest
    completion keeps :data:`KEPT` tokens of its prompt. With ``offsets``, tokens with a wrong byte offset are counted
    too.
    """
    tokenizer = make_byte_tokenizer() if offsets else make_tokenizer()
    counts = lengths.sum(1).tolist()
    rows = conversations(counts)
    texts = [tokenizer.apply_chat_template(messages, tokenize=False) for messages in rows]
    before = [
        tokenizer.apply_chat_template(messages[:-1], tokenize=False, add_generation_prompt=True) for messages in rows
    ]
    wholes = [ids_of(tokenizer, text) for text in texts]
    prompts = [len(ids_of(tokenizer, text)) for text in before]
    longest = max(len(whole) - n for whole, n in zip(wholes, prompts, strict=True)) + KEPT
    options = {"max_length": longest} if cuts else {}
    batch = make(tokenizer=tokenizer, **options)([{"messages": messages} for messages in rows])
    found: dict[str, list[float]] = {"count": [float(n) for n in counts], "tokens": [], "masks": [], "offsets": []}
    for n, whole in enumerate(wholes):
        lost = max(0, len(whole) - longest) if cuts else 0
        kept, prompt = whole[lost:], prompts[n] - lost
        present = batch["attention_mask"][n].bool()
        off = count_differences(batch["input_ids"][n][present].tolist(), kept) + _prompt_differs(
            batch, n, kept[:prompt]
        )
        trained = (batch["labels"][n][present] != -100).tolist()
        found["tokens"].append(off)
        found["masks"].append(0.0 if off else count_differences(trained, [at >= prompt for at in range(len(kept))]))
        if offsets:
            places = batch["byte_offsets"][n]
            words = [""] * prompt + [tokenizer.decode([token]) for token in kept[prompt:]]
            spans = _at_offsets(texts[n][len(before[n]) :], places[present].tolist())
            found["offsets"].append(count_differences(spans, words) + float(places[~present].ne(0).sum()))
    return found


def _prompt_differs(batch: Mapping[str, Tensor], row: int, prompt: list[int]) -> float:
    """The number of wrong tokens in the row's prompt, which the student samples from."""
    own = batch["prompts"][row][batch["prompt_attention_mask"][row].bool()]
    return count_differences(own.tolist(), prompt)


def _at_offsets(completion: str, places: list[list[int]]) -> list[str]:
    """The text of the completion between each pair of byte offsets; ``outside`` for an invalid pair."""
    text = completion.encode()
    return [text[start:end].decode() if 0 <= start <= end <= len(text) else "outside" for start, end in places]
