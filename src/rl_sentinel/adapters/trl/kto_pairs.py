"""The pairs of TRL's KTO for its KL term: the completion of each row with the prompt of another row of the batch."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import ResponseMask
from rl_sentinel.adapters.kit.requirements import enough_words, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.dataset_preparation import a_few_rows
from rl_sentinel.adapters.trl.kto import KTO, KTO_EXPERIMENTAL
from rl_sentinel.adapters.trl.pair_codecs import NoPadding
from rl_sentinel.adapters.trl.preference_trainers import make_pair_trainer
from rl_sentinel.adapters.trl.preferences import trainer_path
from rl_sentinel.adapters.trl.release import fields_of
from rl_sentinel.adapters.trl.tiny_trainer import make_tokenizer
from rl_sentinel.adapters.trl.token_differences import ROWS
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Inputs

#: Setting -> the number of rows of a batch.
BATCHES = {"batches of two": 2, "batches of three": 3}

#: The word of completion n is ``w{COMPLETION + n}``, that of its prompt is ``wn``.
COMPLETION = 10

_DOCS = (
    "kto_trainer.py, the KL data set: mismatched pairs of prompts and completions; the mismatched outputs y' that "
    "estimate the KL term of a batch are the outputs y of that batch, paired with other prompts"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the pairs in the batches of the trainer's data loader."""
    path = trainer_path(target, KTO, KTO_EXPERIMENTAL)
    if not target.has(path) or target.fails(path) or not fields_of(target, path):
        return
    if '"KL_' in inspect.getsource(inspect.getmodule(target.find(path))):  # type: ignore[arg-type]  # a class has a module
        yield from bindable(target, _pairs(path))


def paired_rows(trainer: Callable[..., Any], lengths: Tensor, size: int) -> dict[str, list[float]]:
    """Load one batch per row of ``lengths``; each of its completions has as many tokens as that row.

    Returns, per batch, ``count``: the number of tokens of its completions; ``uses``: with how many other prompts a
    completion is paired; and ``near``: how many of these pairs are in a batch with the completion itself. If these
    numbers differ within a batch, the first number that is not 1 is returned.
    """
    words = [length for length in lengths.sum(1).tolist() for _ in range(size)]
    rows = [
        {"prompt": f"w{n}", "completion": f" w{COMPLETION + n}" * count, "label": n % 2 == 0}
        for n, count in enumerate(words)
    ]
    ready = make_pair_trainer(trainer, rows=rows, per_device_train_batch_size=size)
    tokens = make_tokenizer()(" ".join(f"w{n}" for n in range(COMPLETION + len(rows))))["input_ids"]
    numbers = {token: n for n, token in enumerate(tokens)}
    uses, near, counts = ([0] * len(rows) for _ in range(3))
    for batch in batches_of(ready):
        own = [_words(ids, numbers) for ids in _column(batch, "")]
        for _, found in own:
            counts[found[0]] = len(found)
        for prompt, found in (_words(ids, numbers) for ids in _column(batch, "KL_")):
            uses[found[0]] += int(found[0] != prompt)
            near[found[0]] += int(found[0] != prompt and any(found[:1] == other[:1] for _, other in own))
    blocks = [slice(start, start + size) for start in range(0, len(rows), size)]
    return {
        "count": [float(sum(counts[block])) for block in blocks],
        "uses": [float(next((n for n in uses[block] if n != 1), 1)) for block in blocks],
        "near": [float(next((n for n in near[block] if n != 1), 1)) for block in blocks],
    }


def batches_of(trainer: Any) -> Any:  # noqa: ANN401 - a trainer, an iterable of batches
    """The trainer's data loader; newer transformers pass the data set to the method that makes the sampler."""
    sampler = getattr(trainer, "_get_train_sampler", None)
    if sampler is not None and not inspect.signature(sampler).parameters:
        trainer._get_train_sampler = lambda *_dataset: sampler()  # noqa: SLF001 - that method
    return trainer.get_train_dataloader()


def _column(batch: dict[str, Any], prefix: str) -> list[list[int]]:
    """The token ids of each row of a batch, prompt and completion; in some releases, the column has a longer name."""
    name = next(name for name in (f"{prefix}completion_input_ids", f"{prefix}input_ids") if name in batch)
    ids: list[list[int]] = batch[name].tolist()
    return ids


def _words(ids: list[int], numbers: dict[int, int]) -> tuple[int, list[int]]:
    """The number of the prompt, and that of the completion, once for each of its tokens."""
    words = [numbers[token] for token in ids if token in numbers]
    prompt = next(word for word in words if word < COMPLETION)
    return prompt, [word - COMPLETION for word in words if word >= COMPLETION]


def few_batches(inputs: Inputs) -> str:
    """The reason to skip a batch whose prompts are too many for distinct words; empty otherwise."""
    return enough_words(inputs.batch.rows * max(BATCHES.values()), COMPLETION)


def _pairs(path: str) -> Boundary:
    result = Use("pairs")
    settings: dict[str, Settings] = {name: {"per_device_train_batch_size": size} for name, size in BATCHES.items()}
    return one_call(
        path=path,
        stage="batch",
        call=paired_rows,
        name="pairs",
        arguments={
            "trainer": Constant(Function(path)),
            "lengths": ResponseMask(NoPadding()),
            "size": Knob("per_device_train_batch_size"),
        },
        remembered=True,
        produced_by={"size": "kto_config.py: per_device_train_batch_size; at least 2, and no accumulation"},
        outputs={
            "tokens of the completions": Output("B", "tokens", at=result["count"], form=ROWS),
            "pairs of a completion with other prompts": Output("B", "samples", "uses", at=result["uses"], form=ROWS),
            "such pairs in its batch": Output("B", "samples", "uses", at=result["near"], form=ROWS),
        },
        settings=settings,
        claims=claims(_DOCS),
        reach="every run with loss_type=kto",
        requires=(no_empty_response, few_batches),
        domain=a_few_rows,
    )
