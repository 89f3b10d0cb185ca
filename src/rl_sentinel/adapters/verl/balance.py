"""Boundary of verl's batch balancing over ranks: the new row order, and the logged token count."""

from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.arguments import MASK_PRODUCER
from rl_sentinel.adapters.verl.row_columns import columns_by_row, numbered_data, row_outputs
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Inputs

PATH = "verl.trainer.ppo.ray_trainer.RayPPOTrainer._balance_batch"

#: Largest number of ranks in the settings; the rows must divide evenly.
RANKS = 2

#: Number of data-parallel ranks, and of model-parallel devices per rank.
_SETTINGS: Mapping[str, Settings] = {
    "one rank": {"ranks": 1},
    "two ranks": {"ranks": RANKS},
    "two ranks of two devices": {"ranks": RANKS, "devices": 2},
}

_CLAIMS = claims(
    "ray_trainer.py, _balance_batch, docstring: reorder the data such that each rank gets similar total tokens",
    conserves=True,
    output_algorithms={"tokens": "tokens of responses and of prompts of one token"},
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the trainer's balancing method, on one rank and on two ranks."""
    if target.has(PATH):
        yield from try_bind(target, PATH, "batch", lambda: [_balanced(target)])


def divides(inputs: Inputs) -> str:
    """The reason to skip a batch whose rows do not divide evenly among the ranks; empty otherwise."""
    rows = inputs.batch.rows
    return f"{rows} rows do not divide evenly among {RANKS} ranks" if rows % RANKS else ""


def balance_batch(method: Callable[..., Any], batch: Any, ranks: int, devices: int, rows: int) -> dict[str, Any]:  # noqa: ANN401 - a DataProto
    """Balance a batch over ranks.

    Returns the columns in the new row order, the number of copies of each row, and the logged tokens of all ranks.
    """
    metrics: dict[str, float] = {}
    of_device = [rank for rank in range(ranks) for _ in range(devices)]
    group = SimpleNamespace(world_size=len(of_device), _dispatch_info={"actor": of_device})
    trainer = SimpleNamespace(actor_rollout_wg=group, _get_dp_size=lambda *_about: ranks)
    method(trainer, batch, metrics)
    return columns_by_row(batch, rows) | {"tokens": torch.tensor(float(metrics["global_seqlen/mean"]) * ranks)}


def _balanced(target: Target) -> Boundary:
    result = Use("balanced")
    return one_call(
        path=PATH,
        stage="batch",
        call=balance_batch,
        name="balanced",
        arguments={
            "method": Constant(Function(PATH)),
            "batch": numbered_data(target),
            "ranks": Knob("ranks", 1),
            "devices": Knob("devices", 1),
            "rows": Derived(lambda inputs: inputs.batch.rows),
        },
        produced_by={"batch": MASK_PRODUCER},
        reads=frozenset({"old_logprob", "token", "group", "length"}),
        outputs={
            **row_outputs(result),
            "tokens": Output("", "tokens", at=result["tokens"]),
        },
        settings=_SETTINGS,
        claims=_CLAIMS,
        reach="every run; trainer.balance_batch=True",
        requires=(divides, no_empty_response),
    )
