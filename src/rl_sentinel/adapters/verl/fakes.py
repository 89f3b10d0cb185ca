"""Fakes for verl's training engine, model and optimizer: the model returns given columns."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.training_mode import outputs_in_mode
from rl_sentinel.adapters.process_group import one_process_group
from rl_sentinel.adapters.source_reads import remembered


def cpu_device() -> str:
    """The name of the CPU device, in place of an accelerator."""
    return "cpu"


def return_unmoved(data: Any, *_device: object) -> Any:  # noqa: ANN401 - tensors in a container
    """Return the same data: a fake of the copy to an accelerator."""
    return data


def no_memory(*_units: object) -> tuple[str, ...]:
    """Zeros as the logged memory statistics of the accelerator."""
    return ("0", "0", "0", "0")


class OneProcess:
    """A mixin for an engine: its data-parallel group is one process."""

    def get_data_parallel_group(self) -> Any:  # noqa: ANN401 - a process group
        """A process group of size one."""
        return one_process_group()

    def get_data_parallel_size(self) -> int:
        """The number of processes, 1."""
        return 1

    def eval_mode(self, **_about: object) -> AbstractContextManager[None]:
        """A context manager that moves no model between devices."""
        return nullcontext()

    def is_mp_src_rank_with_outputs(self) -> bool:
        """True: the process has a whole model, so it has outputs."""
        return True


class EngineFake(OneProcess):
    """A fake engine with the methods that ``forward_backward_batch`` uses; its model returns given columns.

    ``losses`` are the losses of the micro-batches. Releases of September 2025 need ``padded`` outputs.
    """

    ulysses_sequence_parallel_size = 1
    scaler = None

    def __init__(self, answers: dict[str, Tensor], lengths: list[int], *, padded: bool = False) -> None:
        """Set the model outputs ``[B, T]`` by name, and the length of each response."""
        self.answers, self.lengths, self.padded = answers, lengths, padded
        self.losses: list[Tensor] = []

    def _gradient_sync_context(self, **_about: object) -> Any:  # noqa: ANN401 - a context
        return nullcontext()

    def forward_step(self, micro_batch: Any, loss_function: Any, **_about: object) -> tuple[Tensor, dict[str, Any]]:  # noqa: ANN401
        """Compute the loss of a micro-batch from the model outputs at its rows.

        Unless ``padded``, a row is a one-token prompt and a response, and position t predicts token t + 1.
        """
        zero, rows = torch.zeros(1), micro_batch["row"].tolist()
        outputs = {
            name: column[rows]
            if self.padded
            else torch.cat([x for row in rows for x in (column[row, : self.lengths[row]], zero)])
            for name, column in self.answers.items()
        }
        loss, logged = loss_function(outputs, data=micro_batch, dp_group=None)
        self.record(loss)
        return loss, {"loss": loss.detach().item(), "metrics": logged}

    def record(self, loss: Tensor) -> None:
        """Record the loss, times the factor by which some releases scale it between this step and its backward pass."""
        if loss.requires_grad:
            trained: Any = loss  # torch gives the hook no types
            trained.register_hook(lambda scale: self.losses.append(loss.detach() * scale))
        else:
            self.losses.append(loss.detach())


class SupervisedFake(EngineFake):
    """A fake engine with nested output tensors; the first token of a sequence is its row index."""

    def __init__(self, answers: list[Tensor]) -> None:
        """Set the log-probs of each response, which has a prompt of one token."""
        super().__init__({}, [])
        self.rows = answers

    def forward_step(self, micro_batch: Any, loss_function: Any, **_about: object) -> tuple[Tensor, dict[str, Any]]:  # noqa: ANN401
        """Compute the loss of a micro-batch from the log-probs of its rows."""
        rows = [int(tokens[0]) for tokens in micro_batch["input_ids"].unbind()]
        own = [torch.cat([self.rows[row], torch.zeros(1)]) for row in rows]
        outputs = {"log_probs": torch.nested.as_nested_tensor(own, layout=torch.jagged)}
        loss, logged = loss_function(model_output=outputs, data=micro_batch, dp_group=None)
        self.losses.append(loss.detach())
        return loss, {"loss": loss.detach().item(), "metrics": logged}


class ModelFake:
    """A fake model and optimizer of a data-parallel worker in one object; the model returns given columns.

    ``losses`` are the losses whose gradients belong to the next optimizer step.
    """

    training = True  # as torch creates modules

    def __init__(self, answers: dict[str, Tensor], *, squeezed: bool = False) -> None:
        """Set the outputs ``[B, T]`` (or ``[B, T, V]``) by name; the first one gets the gradient.

        With ``squeezed``, outputs of one number per token have no last axis.
        """
        self.answers, self.squeezed = answers, squeezed
        self.first = next(iter(answers.values()))
        self.leaf = self.first.detach().requires_grad_()
        self.losses: list[Tensor] = []
        self.last: tuple[list[Tensor], Tensor | None] = ([], None)

    def __call__(self, input_ids: Tensor, **_about: object) -> SimpleNamespace:
        """Logits of the rows; the one-token prompt is the row index, and position t predicts token t + 1."""
        table = self.dropped(self.leaf[input_ids[:, 0]])
        logits = torch.cat([table, torch.zeros_like(table[:, :1])], dim=1)
        return SimpleNamespace(logits=logits if logits.dim() > 2 or self.squeezed else logits.unsqueeze(-1))

    def zero_grad(self, **_about: object) -> None:
        """Clear the gradient and its losses."""
        self.leaf.grad = None
        self.losses.clear()

    def step(self) -> Tensor:
        """Store the gradient instead of applying it; return 0 as its norm."""
        self.last = (list(self.losses), self.leaf.grad)
        return torch.zeros(())

    def finish(self) -> None:
        """Propagate the gradient of the last step to the column that the constructor got."""
        gradient = self.last[1]
        if gradient is not None:
            torch.autograd.backward([self.first], [gradient])

    def train(self, mode: bool = True) -> None:  # noqa: FBT001, FBT002 - as torch's
        """Switch to training mode, or out of it."""
        self.training = mode

    def eval(self) -> None:
        """Leave training mode."""
        self.training = False

    def dropped(self, outputs: Tensor) -> Tensor:
        """The outputs, with dropout if the model is in training mode."""
        return outputs_in_mode(outputs, training=self.training)

    def parameters(self) -> list[Tensor]:
        """Return no parameters, so that no gradient is clipped."""
        return []

    def clip_grad_norm_(self, **_about: object) -> Tensor:
        """Do not clip; return 0 as the norm."""
        return torch.zeros(())

    def forward(self, micro_batch: Any) -> tuple[Tensor, Tensor]:  # noqa: ANN401 - a dict of tensors
        """Entropy and log-probs of the rows of a micro-batch."""
        rows = micro_batch["input_ids"][:, 0]
        return self.answers["entropy"][rows], self.leaf[rows]


@remembered
def needs_process_group(kind: Any) -> bool:  # noqa: ANN401 - a class of the target
    """Whether the constructor of a worker needs a process group."""
    return any(
        "get_rank" in inspect.getsource(base)
        for base in kind.__mro__
        if "__init__" in vars(base) and base is not object
    )


@remembered
def squeezes(kind: Any) -> bool:  # noqa: ANN401 - a class of the target
    """Whether a worker drops the last axis of the model output; before 0.2 the model's head drops this axis."""
    return "squeeze(" in inspect.getsource(kind)


