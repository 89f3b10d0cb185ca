"""Call a boundary on a case: copy inputs, validate outputs, and distinguish refusals from crashes."""

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rl_sentinel.adapters.kit.execution import Execution, columns_after, execute, inputs_of
from rl_sentinel.adapters.target import Target
from rl_sentinel.audit.engine.equal_calls import EqualCalls, Manner
from rl_sentinel.audit.engine.exception_origin import origin_of
from rl_sentinel.audit.engine.mutation_tracker import Watch
from rl_sentinel.audit.sandbox.heartbeat import beat
from rl_sentinel.core.batch import Batch, columns_read, lazily
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case
from rl_sentinel.core.errors import Crashed, NotApplicable, Refused
from rl_sentinel.core.observation import Observation

#: Exceptions by which code refuses an input on purpose; others are accidents.
REFUSALS = (ValueError, AssertionError, NotImplementedError, ArithmeticError)

#: Torch's message if a tensor that a gradient needs was overwritten. It counts as a refusal.
_OVERWRITTEN = "modified by an inplace operation"


#: The target of boundaries that only call functions of this package.
_NOWHERE = Target(Path("/nowhere"))


class Misbehaved(Exception):  # noqa: N818 - becomes the reason of an errored verdict
    """Raised if an output of the boundary differs from its declaration."""


@dataclass(frozen=True, slots=True)
class Asker:
    """The interface by which laws call a boundary; results on batches that laws share are cached.

    ``cache`` maps the ``id`` of such a batch to the observations on it. ``gate`` is the target, whose functions report
    changes of their arguments; calls are watched there if the law asks for it, or if all laws share the observation.
    ``equal_calls`` has the results of calls on other batches, to use them for equal calls; None repeats such calls.
    """

    boundary: Boundary
    by_path: Mapping[str, Boundary]
    cache: dict[int, dict[tuple[object, ...], Observation]] = field(default_factory=dict)
    gate: Target | None = None
    equal_calls: EqualCalls | None = None

    def __call__(
        self,
        case: Case,
        /,
        *,
        gradients: Iterable[str] = (),
        on: str | None = None,
        fresh: bool = False,
        watched: bool = False,
    ) -> Observation:
        """Call the boundary, or the alternative at path ``on``, on a copy of the case; or reuse an equal call's result.

        Args:
            case: the case.
            gradients: the columns with respect to which gradients are computed.
            on: path of the alternative.
            fresh: repeat the call even if the result of an equal call is known.
            watched: record which arguments the target's functions change; only without ``gradients`` and ``on``.

        Raises:
            NotApplicable: if the target's trainer could not make this call.
            Refused: if the target refuses the case.
            Crashed: if the target fails with an unintended error.
            Misbehaved: if an output differs from its declaration.
        """
        columns, observations = tuple(gradients), self.cache.get(id(case.batch))
        override = tuple((name, type(value), value) for name, value in sorted(case.override.items()))
        key = (case.setting, override, case.layout, case.seed, columns, on)
        if fresh or (watched and observations is None):
            return self._watched(case) if watched else self._observed(case, columns, on, references=False)
        if observations is None:
            return self._equal(case, columns, on, key)
        if key not in observations:
            plain = not (columns or on)
            observations[key] = self._watched(case, key) if plain else self._equal(case, columns, on, key)
        return observations[key]

    def _equal(self, case: Case, columns: tuple[str, ...], on: str | None, key: Manner) -> Observation:
        """The result of an earlier equal call; without such a call, the result of a new call."""
        found = self.equal_calls.get(case, key) if self.equal_calls is not None else None
        return self._observed(case, columns, on, references=False, key=key) if found is None else found

    def _watched(self, case: Case, key: Manner | None = None) -> Observation:
        if self.gate is None:
            return self._observed(case, key=key)
        self.gate.recorder = watch = Watch(self.gate)
        try:
            return replace(self._observed(case, key=key), arguments=watch.changed)
        finally:
            self.gate.recorder = None

    def _observed(
        self,
        case: Case,
        columns: tuple[str, ...] = (),
        on: str | None = None,
        *,
        references: bool = True,
        key: Manner | None = None,
    ) -> Observation:
        boundary = self.boundary if on is None else self.by_path[on]
        batch = _copied(case.batch, columns)
        seed_everything(case.seed)
        beat()
        try:
            inputs = inputs_of(boundary, case, batch)
            run = execute(self.gate or _NOWHERE, boundary, inputs, references=references)
        except NotApplicable:
            raise
        except Exception as error:
            message, origin = str(error).strip(), origin_of(error, (self.gate or _NOWHERE).root)
            text = f"{type(error).__name__}: {message}" if message else type(error).__name__
            deliberate = isinstance(error, RuntimeError) and (origin.on_purpose or _OVERWRITTEN in message)
            if message and (isinstance(error, REFUSALS) or deliberate):
                raise Refused(text, origin.accident) from error
            if origin.accident:
                raise Crashed(text, origin.accident) from error
            raise
        outputs = {n: _validated(boundary, n, run.values[n], case.batch) for n in boundary.outputs}
        slopes = _gradients(outputs, batch, columns)
        after = _ColumnsAfter(run, case.batch, batch, boundary.reads) if references else {}
        observation = Observation({n: v.detach() for n, v in outputs.items()}, slopes, after)
        if key is not None and self.equal_calls is not None:
            self.equal_calls.add(case, key, columns_read(batch), observation)
        return observation


