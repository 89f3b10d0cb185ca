"""Fakes for verl's transfer of weights in buckets: the sockets, the memory of the sender, and vLLM's worker."""

import re
from collections.abc import Iterable, Iterator
from queue import Empty, SimpleQueue
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

#: Seconds for which a side waits for the other one, before it fails.
_PATIENCE = 20.0

_NAME = "model.layers.{}.q_proj.weight"
_WEIGHT = r"(?:base_model\.model\.)?model\.layers\.(\d+)\.q_proj\.(?:lora_A\.)?weight"


class ClosedError(RuntimeError):
    """The other side has closed its socket, or does not answer."""


class Link:
    """A fake of ZMQ's context: the socket that binds and the socket that connects exchange objects."""

    REQ, REP = "REQ", "REP"

    def __init__(self) -> None:
        """Start with two empty queues."""
        self.queues = {kind: SimpleQueue[Any]() for kind in (self.REQ, self.REP)}
        self.Context = SimpleNamespace(instance=lambda: self)

    def socket(self, kind: str) -> "Socket":
        """One of the two ends."""
        own, other = (self.REQ, self.REP) if kind == self.REQ else (self.REP, self.REQ)
        return Socket(self.queues[own], self.queues[other])

    def close(self) -> None:
        """Let both ends fail if they wait."""
        for queue in self.queues.values():
            queue.put(ClosedError)


class Socket:
    """One end of a link; it passes objects without a copy, like memory that processes share."""

    def __init__(self, inbox: SimpleQueue[Any], outbox: SimpleQueue[Any]) -> None:
        """Store the queues of this end."""
        self.inbox, self.outbox = inbox, outbox

    def bind(self, _address: str) -> None:
        """Accept the other end."""

    def connect(self, _address: str) -> None:
        """Find the other end."""

    def send(self, message: object) -> None:
        """Send an object."""
        self.outbox.put(message)

    def recv(self) -> Any:  # noqa: ANN401 - what was sent
        """The next object.

        Raises:
            ClosedError: if the other end has closed, or does not answer.
        """
        try:
            message = self.inbox.get(timeout=_PATIENCE)
        except Empty:
            message = ClosedError
        if message is ClosedError:
            raise ClosedError
        return message

    def close(self) -> None:
        """Let the other end fail if it waits."""
        self.outbox.put(ClosedError)

    send_pyobj, recv_pyobj = send, recv


class Memory:
    """Memory of the sender, which the receiver maps; afterwards, other tensors occupy it."""

    def __init__(self) -> None:
        """Start with nothing mapped."""
        self.mapped: list[Tensor] = []

    def share(self, tensor: Tensor) -> tuple[Any, tuple[Tensor]]:
        """A handle of the tensor's memory; a fake of torch's ``reduce_tensor``."""
        self.mapped.append(tensor)
        return (lambda shared: shared), (tensor,)

    def reuse(self) -> None:
        """Overwrite all memory with bytes that are NaN as floating-point numbers."""
        for tensor in self.mapped:
            tensor.view(torch.uint8).fill_(255)


class Model(nn.Module):
    """A fake of vLLM's model, with the names of a checkpoint. With ``buffers``, every second weight is a buffer."""

    def __init__(self, shapes: list[torch.Size], *, buffers: bool = False) -> None:
        """Start with NaN."""
        super().__init__()
        self.weights = nn.ParameterDict(
            {str(n): nn.Parameter(torch.full(shape, torch.nan)) for n, shape in enumerate(shapes)}
        )
        self.of_buffers = {n for n in range(len(shapes)) if buffers and n % 2 == 1}

    def named_buffers(self, *_passed: object, **_options: object) -> Iterator[tuple[str, Tensor]]:
        """The buffers, without copies."""
        return ((_NAME.format(n), self.weights[str(n)].detach()) for n in sorted(self.of_buffers))

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Copy each weight into its parameter; weight loaders skip buffers."""
        loaded = set[str]()
        for name, weight in weights:
            if (layer := layer_of(name)) not in self.of_buffers:
                self.weights[str(layer)].data.copy_(weight)
                loaded.add(name)
        return loaded


class LoraWorker:
    """A fake of vLLM's worker: it serves one adapter under an id."""

    def __init__(self) -> None:
        """Start without an adapter."""
        self.served: dict[int, dict[str, Tensor]] = {}

    def remove_lora(self, number: int) -> bool:
        """Remove the adapter with this id."""
        return self.served.pop(number, None) is not None

    def add_lora(self, request: Any) -> bool:  # noqa: ANN401 - made by the target
        """Serve the adapter of a request and keep its tensors, unless the worker serves one with this id already."""
        return self.served.setdefault(request.lora_int_id, request.lora_tensors) is request.lora_tensors

    def weight(self, layer: int, like: Tensor) -> Tensor:
        """The weight of the adapter at a layer, or NaN."""
        every = (pair for adapter in self.served.values() for pair in adapter.items())
        return next((weight for name, weight in every if layer_of(name) == layer), torch.full_like(like, torch.nan))


def layer_of(name: str) -> int:
    """The layer of a weight of the base or of the adapter.

    Raises:
        KeyError: for any other name.
    """
    match = re.fullmatch(_WEIGHT, name)
    if match is None:
        msg = f"the model has no weight {name}"
        raise KeyError(msg)
    return int(match[1])


def named(weights: list[Tensor], *, adapter: bool) -> Iterator[tuple[str, Tensor]]:
    """Temporary copies of the weights, with the names that the trainer gives them."""
    pattern = "base_model.model.model.layers.{}.q_proj.lora_A.weight" if adapter else _NAME
    for number, weight in enumerate(weights):
        yield pattern.format(number), weight.clone()
