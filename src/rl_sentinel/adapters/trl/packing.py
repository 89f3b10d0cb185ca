"""TRL's sequence packing: how often each token is used, and with which label."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import ResponseMask
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.pair_codecs import NoPadding
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

PACK = "trl.data_utils.pack_dataset"

#: Packing strategies that keep all tokens of sequences that fit.
STRATEGIES = ("bfd", "bfd_split", "bfd-requeue", "ffd", "wrapped")

#: A packed sequence may exceed the longest sequence by this many tokens.
ROOM = 2

_PACKED = "data_utils.py, pack_dataset, docstring: sequences are packed into chunks; boundaries or all tokens are kept"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of each packing strategy."""
    if target.has(PACK) and not target.fails(PACK):
        source = inspect.getsource(inspect.getmodule(target.find(PACK)))  # type: ignore[arg-type]  # a function has a module
        yield from bindable(target, *(_packing(name) for name in STRATEGIES if f'"{name}"' in source))


def _packing(strategy: str) -> Boundary:
    return one_call(
        path=PACK,
        stage="batch",
        call=uses_in_packs,
        name="uses",
        arguments={
            "pack": Constant(Function(PACK)),
            "lengths": ResponseMask(NoPadding()),
            "strategy": Knob("strategy"),
        },
        remembered=True,
        produced_by={"lengths": "sft_trainer.py, _prepare_dataset: tokenized sequences, then pack_dataset"},
        outputs={"uses": Output("B", "count", "uses", at=Use("uses"), form=PerRow("list"))},
        settings={strategy: {"strategy": strategy}},
        claims=claims(_PACKED),
        reach=f"packing=True, packing_strategy={strategy}",
        requires=(no_empty_response,),
    )


def uses_in_packs(pack: Callable[..., Any], lengths: Tensor, strategy: str) -> list[float]:
    """Pack sequences; return how many of each sequence's tokens have a correct label, divided by its length.

    The result is 0 for a sequence whose tokens are reordered.
    """
    from datasets import Dataset  # noqa: PLC0415 - in the target's overlay

    counts = lengths.sum(1).tolist()
    rows = [[100 * (row + 1) + n for n in range(count)] for row, count in enumerate(counts)]
    whole = Dataset.from_dict({"input_ids": rows, "labels": [[-token for token in row] for row in rows]})
    packed = pack(whole, max(counts) + ROOM, strategy)
    pairs = [pair for pack_ in packed for pair in zip(pack_["input_ids"], pack_["labels"], strict=True)]
    correct = [token for token, label in pairs if label == -token]
    by_row = [[token for token in correct if token // 100 == row + 1] for row in range(len(rows))]
    return [len(own) / len(ids) if sorted(own) == own else 0.0 for own, ids in zip(by_row, rows, strict=True)]
