"""TRL's distillation on buffered completions: a check that each completion is trained after the correct prompt."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import ResponseMask
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.requirements import enough_words, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Knob, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.inline_prompts import LIMIT, text_of
from rl_sentinel.adapters.trl.pair_codecs import NoPadding
from rl_sentinel.adapters.trl.rollout_batch import FILL, id_tokens
from rl_sentinel.adapters.trl.tiny_trainer import END, PADDING, WORDS, make_byte_tokenizer
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Inputs

#: The methods that sample completions and write the training rows into a buffer.
METHODS = (
    "trl.experimental.gold.gold_trainer.GOLDTrainer._generate_on_policy_for_slices",
    "trl.experimental.distillation.distillation_trainer.DistillationTrainer._generate_student_completions",
)

_BUFFER = (
    "gold_trainer.py, _fill_buffer: slices of collated prompts; the student trains on the prompts and completions that "
    "are written into _buffered_inputs"
)


class Student:
    """A fake ``vllm_generation``, which returns known completions in order and records the prompts."""

    def __init__(self, completions: list[list[int]]) -> None:
        """Store the completions."""
        self.completions = completions
        self.read: list[list[int]] = []

    def generate(self, prompts: list[list[int]], **_options: object) -> tuple[Any, ...]:
        """The completions, without log-probs."""
        self.read = [list(ids) for ids in prompts]
        return prompts, self.completions, None, None


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the rows that each trainer with vLLM buffers, with prompts that fit and with truncated prompts."""
    for path in METHODS:
        if target.has(path) and not target.fails(path.rpartition(".")[0]):
            yield from bindable(target, *(_rows(path, limited=limited) for limited in (False, True)))


def sampled_slices(
    entry: Callable[..., Any], trainer: type, lengths: Tensor, *, limited: bool
) -> dict[str, list[float]]:
    """Sample completions with a fake vLLM engine, and compare the trainer's buffer with the rows of the engine.

    Args:
        entry: the trainer's method that samples.
        trainer: the trainer's class.
        lengths: ``[B, T]``, True for each token of a completion.
        limited: whether ``max_length`` truncates the prompts to :data:`LIMIT` tokens.

    Returns:
        Per row, ``count``: the number of trained tokens; ``others``: how many of prompt and completion differ (0 to 2).
    """
    counts, tokenizer = lengths.sum(1).tolist(), make_byte_tokenizer()
    rows = [[*id_tokens(row), *[FILL] * (count - 1), END] for row, count in enumerate(counts)]
    longest = max(map(len, rows))
    ids = [torch.tensor(tokenizer(text_of(n), add_special_tokens=False)["input_ids"]) for n in range(len(rows))]
    student = Student(rows)
    ready = bare_instance(
        trainer,
        processing_class=tokenizer,
        _tokenizer=tokenizer,
        vllm_generation=student,
        use_vllm=True,
        vllm_sync_frequency=1,
        _last_vllm_sync_step=0,
        state=SimpleNamespace(global_step=0),
        accelerator=SimpleNamespace(device=torch.device("cpu"), is_main_process=True),
        args=SimpleNamespace(max_length=longest + LIMIT if limited else None, report_to=[]),
        generation_config=SimpleNamespace(max_new_tokens=longest),
        num_generations=1,
        use_uld_loss=False,
        _buffered_inputs=[None],
        _buffered_text_logs=[None],
    )
    mask = [torch.ones_like(one) for one in ids]
    prompts, attention = (left_padded(column) for column in (ids, mask))
    entry(ready, [{"prompts": prompts, "prompt_attention_mask": attention}], [0])
    (made,) = ready._buffered_inputs  # noqa: SLF001 - where the trainer reads what it trains on
    others, trained = [], made["labels"] != -100
    for row, own in enumerate(rows):
        kept = made["attention_mask"][row].bool()
        prompt = made["input_ids"][row][kept & ~trained[row]].tolist()
        others.append(
            float(prompt != student.read[row]) + float(made["input_ids"][row][kept & trained[row]].tolist() != own)
        )
    return {"count": trained.sum(1).tolist(), "others": others}


def left_padded(rows: list[Tensor]) -> Tensor:
    """Rows of token ids or of a mask, padded on the left."""
    return pad_sequence([row.flip(0) for row in rows], batch_first=True, padding_value=PADDING).flip(1)


def few_rows(inputs: Inputs) -> str:
    """The reason to skip a batch with more prompts than distinct words (each prompt needs one word); else empty."""
    return enough_words(inputs.batch.rows, WORDS)


def _rows(path: str, *, limited: bool) -> Boundary:
    form = PerRow("list")
    return one_call(
        path=path,
        stage="batch",
        call=sampled_slices,
        name="made",
        arguments={
            **functions(entry=path, trainer=path.rpartition(".")[0]),
            "lengths": ResponseMask(NoPadding()),
            "limited": Knob("limited"),
        },
        produced_by={"lengths": _BUFFER},
        outputs={
            "trained tokens": Output("B", "tokens", at=Use("made")["count"], form=form),
            "number of columns from other samples": Output(
                "B", "count", "columns_of_others", at=Use("made")["others"], form=form
            ),
        },
        settings={"prompts of any length" if not limited else "prompts, truncated": {"limited": limited}},
        claims=claims(_BUFFER),
        reach="use_vllm=True" + (", max_length set" if limited else ""),
        requires=(no_empty_response, few_rows),
    )
