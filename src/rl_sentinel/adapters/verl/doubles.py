"""Replacements for verl's engine and logger: a model with known outputs, and logged values over micro-batches."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.process_group import one_process_group


def cpu_device() -> str:
    """The device of a machine without an accelerator."""
    return "cpu"


def return_unmoved(data: Any) -> Any:  # noqa: ANN401 - tensors in a container
    """The data itself, in place of a move to an accelerator."""
    return data


def no_memory(*_units: object) -> tuple[str, ...]:
    """Memory figures to log, where there is no accelerator."""
    return ("0", "0", "0", "0")


class Engine:
    """What ``forward_backward_batch`` asks of its engine; the model answers with given columns at each token.

    ``losses`` has the loss of each micro-batch.
    """

    ulysses_sequence_parallel_size = 1
    scaler = None

    def __init__(self, answers: dict[str, Tensor], lengths: list[int]) -> None:
        """Take ``[B, T]`` answers by name, and the length of each response."""
        self.answers, self.lengths = answers, lengths
        self.losses: list[Tensor] = []

    def get_data_parallel_group(self) -> Any:  # noqa: ANN401 - a process group
        """A group of one process."""
        return one_process_group()

    def get_data_parallel_size(self) -> int:
        """One process."""
        return 1

    def _gradient_sync_context(self, **_about: object) -> Any:  # noqa: ANN401 - a context
        return nullcontext()

    def forward_step(self, micro_batch: Any, loss_function: Any, **_about: object) -> tuple[Tensor, dict[str, Any]]:  # noqa: ANN401
        """What the model would answer at the rows of a micro-batch, and the loss of it.

        Rows are a prompt of one token and the response, without padding; position t predicts t + 1.
        """
        zero, rows = torch.zeros(1), micro_batch["row"].tolist()
        given = {
            name: torch.cat([x for row in rows for x in (column[row, : self.lengths[row]], zero)])
            for name, column in self.answers.items()
        }
        loss, logged = loss_function(given, data=micro_batch, dp_group=None)
        self.losses.append(loss.detach())
        return loss, {"loss": loss.detach().item(), "metrics": logged}


class ModelDouble:
    """Stands for the model and the optimizer of a data-parallel worker; what the model answers comes from tables.

    ``losses`` are those that were differentiated for the last optimizer step.
    """

    def __init__(self, answers: dict[str, Tensor]) -> None:
        """Take ``[B, T]`` (or ``[B, T, V]``) answers by name; the first one is a leaf."""
        self.answers = answers
        self.first = next(iter(answers.values()))
        self.leaf = self.first.detach().requires_grad_()
        self.losses: list[Tensor] = []
        self.last: tuple[list[Tensor], Tensor | None] = ([], None)

    def __call__(self, input_ids: Tensor, **_about: object) -> SimpleNamespace:
        """Logits of rows whose prompts are one token, the number of the row; position t answers for token t + 1."""
        table = self.leaf[input_ids[:, 0]]
        logits = torch.cat([table, torch.zeros_like(table[:, :1])], dim=1)
        return SimpleNamespace(logits=logits if logits.dim() > 2 else logits.unsqueeze(-1))

    def zero_grad(self, **_about: object) -> None:
        """Clear the gradient, and the losses that it belongs to."""
        self.leaf.grad = None
        self.losses.clear()

    def step(self) -> Tensor:
        """Store the gradient instead of applying it; return 0 as its norm."""
        self.last = (list(self.losses), self.leaf.grad)
        return torch.zeros(())

    def finish(self) -> None:
        """Pass the gradient of the last step on to the table that was given to the double."""
        gradient = self.last[1]
        if gradient is not None:
            torch.autograd.backward([self.first], [gradient])

    def train(self) -> None:
        """Do nothing: a table has no training mode."""

    def eval(self) -> None:
        """Do nothing, as :meth:`train`."""

    def parameters(self) -> list[Tensor]:
        """No parameters, so that no gradient is clipped."""
        return []

    def clip_grad_norm_(self, **_about: object) -> Tensor:
        """No gradient is clipped; return 0 as the norm."""
        return torch.zeros(())

    def forward(self, micro_batch: Any) -> tuple[Tensor, Tensor]:  # noqa: ANN401 - a dict of tensors
        """Entropies and log-probs of the rows of a micro-batch."""
        rows = micro_batch["input_ids"][:, 0]
        return self.answers["entropy"][rows], self.leaf[rows]


@cache
def asks_for_rank(kind: Any) -> bool:  # noqa: ANN401 - a class of the target
    """Whether a worker's constructor needs a process group."""
    return any(
        "get_rank" in inspect.getsource(base)
        for base in kind.__mro__
        if "__init__" in vars(base) and base is not object
    )


