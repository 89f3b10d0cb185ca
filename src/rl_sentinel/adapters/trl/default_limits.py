"""TRL's data sets with rows of a few tokens, under the limits that a configuration has by default: nothing is cut."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import ResponseMask
from rl_sentinel.adapters.kit.containers import Table
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.dataset_preparation import (
    KINDS,
    Kind,
    a_few_rows,
    adds_end_token,
    differences,
    examples_for,
    expected_tokens,
)
from rl_sentinel.adapters.trl.pair_codecs import NoPadding
from rl_sentinel.adapters.trl.preference_trainers import make_pair_trainer
from rl_sentinel.adapters.trl.preferences import trainer_path
from rl_sentinel.adapters.trl.release import fields_of
from rl_sentinel.adapters.trl.token_differences import mask_output, token_outputs
from rl_sentinel.adapters.trl.truncated_rows import SEPARATE, final_rows
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

#: Fields of a configuration that limit rows.
LIMITS = ("max_length", "max_prompt_length", "max_completion_length")

_DOCS = (
    "dpo_config.py, cpo_config.py, kto_config.py, sft_config.py, docstrings: max_length, max_prompt_length and "
    "max_completion_length are numbers of tokens, of hundreds by default, or None for no limit"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the data set of each trainer that ends plain text, where a limit has a default."""
    for kind in KINDS:
        path = trainer_path(target, *kind.paths)
        if not target.has(path) or target.fails(path):
            continue
        source = inspect.getsource(inspect.getmodule(target.find(path)))  # type: ignore[arg-type]  # a class has a module
        limits = default_limits(target, path)
        if limits and adds_end_token(path, source) and any(mark in source for mark in SEPARATE):
            yield from bindable(target, _short_rows(path, kind, limits))


def default_limits(target: Target, path: str) -> Settings:
    """The limits that a trainer's configuration has by default, without those that are None."""
    defaults = {name: field.default for name, field in fields_of(target, path).items() if name in LIMITS}
    return {name: limit for name, limit in defaults.items() if isinstance(limit, int)}


def _short_rows(path: str, kind: Kind, limits: Settings) -> Boundary:
    result = Use("differ")
    return one_call(
        path=path,
        stage="batch",
        call=compare_short_rows,
        name="differ",
        arguments={
            "trainer": Constant(Function(path)),
            "sides": Constant(kind.sides),
            "lengths": ResponseMask(NoPadding()),
            "limits": Table({field: Constant(limit) for field, limit in limits.items()}),
        },
        remembered=True,
        produced_by={"limits": "the configuration's constructor, without these fields"},
        outputs=token_outputs(result) | mask_output(result),
        settings={"short rows, limits by default": {}},
        claims=claims(_DOCS),
        reach="the constructor, with a data set of plain text",
        requires=(no_empty_response,),
        domain=a_few_rows,
    )


def compare_short_rows(
    trainer: Callable[..., Any], sides: Sequence[str], lengths: Tensor, limits: Mapping[str, Any]
) -> dict[str, list[float]]:
    """Build a trainer with these limits, and compare the rows that it trains on with the whole rows.

    Returns, per row and for all sides, ``count``: the number of trained tokens; ``tokens``: the number of wrong tokens;
    and ``masks``: the number of tokens with a wrong mask.
    """
    rows = examples_for(trainer, lengths.sum(1).tolist(), sides, chat=False)
    ready = make_pair_trainer(trainer, rows=rows, **limits)
    tokenizer = getattr(ready, "processing_class", None) or ready.tokenizer
    total = torch.zeros(len(rows), 3)
    for number, side in enumerate(sides):
        for place, (row, final) in enumerate(zip(rows, final_rows(ready, sides, number), strict=True)):
            wrong = differences(expected_tokens(tokenizer, row, side, chat=False), (final.before, final.trained))
            total[place] += torch.tensor([len(final.trained), *wrong])
    return dict(zip(("count", "tokens", "masks"), total.T.tolist(), strict=True))
