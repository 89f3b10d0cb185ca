"""SkyRL's supervised fine-tuning: the collator, and loss and logged loss in the policy worker."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.configs import Config
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.forms import Ragged
from rl_sentinel.adapters.kit.layout_counts import MICRO_BATCHES
from rl_sentinel.adapters.kit.requirements import equal_parts, has_trained_token, no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.training_mode import outputs_in_mode
from rl_sentinel.adapters.kit.value_codecs import Constant, functions
from rl_sentinel.adapters.skyrl.arguments import CONFIG
from rl_sentinel.adapters.skyrl.losses import REGISTRY
from rl_sentinel.adapters.skyrl.megatron_run import (
    MODEL_STEP,
    STEP,
    code_of,
    device_fake,
    has_worker,
    run_on_megatron,
)
from rl_sentinel.adapters.skyrl.megatron_worker import CONTEXT, RANKS, SHARED
from rl_sentinel.adapters.skyrl.worker import WHOLE_STEP, WORKER
from rl_sentinel.adapters.skyrl.worker_fakes import cpu, worker_of
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Stage, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import Claims, claims

COLLATOR = "skyrl.train.dataset.collators.DefaultCollator"

#: The id of every response token; a prompt is one token, whose id is the index of its row, from 1.
_TOKEN = 10_000

_CLAIMS = claims(
    "collators.py, DefaultCollator, docstring: a sum of the loss per token that makes a mean over the "
    "loss-contributing tokens of the batch, over micro-batches and ranks",
    algorithm="negative log-likelihood",
    aggregation="token-mean",
    denominator="given",
)
PRODUCER = (
    "skyrl/train/sft_trainer.py, tokenize_chat_example: input_ids, attention_mask, num_actions and the loss mask of "
    "the response; train_step: loss_fn=cross_entropy"
)

_LOGGED = claims(
    "sft_trainer.py, train: the loss of the step, which is a mean over the response tokens that count",
    output_algorithms={"logged loss": "negative log-prob of trained tokens"},
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the loss and the logged loss, in releases whose workers select a loss by name."""
    if not target.has(COLLATOR):
        return
    if why := target.fails(COLLATOR):
        yield Unbound(COLLATOR, "policy-loss", why)
        return
    if target.has(WHOLE_STEP) and not target.fails(WHOLE_STEP) and _takes_loss(target, WHOLE_STEP):
        yield from bindable(target, *_trained(target, WHOLE_STEP))
    if has_worker(target) and _takes_loss(target, STEP):
        yield from bindable(target, *_trained(target, STEP))


def _takes_loss(target: Target, step: str) -> bool:
    return "loss_fn" in inspect.signature(target.find(step)).parameters


class Model:
    """A fake model that looks up the log-probs of a row by the row index, the first token that is not padding."""

    training = True  # as torch creates modules

    def __init__(self, logprobs: list[Tensor]) -> None:
        """Store the log-probs of all responses."""
        self.logprobs = logprobs

    def __call__(self, sequences: Tensor, num_actions: int, **_options: object) -> tuple[Tensor, dict[str, Tensor]]:
        """Log-probs of the last ``num_actions`` positions, and an entropy of 0."""
        numbers = torch.where(sequences < _TOKEN, sequences, 0).amax(1) - 1
        rows = [self.logprobs[number] for number in numbers.tolist()]
        padded = [torch.nn.functional.pad(row, (num_actions - len(row), 0), value=9.0) for row in rows]
        logprobs = outputs_in_mode(torch.stack(padded), training=self.training)
        return logprobs, {"entropy": torch.zeros_like(sequences, dtype=torch.float32)}

    def train(self, mode: bool = True) -> None:  # noqa: FBT001, FBT002 - as torch's
        """Switch to training mode, or out of it."""
        self.training = mode

    def eval(self) -> None:
        """Leave training mode."""
        self.training = False


class Padding:
    """A fake tokenizer; the collator only reads its padding token."""

    pad_token_id = 0


class StageModel:
    """A fake model on a Megatron pipeline stage: returns each next token's log-prob, and an entropy of 0."""

    def __init__(self, logprobs: list[Tensor]) -> None:
        """Store the log-probs of all responses."""
        self.logprobs = logprobs

    def __call__(self, sequences: Tensor, *_inputs: object, **_options: object) -> Tensor:
        """The output at every position, ``[B, S, 2]``, of rows without padding before them."""
        rows = [self.logprobs[number - 1] for number in sequences[:, 0].tolist()]
        padded = [torch.nn.functional.pad(row, (0, sequences.shape[1] - len(row)), value=9.0) for row in rows]
        return torch.stack([torch.stack(padded), torch.zeros_like(sequences, dtype=torch.float32)], -1)

    def zero_grad_buffer(self) -> None:
        """Do nothing."""