def worker_of_table(kind: Any, config: Any, answers: dict[str, Tensor]) -> Any:  # noqa: ANN401 - classes of the target
    """A worker of the target's class whose model and optimizer are a :class:`ModelDouble`."""
    if asks_for_rank(kind):
        one_process_group()
    model = ModelDouble(answers)
    return kind(config, model, model)


@cache
def actor_class(kind: Any) -> Any:  # noqa: ANN401 - the target's class
    """The target's actor, whose model and optimizer are a :class:`ModelDouble`, and which answers by its tables."""
    named = "dict" in str(inspect.signature(kind._forward_micro_batch).return_annotation)  # noqa: SLF001 - replaced below

    class Actor(kind):  # type: ignore[misc] # its base is known at run time only
        def _forward_micro_batch(self, micro_batch: Any, **_about: object) -> Any:  # noqa: ANN401 - as the target's
            entropy, log_probs = self.actor_optimizer.forward(micro_batch)
            return {"entropys": entropy, "log_probs": log_probs} if named else (entropy, log_probs)

    return Actor


def data_parallel_actor(kind: Any, config: Any, answers: dict[str, Tensor]) -> Any:  # noqa: ANN401 - the target's class
    """An actor of the target's class, with its configuration, without a model and without an optimizer."""
    return worker_of_table(actor_class(kind), config, answers)


@contextmanager
def recorded(losses: list[Tensor]) -> Iterator[None]:
    """Note each number whose ``backward`` is called."""
    original: Callable[..., None] = torch.Tensor.backward

    def backward(loss: Tensor, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as of backward
        losses.append(loss.detach().clone())
        original(loss, *args, **kwargs)

    setattr(torch.Tensor, "backward", backward)  # noqa: B010 - the only place where the loss is at hand; undone below
    try:
        yield
    finally:
        setattr(torch.Tensor, "backward", original)  # noqa: B010 - as above


def updated(update: Any, worker: Any, data: Any) -> dict[str, Any]:  # noqa: ANN401 - a method and objects of the target
    """Run an update of a worker or trainer; its metrics, and the losses that it differentiated for the last step."""
    names = ("actor_optimizer", "critic_optimizer", "optimizer")
    double = next(getattr(worker, name) for name in names if hasattr(worker, name))
    with recorded(double.losses):
        metrics = update(worker, data)
    double.finish()
    return {"metrics": metrics, "losses": double.last[0]}


def supervised(  # noqa: PLR0913 - what the trainer's loop has at hand
    forward: Any,  # noqa: ANN401 - functions of the target, here and below
    make: Any,  # noqa: ANN401
    loss: Any,  # noqa: ANN401
    answers: list[Tensor],
    masks: list[Tensor],
    tokens_at_most: int,
) -> list[Tensor]:
    """One batch through the training engine, as the supervised trainer's collator and loop pass it.

    ``answers`` and ``masks`` are of the responses, one a row; the losses that were differentiated come back.
    """
    none = torch.zeros(1)
    nested = partial(torch.nested.as_nested_tensor, layout=torch.jagged)
    engine, losses = Engine({}, []), list[Tensor]()

    def step(micro_batch: Any, loss_function: Any, **_about: object) -> tuple[Tensor, dict[str, Any]]:  # noqa: ANN401
        rows = [int(tokens[0]) for tokens in micro_batch["input_ids"].unbind()]
        given = {"log_probs": nested([torch.cat([answers[row], none]) for row in rows])}
        value, logged = loss_function(model_output=given, data=micro_batch, dp_group=None)
        return value, {"loss": value.detach().item(), "metrics": logged}

    engine.forward_step = step  # type: ignore[method-assign] # answers by row, nested as the engine's are
    ids = [torch.cat([torch.tensor([row]), torch.zeros(len(mask), dtype=torch.long)]) for row, mask in enumerate(masks)]
    tensors = {"input_ids": nested(ids), "loss_mask": nested([torch.cat([none.long(), mask]) for mask in masks])}
    about = {"use_dynamic_bsz": True, "max_token_len_per_gpu": tokens_at_most, "global_batch_size": len(masks)}
    with recorded(losses):
        forward(engine, make(tensors, about), partial(loss, None))
    return losses
