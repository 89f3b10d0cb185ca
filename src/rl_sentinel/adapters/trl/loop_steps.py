"""A check that TRL's single-method training loops log each batch at its optimizer step."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch

from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.forms import Number, PerRow
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived
from rl_sentinel.adapters.trl.loop_codecs import FLAT
from rl_sentinel.adapters.trl.loop_fakes import Responses
from rl_sentinel.adapters.trl.loop_trainer import Loop, fixed_permutations, nothing, queries
from rl_sentinel.core.boundary import Boundary, Output, one_call
from rl_sentinel.core.call import Function, Use

_COUNTED = (
    "train: state.max_steps is num_total_batches, times num_mini_batches in some releases; with one mini-batch and one "
    "epoch, each batch is one step"
)


def logged_steps(path: str, generations: int) -> Boundary:
    """The boundary of a run with one batch per row of the case; each batch has two prompts and one optimizer step."""
    trainer = path.rpartition(".")[0]
    loop = Object(Loop, {"0": Constant(Function(trainer))}, at={"0": "kind"}, shared=True)
    run = Use("run")
    return one_call(
        path=path,
        stage="batch",
        call=run_batches,
        name="run",
        arguments={
            "entry": Constant(Function(path)),
            "loop": loop,
            "batches": Derived(lambda inputs: inputs.batch.rows),
            "generations": Constant(generations),
        },
        produced_by={"batches": _COUNTED},
        fakes={f"{trainer.rpartition('.')[0]}.gc.collect": nothing},
        reads=frozenset({"group"}),
        outputs={
            "batches before": Output("B", "count", "", at=run["numbers"], form=PerRow("list")),
            "batches at another step": Output("", "count", "logged_elsewhere", at=run["elsewhere"], form=Number()),
        },
        settings={"logged steps": {}},
        reach="every run",
    )


def run_batches(entry: Callable[..., Any], loop: Loop, batches: int, generations: int) -> dict[str, Any]:
    """Train on equal batches.

    Returns ``numbers``: the index of each log call; and ``elsewhere``: the number of steps out of sequence.
    """
    prompts = 2
    rows = prompts * generations
    known = _responses(rows, generations)
    trainer = loop.trainer(rows, 1, 1, generations)
    models = trainer.models
    trainer.args.num_total_batches = trainer.args.num_updates = batches
    trainer.dataloader = [{"input_ids": queries(prompts)}]
    steps: list[int] = []

    def log(*_logged: object) -> None:
        steps.append(trainer.state.global_step)
        begin()

    def begin() -> None:
        for policy in models[:2]:
            policy.begin(known)
        for scorer in models[2:]:
            scorer.known = known

    trainer.log = log
    begin()
    with fixed_permutations():
        entry(trainer)
    return {
        "numbers": [float(number) for number in range(len(steps))],
        "elsewhere": float(sum(after - before != 1 for before, after in pairwise(steps))),
    }


def _responses(rows: int, generations: int) -> Responses:
    shape = (rows, 2)
    flat, zeros = torch.full(shape, FLAT), torch.zeros(shape)
    return Responses(
        mask=torch.ones(shape, dtype=torch.int64),
        ended=torch.ones(rows, dtype=torch.bool),
        prompts=[row // generations for row in range(rows)],
        logprobs=flat,
        old_logprobs=flat,
        ref_logprobs=flat,
        values=zeros,
        old_values=zeros,
        scores=torch.arange(rows).float(),
    )
