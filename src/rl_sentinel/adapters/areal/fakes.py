"""Fakes for AReaL: a one-process FSDP engine, and a model with fixed outputs."""

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as differentiable
from torch import Tensor

from rl_sentinel.adapters.areal.tracked_metrics import exported, logging_only
from rl_sentinel.adapters.kit.rank_threads import gather_from_ranks, rank_count, rank_number, run_on_ranks
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.process_group import one_process_group

#: Keys of the data that have the model's output at each position; AReaL packs and pads them like any other key.
LOGPROBS, ENTROPY, VALUES = "model_logprobs", "model_entropy", "model_values"

#: Key of the data with the index of the token that a position predicts, from 1; 0 elsewhere.
LABELS = "model_labels"


def fsdp_engine(owner: Any, config: Any) -> Any:  # noqa: ANN401 - AReaL's engine class, its configuration, an engine
    """An engine in one process with a fake model and optimizer; ``losses`` records the loss of each micro-batch."""
    losses: list[Tensor] = []

    def model(**inputs: Tensor) -> Any:  # noqa: ANN401 - what a model returns
        tokens = inputs["input_ids"].numel()
        values = (
            inputs[VALUES].reshape(1, tokens, 1) if VALUES in inputs else torch.zeros(1, tokens, 2).requires_grad_()
        )
        return SimpleNamespace(logits=values)

    def logprobs_and_entropy(
        _engine: object, _logits: Tensor, inputs: dict[str, Tensor], *_more: object
    ) -> tuple[Tensor, Tensor]:
        return inputs[LOGPROBS].reshape(-1), inputs[ENTROPY].reshape(-1)

    def record_loss(*args: Any, **options: Any) -> Tensor:  # noqa: ANN401 - as the method
        loss: Tensor = owner._compute_logprobs_and_loss(*args, **options)  # noqa: SLF001 - the audited method
        losses.append(loss.detach())
        return loss

    def do_nothing(*_args: object, **_options: object) -> dict[str, float]:
        return {}

    parallel = SimpleNamespace(dp_size=1, sp_size=1, tp_size=1)
    attributes: dict[str, Any] = {
        "config": config,
        "model": staticmethod(model),
        "model_config": SimpleNamespace(model_type="qwen3"),
        "is_vision_model": False,
        "enable_tree_training": False,
        "is_offload": False,
        "parallel_helper": parallel,
        "dp_group": one_process_group(),
        "device": torch.device("cpu"),
        "logger": logging.getLogger("areal"),
        "get_version": lambda _engine: 0,
        "_compute_logprobs_entropy": logprobs_and_entropy,
        "_compute_logprobs_and_loss": record_loss,
        "losses": losses,
        **dict.fromkeys(("train", "_ensure_ready", "optimizer_zero_grad", "optimizer_step"), do_nothing),
    }
    return object.__new__(type("Engine", (owner,), attributes))


#: Key of the data with the index of each position, for engines that copy their inputs, which cuts gradients.
PLACES = "output_places"


def read_outputs(outputs: Tensor, labels: Tensor, *_more: object, **_options: object) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies from the model's outputs; a label that is not the next token has a log-prob 1 lower."""
    expected = outputs[..., 2]
    matches = (labels.reshape(expected.shape) == expected) | (expected == 0)
    return torch.where(matches, outputs[..., 0], outputs[..., 0] - 1.0), outputs[..., 1]


class RecordedLoss:
    """A loss that can be scaled with ``*``; ``backward`` appends its scaled value to ``losses``."""

    def __init__(self, loss: Tensor, losses: list[Tensor]) -> None:
        """Store the loss, and the list to which ``backward`` adds it."""
        self.loss, self.losses = loss, losses

    def __mul__(self, scale: Any) -> "RecordedLoss":  # noqa: ANN401 - a tensor or a number
        """The scaled loss."""
        return RecordedLoss(self.loss * scale, self.losses)

    def backward(self) -> None:
        """Record the loss of the micro-batch, and add its gradients."""
        self.losses.append(self.loss.detach())
        self.loss.backward()  # type: ignore[no-untyped-call]  # torch's