def worker_with_fake(kind: Any, config: Any, answers: dict[str, Tensor]) -> Any:  # noqa: ANN401 - classes of the target
    """A worker of the target's class whose model and optimizer are a :class:`ModelFake`."""
    if needs_process_group(kind):
        one_process_group()
    model = ModelFake(answers, squeezed=not squeezes(kind))
    return kind(config, model, model)


@cache
def actor_class(kind: Any) -> Any:  # noqa: ANN401 - the target's class
    """A subclass of the target's actor whose forward pass reads the columns of its :class:`ModelFake`."""
    returns_dict = "dict" in str(inspect.signature(kind._forward_micro_batch).return_annotation)  # noqa: SLF001 - replaced below

    class Actor(kind):  # type: ignore[misc] # its base is known at run time only
        def _forward_micro_batch(self, micro_batch: Any, **_about: object) -> Any:  # noqa: ANN401 - as the target's
            entropy, log_probs = self.actor_optimizer.forward(micro_batch)
            return {"entropys": entropy, "log_probs": log_probs} if returns_dict else (entropy, log_probs)

    return Actor


def data_parallel_actor(kind: Any, config: Any, answers: dict[str, Tensor]) -> Any:  # noqa: ANN401 - the target's class
    """An actor of the target's class with a :class:`ModelFake` as model and optimizer."""
    return worker_with_fake(actor_class(kind), config, answers)


@contextmanager
def record_losses(losses: list[Tensor]) -> Iterator[None]:
    """Record each tensor on which ``backward`` is called."""
    original: Callable[..., None] = torch.Tensor.backward

    def backward(loss: Tensor, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as of backward
        losses.append(loss.detach().clone())
        original(loss, *args, **kwargs)

    setattr(torch.Tensor, "backward", backward)  # noqa: B010 - the target does not return its losses; undone below
    try:
        yield
    finally:
        setattr(torch.Tensor, "backward", original)  # noqa: B010 - as above


def run_update(update: Any, worker: Any, data: Any) -> dict[str, Any]:  # noqa: ANN401 - a method and objects of the target
    """Run an update; return its metrics, and the losses of the last optimizer step."""
    names = ("actor_optimizer", "critic_optimizer", "optimizer")
    fake = next(getattr(worker, name) for name in names if hasattr(worker, name))
    with record_losses(fake.losses):
        metrics = update(worker, data)
    fake.finish()
    return {"metrics": metrics, "losses": fake.last[0]}


def run_supervised_batch(  # noqa: PLR0913 - the inputs of the trainer's loop
    forward: Any,  # noqa: ANN401 - functions of the target, here and below
    make: Any,  # noqa: ANN401
    loss: Any,  # noqa: ANN401
    answers: list[Tensor],
    masks: list[Tensor],
    tokens_at_most: int,
) -> list[Tensor]:
    """Run one batch through the training engine, as the collator and the loop of the SFT trainer pass it.

    ``answers`` are the log-probs and ``masks`` are the loss masks of the responses. Returns the losses of the
    micro-batches.
    """
    zero, nested = torch.zeros(1), partial(torch.nested.as_nested_tensor, layout=torch.jagged)
    losses = list[Tensor]()
    ids = [torch.cat([torch.tensor([row]), torch.zeros(len(mask), dtype=torch.long)]) for row, mask in enumerate(masks)]
    tensors = {"input_ids": nested(ids), "loss_mask": nested([torch.cat([zero.long(), mask]) for mask in masks])}
    about: dict[str, Any] = {"use_dynamic_bsz": True, "max_token_len_per_gpu": tokens_at_most}
    about |= {"global_batch_size": len(masks), "pad_mode": "no_padding"}  # data.pad_mode
    with record_losses(losses):
        forward(SupervisedFake(answers), make(tensors, about), partial(loss, None))
    return losses