@dataclass(frozen=True, slots=True)
class _ColumnsAfter(Mapping[str, Tensor]):
    """The inputs as a call has left them; computed when first read, because few laws read them.

    ``copy`` has the columns that were passed, which a call may have changed in place.
    """

    run: Execution
    batch: Batch
    copy: Batch
    names: frozenset[str]
    _read: dict[str, Tensor] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Tensor:
        if not self._read:
            self._read.update({n: getattr(self.copy, n) for n in self.names}, **columns_after(self.run, self.batch))
        return self._read[name].detach()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def seed_everything(seed: int) -> None:
    """Seed the global generators of Python, numpy and torch (on the CPU)."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - targets use the global generator
    torch.default_generator.manual_seed(seed)  # torch.manual_seed queues a stack per absent accelerator


def _copied(batch: Batch, columns: tuple[str, ...]) -> Batch:
    copy = lazily(batch, torch.clone)
    for name in columns:
        getattr(copy, name).requires_grad_(True)  # noqa: FBT003 - torch's own signature
    return copy


def _validated(boundary: Boundary, name: str, value: object, batch: Batch) -> Tensor:
    output = boundary.outputs[name]
    sizes = {"B": batch.rows, "T": batch.width}
    shape = [sizes[a] for a in output.axes.split()]
    expected = f"{shape} (axes {output.axes})" if output.axes else "one number"
    if not isinstance(value, Tensor):
        message = f"output {name!r} is of type {type(value).__name__}, expected a tensor"
        message += f" of {'shape ' * bool(shape)}{expected}"
        raise Misbehaved(message)
    if list(value.shape) != shape:
        message = f"output {name!r} has shape {list(value.shape)}, expected {expected}"
        raise Misbehaved(message)
    return value


def _gradients(values: Mapping[str, Tensor], batch: Batch, columns: tuple[str, ...]) -> dict[str, Tensor]:
    """Gradients of the loss, or of the sum of all outputs if there is no loss."""
    if not columns:
        return {}
    leaves = [getattr(batch, n) for n in columns]
    loss = values["loss"] if "loss" in values else torch.stack([v.sum() for v in values.values()]).sum()
    if not loss.requires_grad:
        return {n: torch.zeros_like(x) for n, x in zip(columns, leaves, strict=True)}
    gradients = torch.autograd.grad(loss.sum(), leaves, allow_unused=True)
    parts = zip(columns, leaves, gradients, strict=True)
    return {n: torch.zeros_like(x) if g is None else g.detach() for n, x, g in parts}
