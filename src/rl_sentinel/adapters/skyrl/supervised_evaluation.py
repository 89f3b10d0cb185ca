"""SkyRL's evaluation during supervised fine-tuning: the loss of a data set, over its batches and micro-batches."""

import inspect
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.configs import Config
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.forms import Ragged
from rl_sentinel.adapters.kit.layout_counts import MICRO_BATCHES
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.requirements import equal_parts, has_trained_token, no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob, functions
from rl_sentinel.adapters.skyrl.arguments import CONFIG
from rl_sentinel.adapters.skyrl.losses import REGISTRY
from rl_sentinel.adapters.skyrl.supervised import COLLATOR, PRODUCER, Model, Padding, collated, examples_of
from rl_sentinel.adapters.skyrl.worker import WORKER
from rl_sentinel.adapters.skyrl.worker_fakes import cpu, worker_of
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

TRAINER = "skyrl.train.sft_trainer.SFTTrainer"
RUN_EVAL, FORWARD = f"{TRAINER}.run_eval", f"{WORKER}.forward"

_CLAIMS = claims(
    "sft_trainer.py, run_eval, docstring: a token-weighted mean of the losses per batch, which is the mean over the "
    "response tokens of the data set that count",
    output_algorithms={"evaluation loss": "negative log-prob of trained tokens"},
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the logged evaluation loss of one batch, and of several batches with padding in the last batch."""
    if not all(map(target.has, (RUN_EVAL, FORWARD, COLLATOR))):
        return
    path = f"{RUN_EVAL} -> {FORWARD}"
    for needed in (TRAINER, COLLATOR, WORKER):
        if why := target.fails(needed):
            yield Unbound(path, "metric", why)
            return
    yield from bindable(target, _evaluation(target, path))


class Dataloader(list[Any]):
    """A fake data loader: collated batches, and the attributes that the trainer reads."""

    def __init__(self, batches: list[Any], batch_size: int, rows: int) -> None:
        """Store the batches; the last one may have fewer than ``batch_size`` rows."""
        super().__init__(batches)
        self.batch_size, self.dataset = batch_size, range(rows)


class Dispatch:
    """A fake of the dispatch over workers: one rank, which gets the whole batch."""

    def __init__(self, worker: Any) -> None:  # noqa: ANN401 - the target's class
        """Store the worker."""
        self.worker = worker

    def forward(self, _model: str, data: Any, **options: Any) -> Any:  # noqa: ANN401 - the target's classes
        """The worker's output for a batch."""
        return self.worker.forward(data, **options)

    def dp_size(self, _model: str) -> int:
        """The number of ranks, 1."""
        return 1


def evaluate(  # noqa: PLR0913 - classes of the target, and the arguments of its trainer
    run: Callable[..., Any],
    code: dict[str, Any],
    cfg: Any,  # noqa: ANN401 - the target's class
    masks: list[list[int]],
    logprobs: list[Tensor],
    parts: int,
    batches: int,
) -> dict[str, float]:
    """Evaluate all responses in ``batches`` batches, each in about ``parts`` micro-batches; return the loss."""
    size = -(-len(masks) // batches)
    cfg.trainer.micro_train_batch_size_per_gpu = size
    cfg.trainer.micro_forward_batch_size_per_gpu = max(1, size // parts)
    whole = collated(code["collator"], masks, size)
    made = [whole]
    if batches > 1:
        rows = [range(start, min(start + size, len(masks))) for start in range(0, len(masks), size)]
        made = [collated(code["collator"], [masks[n] for n in part], size, first=part.start) for part in rows]
    loader = Dataloader(made, size, len(masks))
    worker = worker_of(code["worker"], code["losses"], cfg.trainer, cfg, Model(logprobs), ranks=1)
    trainer = bare_instance(
        code["trainer"],
        eval_dataloader=loader,
        eval_dataloaders=[("held out", loader)],
        dispatch=Dispatch(worker),
        collator=code["collator"](Padding(), size),
        sft_cfg=SimpleNamespace(max_tokens_per_microbatch=-1, micro_train_batch_size_per_gpu=size),
    )
    # Until July 2026, the trainer collates the rows itself.
    rows_of_release = [examples_of(masks)] if "eval_tokenized" in inspect.signature(run).parameters else []
    logged, _ = run(trainer, *rows_of_release)
    (loss,) = (float(value) for name, value in logged.items() if name.endswith("loss"))
    return {"evaluation loss": loss}


def _evaluation(target: Target, path: str) -> Boundary:
    device = {f"{target.locate(WORKER).rpartition('.')[0]}.torch.cuda.current_device": cpu}
    names = {"collator": COLLATOR, "worker": WORKER, "losses": REGISTRY, "trainer": TRAINER}
    return one_call(
        path=path,
        stage="metric",
        call=evaluate,
        name="evaluated",
        arguments={
            "run": Constant(Function(RUN_EVAL)),
            "code": Table(functions(**names)),
            "cfg": Config(CONFIG),
            "masks": EachRow(RowTokens("mask", "int")),
            "logprobs": Column("logprob", Ragged()),
            "parts": MICRO_BATCHES,
            "batches": Knob("batches"),
        },
        fakes=device,
        produced_by={"masks": PRODUCER},
        outputs={"evaluation loss": Output("", "nats", over="live", at=Use("evaluated")["evaluation loss"])},
        settings={"one batch": {"batches": 1}, "last batch padded": {"batches": 2}},
        claims=_CLAIMS,
        reach="supervised fine-tuning with an evaluation data set and strategy=fsdp2",
        requires=(no_empty_response, equal_parts, has_trained_token),
    )
