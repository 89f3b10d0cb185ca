"""Boundaries of verl's supervised fine-tuning: the trainer's step before 0.8, and the loss in the training engine."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.forms import AfterPrompt, BeforeEnd, Ragged
from rl_sentinel.adapters.kit.requirements import equal_micro_batches, has_trained_token, no_empty_response
from rl_sentinel.adapters.kit.result_forms import Total
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, functions
from rl_sentinel.adapters.process_group import one_process_group
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.arguments import every_token_is_trained
from rl_sentinel.adapters.verl.config_files import default_config
from rl_sentinel.adapters.verl.engine import CUT, TENSORS
from rl_sentinel.adapters.verl.engine import MODULE as ENGINE
from rl_sentinel.adapters.verl.fakes import ModelFake, cpu_device, return_unmoved, run_supervised_batch, run_update
from rl_sentinel.adapters.verl.worker_batch import MICRO_BATCH, accelerator_fakes, sequences, worker_object
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs

LOSS = "verl.workers.utils.losses.sft_loss"
MODULE = "verl.trainer.fsdp_sft_trainer"
TRAINER = f"{MODULE}.FSDPSFTTrainer"
STEP = f"{TRAINER}.training_step"
DATASETS = {
    "single-turn": "verl.utils.dataset.sft_dataset.SFTDataset",
    "multi-turn": "verl.utils.dataset.multiturn_sft_dataset.MultiTurnSFTDataset",
}

#: Functions that return a device while a batch runs through the engine.
_DEVICES = (f"{ENGINE}.get_device_id", "verl.utils.seqlen_balancing.get_device_name")

LOSS_CLAIMS = claims(
    "fsdp_sft_trainer.py: cross entropy of the next token, averaged over the tokens of the loss mask",
    algorithm="negative log-likelihood",
    aggregation="token-mean",
)


CUT_CLAIMS = claims(
    "docs/examples/config.rst: micro-batches are gradient accumulation, trading speed for memory; newer "
    "fsdp/transformer_impl.py, forward_backward_batch: tokens are counted for the whole batch",
    denominator="given",
)


@dataclass(frozen=True, slots=True)
class BeforeToken(BeforeEnd):
    """``[B, T + 1]`` with a one-token prompt: each value is one position before its token; the last is 0."""

    def sizes(self, value: Tensor) -> Any:  # noqa: ANN401 - as AfterPrompt
        """The number of rows and the width."""
        return AfterPrompt().sizes(value)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the trainer's step with each dataset class, and of a batch through the training engine."""
    if all(target.has(path) for path in (CUT, LOSS, TENSORS)):
        yield from bindable(target, _engine_loss(target))
    if not target.has(STEP):
        return
    if why := target.fails(STEP):
        yield Unbound(STEP, "policy-loss", why)
        return
    for kind, path in DATASETS.items():
        if target.has(path) and not target.fails(path):
            yield from bindable(target, _step(target, kind, path))


def _step(target: Target, kind: str, dataset: str) -> Boundary:
    source = inspect.getsource(target.find(TRAINER))
    # The mask of such a dataset marks the positions that predict a trained token.
    shifted = "- 1] = 0" in inspect.getsource(target.find(dataset))
    mask = Column("mask", BeforeToken() if shifted else AfterPrompt(0), torch.int64)
    fields: dict[str, Codec] = {
        "data": Table({"micro_batch_size_per_gpu": MICRO_BATCH}),
        "model": Table({"strategy": Constant("fsdp")}),
    }
    config = default_config(target, "", fields, "sft_trainer")
    outputs = {"log_probs": Column("logprob", leaf=True)}
    batch = Object(
        "tensordict.TensorDict",
        {
            "source": Table({**sequences(), "loss_mask": mask}),
            "batch_size": Derived(lambda inputs: [inputs.batch.rows]),
        },
        at={"source": ""},
    )
    return one_call(
        path=STEP,
        stage="policy-loss",
        call=run_update,
        name="made",
        fakes={
            **accelerator_fakes(target, MODULE, source),
            f"{MODULE}.nn.CrossEntropyLoss": token_losses,
            f"{MODULE}.torch.Tensor.cuda": return_unmoved,
        },
        arguments={
            "update": Constant(Function(STEP)),
            "worker": worker_object(trainer_with_fake, TRAINER, config, outputs, model="optimizer"),
            "data": batch,
        },
        produced_by={"data": f"{dataset.rpartition('.')[0].replace('.', '/')}.py, __getitem__: the loss mask"},
        unused=frozenset({"token"}),
        outputs={"loss": Output("", "", "loss", at=Use("made")["losses"], form=Total())},
        settings={kind: {}},
        claims=LOSS_CLAIMS,
        reach=f"every step of supervised fine-tuning, {kind} data",
        requires=(no_empty_response, equal_micro_batches, *((every_token_is_trained,) if shifted else ())),
    )


def _engine_loss(target: Target) -> Boundary:
    """The boundary of the loss in the engine, with a dynamic batch size."""
    return one_call(
        path=f"{CUT} -> {LOSS}",
        stage="policy-loss",
        call=run_supervised_batch,
        name="losses",
        fakes={path: cpu_device for path in _DEVICES if target.has(path)},
        arguments={
            **functions(forward=CUT, make=TENSORS, loss=LOSS),
            "answers": Column("logprob", Ragged(), leaf=True),
            "masks": Column("mask", Ragged(), torch.int64),
            "tokens_at_most": Derived(_most_tokens, frozenset({"micro_batches"})),
        },
        produced_by={"masks": "verl/trainer/sft_trainer.py, fit; dataset_utils.py, SFTTensorCollator: nested tensors"},
        outputs={"loss": Output("", "", "loss", at=Use("losses"), form=Total())},
        settings={"default": {}},
        claims=LOSS_CLAIMS | CUT_CLAIMS,
        reach="every step of supervised fine-tuning",
        requires=(no_empty_response, has_trained_token),
    )


def _most_tokens(inputs: Inputs) -> int:
    """The maximum tokens of a micro-batch: an even share of the batch, but at least the longest sequence."""
    lengths = inputs.batch.length + 1
    return max(int(lengths.max()), -(-int(lengths.sum()) // inputs.layout.micro_batches))


def token_losses(**_about: object) -> Callable[[Tensor, Tensor], Tensor]:
    """A fake cross entropy: the logits of the fake model are the log-probs of the next tokens."""
    return lambda logits, _labels: -logits[..., 0]


class Schedule:
    """A constant learning rate of 0."""

    def step(self) -> None:
        """Do nothing."""

    def get_last_lr(self) -> list[float]:
        """The learning rate of each group."""
        return [0.0]


def trainer_with_fake(kind: Any, config: Any, answers: dict[str, Tensor]) -> Any:  # noqa: ANN401 - classes of the target
    """A trainer of the target's class with a fake model and optimizer; the constructor is not run."""
    one_process_group()
    trainer, fake = object.__new__(kind), ModelFake(answers)
    trainer.__dict__ |= {
        "config": config,
        "device_name": "cpu",
        "use_remove_padding": False,
        "fsdp_model": fake,
        "optimizer": fake,
        "model": SimpleNamespace(config=SimpleNamespace(vocab_size=1)),
        "lr_scheduler": Schedule(),
    }
    return trainer