class PlacedModel:
    """A fake model: it looks up outputs for :func:`read_outputs`, or values, by the index of the position."""

    def __init__(self) -> None:
        """Start without outputs; an update sets them."""
        self.columns: list[Tensor] = []

    def __call__(self, **inputs: Tensor) -> Any:  # noqa: ANN401 - what a model returns
        """The outputs at each position: ``[1, N, 3]``, or ``[1, N, 1]`` for a critic."""
        places = own_part(inputs[PLACES].reshape(-1), inputs["input_ids"].numel()).unsqueeze(0)
        return SimpleNamespace(logits=torch.stack([column.reshape(-1)[places] for column in self.columns], -1))

    def parameters(self) -> list[Tensor]:
        """Return no parameters, so that nothing is updated."""
        return []

    def set_requires_gradient_sync(self, _last: bool) -> None:  # noqa: FBT001 - as FSDP2
        """Do nothing: the gradients of this rank are compared."""

    def take_columns(self, data: dict[str, Any]) -> dict[str, Any]:
        """Store the model's outputs, and return the data with the indices of positions in their place."""
        names = [name for name in (LOGPROBS, ENTROPY, LABELS, VALUES) if name in data]
        self.columns = [data[name].float() if name == LABELS else data[name] for name in names]
        others = {name: value for name, value in data.items() if name not in names}
        return others | {PLACES: torch.arange(self.columns[0].numel()).view(self.columns[0].shape)}


def placed_engine(owner: Any, config: Any) -> Any:  # noqa: ANN401 - AReaL's engine class, its configuration, an engine
    """The engine of :func:`fsdp_engine` with :class:`PlacedModel`, for releases that copy the inputs."""
    engine = fsdp_engine(owner, config)
    kind: Any = type(engine)
    kind.model = PlacedModel()
    kind._compute_logprobs_entropy = lambda _engine, outputs, *_more: (  # noqa: SLF001 - the audited class
        outputs[..., 0],
        outputs[..., 1],
    )
    return engine


#: Name in AReaL's modules -> fake that reads what :class:`PlacedModel` returns.
READERS: Mapping[str, Callable[..., Any]] = {
    "gather_logprobs_entropy": read_outputs,
    "gather_logprobs": lambda *passed, **options: read_outputs(*passed, **options)[0],
}

#: Name in AReaL's modules -> fake that clips no gradient.
CLIPS = dict.fromkeys(("fsdp2_clip_grad_norm", "fsdp2_clip_grad_norm_"), lambda *_passed, **_options: torch.tensor(0.0))


def recording_engine(owner: Any, config: Any) -> Any:  # noqa: ANN401 - AReaL's engine class, its configuration, an engine
    """Like :func:`placed_engine`, for engine classes whose ``train_batch`` calls model, loss and ``backward`` itself.

    The losses are recorded.
    """
    engine = placed_engine(owner, config)
    kind: Any = type(engine)
    losses = engine.losses

    def train_batch(*inputs: Any, loss_fn: Callable[..., Tensor], **options: Any) -> Any:  # noqa: ANN401 - as the method
        def recorded(*args: Any, **more: Any) -> RecordedLoss:  # noqa: ANN401 - as the loss
            return RecordedLoss(loss_fn(*args, **more), losses)

        return owner.train_batch(*inputs, loss_fn=recorded, **options)

    if not hasattr(owner, "_compute_logprobs_and_loss"):
        kind.train_batch = train_batch
    kind.optimizer = SimpleNamespace(zero_grad=lambda: None, step=lambda: None)
    kind.optimizer_config = SimpleNamespace(gradient_clipping=1.0)
    kind.lr_scheduler = SimpleNamespace(get_last_lr=lambda: [0.0])
    kind.world_mesh = kind.data_parallel_group = None
    # What the first releases read.
    kind.fsdp_tp_device_mesh, kind.sp_group = SimpleNamespace(), None
    kind.initialized, kind._parallelism_group = True, None  # noqa: SLF001 - the audited class
    kind.world_size = kind.dp_world_size = kind.sp_world_size = kind.tp_world_size = 1
    return engine


def inline_engine(owner: Any, config: Any) -> Any:  # noqa: ANN401 - AReaL's engine class, its configuration, an engine
    """The engine of :func:`recording_engine` in one process; fakes read the model's outputs during an update."""
    engine = recording_engine(owner, config)
    kind: Any = type(engine)
    record = kind.train_batch

    def train_batch(*inputs: Any, loss_fn: Callable[..., Tensor], **options: Any) -> Any:  # noqa: ANN401 - as the method
        # A decorator of another module would hide the globals of both functions.
        loss, train = (inspect.unwrap(one) for one in (getattr(loss_fn, "func", loss_fn), owner.train_batch))
        with replaced_globals(loss.__globals__, **READERS), replaced_globals(train.__globals__, **CLIPS):
            return record(*inputs, loss_fn=loss_fn, **options)

    kind.train_batch = train_batch
    return engine


