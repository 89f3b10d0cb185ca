"""AReaL's batching: trajectories are padded and concatenated to a batch, and split again."""

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.areal.arguments import ROLLOUT, padded_to_longest, rollout
from rl_sentinel.adapters.areal.micro_batches import KEYS
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import PromptIds
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.forms import Cast
from rl_sentinel.adapters.kit.requirements import no_empty_response, prompts_are_contiguous
from rl_sentinel.adapters.kit.sequences import RaggedSequence
from rl_sentinel.adapters.kit.value_codecs import functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims

DATA = "areal.utils.data"
FUNCTIONS = tuple(f"{DATA}.{name}" for name in ("concat_padded_tensors", "concat_batch", "split_batch"))

_CALLER = (
    "areal/infra/workflow_executor.py: concat_padded_tensors of the trajectories of a prompt; areal/utils/data.py, "
    "batched_call: concat_batch of all prompts, split_batch of the engine's result"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The boundary of concatenating trajectories to a batch and splitting it by prompt."""
    if all(target.has(path) for path in FUNCTIONS):
        yield from bindable(target, _batches())


def concat_and_split(
    pad: Callable[..., Any],
    concat: Callable[..., Any],
    split: Callable[..., Any],
    rows: list[dict[str, Tensor]],
    prompts: list[int],
) -> dict[str, dict[str, Any]]:
    """Concatenate trajectories to a batch, split it, and return the sequences of batch and parts without padding."""
    trajectories = iter([without_padding(row) for row in rows])
    batch, metadata = concat([pad([next(trajectories) for _ in group]) for _, group in groupby(prompts)])
    parts = split(batch, metadata)
    return {"batch": _sequences([batch]), "parts": _sequences(parts)}


def without_padding(row: dict[str, Tensor]) -> dict[str, Tensor]:
    """A trajectory as a workflow returns it: one row without padding."""
    length = int(row["attention_mask"].sum())
    return {key: value[:, :length] if value.dim() > 1 else value for key, value in row.items()}


def _sequences(parts: list[dict[str, Tensor]]) -> dict[str, Any]:
    columns: dict[str, Any] = {key: [] for key in KEYS.values()}
    for part in parts:
        lengths = part["attention_mask"].long().sum(1).tolist()
        for key, sequences in columns.items():
            sequences += [row[:length] for row, length in zip(part[key], lengths, strict=True)]
    return {**columns, "rewards": torch.cat([part["rewards"] for part in parts])}


def _batches() -> Boundary:
    names = ("pad", "concat", "split")
    form = RaggedSequence()
    outputs: dict[str, Output] = {}
    for place in ("batch", "parts"):
        result = Use("results")[place]
        outputs |= {
            f"{column} of {place}": Output(
                "B T", "", column, at=result[key], form=Cast(form, torch.bool) if column == "mask" else form
            )
            for column, key in KEYS.items()
        }
        outputs[f"reward of {place}"] = Output("B", "reward", "reward", at=result["rewards"])
    return one_call(
        path=" -> ".join(FUNCTIONS),
        stage="batch",
        call=concat_and_split,
        name="results",
        arguments={
            **functions(**dict(zip(names, FUNCTIONS, strict=True))),
            "rows": EachRow(Table(rollout().parts)),
            "prompts": PromptIds("list"),
        },
        produced_by={"rows": f"{ROLLOUT}; {_CALLER}"},
        unused=frozenset({"prompt_length"}),
        outputs=outputs,
        claims=claims(
            "utils/data.py, concat_padded_tensors: concatenate and pad tensors; attention_mask is always zero-padded; "
            "split_batch: inverse of concat_batch",
            conserves=True,
        ),
        reach="every run",
        requires=(padded_to_longest, prompts_are_contiguous, no_empty_response),
    )