def examples_of(masks: list[list[int]], first: int = 0) -> list[dict[str, Any]]:
    """Rows of the tokenized data set, from index ``first`` on: a prompt of one token, and a response for each mask."""
    return [
        {
            "input_ids": [first + number + 1, *[_TOKEN] * len(mask)],
            "attention_mask": [1] * (1 + len(mask)),
            "num_actions": len(mask),
            "loss_mask": mask,
        }
        for number, mask in enumerate(masks)
    ]


def collated(
    collator: Callable[..., Any],
    masks: list[list[int]],
    size: int,
    first: int = 0,
) -> Any:  # noqa: ANN401 - the target's class
    """The training batch of the responses from index ``first`` on, for micro-batches of ``size`` rows."""
    examples = examples_of(masks, first)
    return collator(Padding(), size)(examples, batch_size=len(examples))


def train_supervised(  # noqa: PLR0913 - classes of the target, and the arguments of its trainer
    collator: Callable[..., Any],
    code: dict[str, Any],
    cfg: Any,  # noqa: ANN401 - the target's class
    masks: list[list[int]],
    logprobs: list[Tensor],
    parts: int,
    ranks: int,
    context: int = 1,
) -> dict[str, Any]:
    """Collate the responses and run the worker's step on each rank in ``parts`` micro-batches; return both losses.

    Gradients are averaged over the ranks; the last rank's logged loss is returned. On Megatron, ``context`` ranks share
    each sequence.
    """
    size = len(masks) // (parts * ranks)
    data = collated(collator, masks, size)
    if "wrapper" in code:
        options: dict[str, Any] = {"loss_fn": "cross_entropy", "context": context}
        loss, returned = run_on_megatron(code, cfg, StageModel(logprobs), data, parts, ranks, **options)
    else:
        cfg.trainer.micro_train_batch_size_per_gpu = size
        worker = worker_of(code["worker"], code["losses"], cfg.trainer, cfg, Model(logprobs), ranks=ranks)
        shares = data.chunk(data.batch_size // ranks) if ranks > 1 else [data]
        returned = [worker.forward_backward(share, loss_fn="cross_entropy") for share in shares]
        loss = torch.stack(worker.strategy.losses).sum() / ranks
    return {"loss": loss, "logged": float(getattr(returned[-1], "metrics", returned[-1])["loss"])}


def _trained(target: Target, path: str) -> Iterator[Boundary]:
    megatron = path == STEP
    loss = Output("", "", "loss", at=Use("trained")["loss"])
    logged = Output("", "nats", over="live", at=Use("trained")["logged"])
    device = {f"{target.locate(WORKER).rpartition('.')[0]}.torch.cuda.current_device": cpu}
    code = Table(functions(worker=WORKER, losses=REGISTRY))
    kinds: list[tuple[Stage, str, dict[str, Output], Claims]] = [
        ("policy-loss", "loss", {"loss": loss}, _CLAIMS),
        ("metric", "logged loss", {"logged loss": logged}, _LOGGED),
    ]
    if megatron:
        kinds.append(("parallel", SHARED, {"loss": loss, "logged loss": logged}, Claims()))
    for stage, name, outputs, claimed in kinds:
        step = Step(
            call=train_supervised,
            name="trained",
            arguments={
                "collator": Constant(Function(COLLATOR)),
                "code": code_of(target) if megatron else code,
                "cfg": Config(CONFIG),
                "masks": EachRow(RowTokens("mask", "int")),
                "logprobs": Column("logprob", Ragged()),
                "parts": MICRO_BATCHES,
                "ranks": RANKS if stage == "policy-loss" else Constant(1),
                **({"context": CONTEXT} if stage == "parallel" else {}),
            },
            fakes=device_fake(target) if megatron else device,
            produced_by={"masks": PRODUCER},
        )
        yield Boundary(
            path=f"{COLLATOR} -> {path} -> {MODEL_STEP}" if megatron else f"{COLLATOR} -> {path}",
            stage=stage,
            steps=(step,),
            outputs=outputs,
            settings={f"supervised, {name}": {}},
            claims=claimed,
            reach=f"supervised fine-tuning with strategy={'megatron' if megatron else 'fsdp2'}",
            requires=(no_empty_response, equal_parts, has_trained_token),
        )