#: The group of the ranks that share a sequence, by which the fakes of collectives recognize it.
_SHARED = object()


@contextmanager
def sharing_sequences(engine: Any, ranks: int) -> Iterator[None]:  # noqa: ANN401 - a class of engines
    """Let ranks share each sequence: replace the engine's group and sizes, and torch's collectives."""
    join = vars(inspect.getmodule(engine.__mro__[1])).get("set_ulysses_sequence_parallel_group", lambda _group: None)
    engine.parallel_helper = SimpleNamespace(dp_size=1, sp_size=ranks, tp_size=1)
    engine.sp_group = _SHARED if ranks > 1 else None
    engine.dp_world_size, engine.sp_world_size, engine.tp_world_size = 1, ranks, 1  # of the first releases
    size, rank = dist.get_world_size, dist.get_rank
    collectives = {
        "get_world_size": lambda group=None: ranks if group is _SHARED else size(group),
        "get_rank": lambda group=None: rank_number() if group is _SHARED else rank(group),
    }
    gather = {"all_gather": _all_gather}
    join(_SHARED if ranks > 1 else None)
    try:
        with replaced_globals(vars(dist), **collectives), replaced_globals(vars(differentiable), **gather):
            yield
    finally:
        join(None)


def _all_gather(tensor: Tensor, group: object = None) -> tuple[Tensor, ...]:  # noqa: ARG001 - as torch's
    """The parts of all ranks. On each rank, only the part of that rank has a gradient, so that gradients add up."""
    parts = gather_from_ranks(tensor)
    return tuple(part if rank == rank_number() else part.detach() for rank, part in enumerate(parts))


def own_part(places: Tensor, size: int) -> Tensor:
    """The current rank's part of ``places``, with ``size`` entries.

    ``places`` are the token positions of a whole sequence, padded here with zeros to ``size`` entries per rank.
    """
    spare = size * rank_count() - len(places)
    return torch.nn.functional.pad(places, (0, spare)).chunk(rank_count())[rank_number()]


def shared_engine(owner: Any, config: Any) -> Any:  # noqa: ANN401 - AReaL's engine class, its configuration, an engine
    """An engine with :class:`PlacedModel` whose ranks each compute a part of a sequence, and gather the parts."""
    engine = fsdp_engine(owner, config)
    kind: Any = type(engine)
    kind.model = PlacedModel()
    del kind._compute_logprobs_entropy  # noqa: SLF001 - the fake for a model without parts
    return engine


def update(
    method: Callable[..., Any],
    trainer: Any,  # noqa: ANN401 - a trainer
    data: dict[str, Any],
    log: tuple[str, ...],
    ranks: int = 1,
) -> dict[str, Any]:
    """Run one update; return the loss and the metrics in ``log``. ``ranks`` share each sequence.

    The loss is summed over micro-batches and averaged over ranks, like the gradients. The tracker skips all other
    metrics, because they take most of the time of an update.
    """
    trainer.engine.losses.clear()
    model = getattr(trainer.engine, "model", None)
    placed = as_passed(method, model.take_columns(data) if isinstance(model, PlacedModel) else data)
    with logging_only(log) as tracker:
        if ranks == 1:
            method(trainer, placed)
        else:
            engine = type(trainer.engine)
            read = {"gather_logprobs_entropy": read_outputs}
            module = vars(inspect.getmodule(engine.__mro__[1]))
            with sharing_sequences(engine, ranks), replaced_globals(module, **read):
                run_on_ranks(ranks, lambda _rank: method(trainer, dict(placed)))
        logged = exported(tracker) if log else {}
    loss = torch.stack(trainer.engine.losses).sum() / ranks
    # Some releases open the tracker's scope inside the method, newer ones around the call.
    return {"loss": loss, "logged": {name.partition("/")[2]: number for name, number in logged.items()} | logged}


def as_passed(method: Callable[..., Any], data: dict[str, Any]) -> Any:  # noqa: ANN401 - as the method takes it
    """The data as a method of a trainer takes it: a dict, or a ``TensorDict`` in the first releases."""
    kind = inspect.unwrap(method).__globals__.get("TensorDict")
    return kind(data, batch_size=[len(data["input_ids"])]) if kind else data
