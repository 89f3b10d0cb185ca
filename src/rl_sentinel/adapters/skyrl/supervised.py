"""SkyRL's supervised fine-tuning: its collator, and the loss and its logged value in the policy worker."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.configs import Config
from rl_sentinel.adapters.kit.containers import EachRow
from rl_sentinel.adapters.kit.forms import Ragged
from rl_sentinel.adapters.kit.layout_counts import MICRO_BATCHES
from rl_sentinel.adapters.kit.requirements import equal_parts, has_trained_token, no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.skyrl.arguments import CONFIG
from rl_sentinel.adapters.skyrl.losses import REGISTRY
from rl_sentinel.adapters.skyrl.megatron_worker import RANKS
from rl_sentinel.adapters.skyrl.worker import WHOLE_STEP, WORKER, cpu, worker_of
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

COLLATOR = "skyrl.train.dataset.collators.DefaultCollator"

#: The number of each token of a response; a prompt is one token, whose number is that of its row, from 1.
_TOKEN = 10_000

_CLAIMS = claims(
    "collators.py, DefaultCollator, docstring: a sum of the loss per token that makes a mean over the "
    "loss-contributing tokens of the batch, over micro-batches and ranks",
    algorithm="negative log-likelihood",
    aggregation="token-mean",
    denominator="given",
)
_PRODUCER = (
    "skyrl/train/sft_trainer.py, tokenize_chat_example: input_ids, attention_mask, num_actions and the loss mask of "
    "the response; train_step: loss_fn=cross_entropy"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The loss, and the loss that is logged, in releases whose worker takes the name of a loss."""
    if not target.has(COLLATOR) or not target.has(WHOLE_STEP) or target.fails(WHOLE_STEP):
        return
    if why := target.fails(COLLATOR):
        yield Unbound(COLLATOR, "policy-loss", why)
    elif "loss_fn" in inspect.signature(target.find(WHOLE_STEP)).parameters:
        yield from bindable(target, *_trained(target))


class Model:
    """A double of the model: it looks up the log-probs of a row, whose number is its first token but padding."""

    def __init__(self, logprobs: list[Tensor]) -> None:
        """Store the log-probs of all responses."""
        self.logprobs = logprobs

    def __call__(self, sequences: Tensor, num_actions: int, **_options: object) -> tuple[Tensor, dict[str, Tensor]]:
        """Log-probs of the last ``num_actions`` positions, and no entropy."""
        numbers = torch.where(sequences < _TOKEN, sequences, 0).amax(1) - 1
        rows = [self.logprobs[number] for number in numbers.tolist()]
        padded = [torch.nn.functional.pad(row, (num_actions - len(row), 0), value=9.0) for row in rows]
        return torch.stack(padded), {"entropy": torch.zeros_like(sequences, dtype=torch.float32)}

    def train(self) -> None:
        """Do nothing."""


class Padding:
    """A double of the tokenizer, of which the collator reads the padding token."""

    pad_token_id = 0


def train_supervised(  # noqa: PLR0913 - classes of the target, and the arguments of its trainer
    collator: Callable[..., Any],
    worker: Any,  # noqa: ANN401 - the target's class
    losses: Any,  # noqa: ANN401 - the target's registry
    cfg: Any,  # noqa: ANN401 - the target's class
    masks: list[list[int]],
    logprobs: list[Tensor],
    parts: int,
    ranks: int,
) -> dict[str, Any]:
    """Collate the responses, and run the worker's step on each rank in ``parts`` micro-batches: loss and logged loss.

    Gradients are averaged over the ranks; the logged loss is that of the last rank.
    """
    size = len(masks) // (parts * ranks)
    cfg.trainer.micro_train_batch_size_per_gpu = size
    examples = [
        {
            "input_ids": [number + 1, *[_TOKEN] * len(mask)],
            "attention_mask": [1] * (1 + len(mask)),
            "num_actions": len(mask),
            "loss_mask": mask,
        }
        for number, mask in enumerate(masks)
    ]
    data = collator(Padding(), size)(examples, batch_size=len(examples))
    bare_worker = worker_of(worker, losses, cfg.trainer, cfg, Model(logprobs), ranks=ranks)
    shares = data.chunk(data.batch_size // ranks) if ranks > 1 else [data]
    returned = [bare_worker.forward_backward(share, loss_fn="cross_entropy") for share in shares]
    return {
        "loss": torch.stack(bare_worker.strategy.losses).sum() / ranks,
        "logged": float(getattr(returned[-1], "metrics", returned[-1])["loss"]),
    }


def _trained(target: Target) -> Iterator[Boundary]:
    loss = Output("", "", "loss", at=Use("trained")["loss"])
    logged = Output("", "nats", over="live", at=Use("trained")["logged"])
    place = target.locate(WORKER).rpartition(".")[0]
    for stage, name, output in (("policy-loss", "loss", loss), ("metric", "logged loss", logged)):
        step = Step(
            call=train_supervised,
            name="trained",
            arguments={
                "collator": Constant(Function(COLLATOR)),
                "worker": Constant(Function(WORKER)),
                "losses": Constant(Function(REGISTRY)),
                "cfg": Config(CONFIG),
                "masks": EachRow(RowTokens("mask", "int")),
                "logprobs": Column("logprob", Ragged()),
                "parts": MICRO_BATCHES,
                "ranks": RANKS if stage == "policy-loss" else Constant(1),
            },
            doubles={f"{place}.torch.cuda.current_device": cpu},
            produced_by={"masks": _PRODUCER},
        )
        yield Boundary(
            path=f"{COLLATOR} -> {WHOLE_STEP}",
            stage="policy-loss" if stage == "policy-loss" else "metric",
            steps=(step,),
            outputs={name: output},
            settings={f"supervised, {name}": {}},
            claims=_CLAIMS if stage == "policy-loss" else claims(_PRODUCER),
            reach="supervised fine-tuning with trainer.strategy=fsdp2",
            requires=(no_empty_response, equal_parts, has_trained_token),
        )
