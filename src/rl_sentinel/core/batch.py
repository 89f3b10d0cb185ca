"""``Batch``: sampled responses in a format independent of any framework; each column has axes, a unit and a role."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import torch
from torch import Tensor

#: Kind of a column: real numbers (``signal``), integers (``label``) or booleans (``mask``).
Role = Literal["signal", "label", "mask"]

#: Reasons why a row is not trained (``in``: it is trained); ``Batch.excluded`` holds their numbers.
EXCLUDED = {"in": 0, "padding": 1, "aborted": 2, "unscorable": 3, "truncated": 4, "rejected": 5}

#: Size of the vocabulary of the logits that cases carry.
VOCABULARY = 3


def _column(axes: str, unit: str, role: Role) -> Any:  # noqa: ANN401 - the return type of dataclasses.field
    return field(metadata={"axes": axes, "unit": unit, "role": role})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """Sampled responses, one per row; no column is ever missing.

    ``B`` responses, ``T`` response positions, ``K`` reward parts, ``V`` vocabulary.

    Attributes:
        group: prompt id.
        trajectory, step, last_step: for trajectories of several rows: id, number of the row's step, True at the last.
        length, prompt_length: tokens of the response and of the prompt; positions from ``length`` on are padding.
        excluded: the reason why the row is not trained, a number of ``EXCLUDED``.
        scored: False where the response was cut off, so that its reward is not known.
        mask: True at trained positions, all before ``length``.
        token, turn: token id, and number of the turn of a conversation.
        version: number of updates of the policy that sampled the token.
        reward, reward_parts: outcome of the whole response, and the outcome of each reward function.
        reward_baseline: outcome of the greedy response to the same prompt.
        token_reward: reward per token, added to the outcome.
        logprob, old_logprob, ref_logprob, rollout_logprob: of the policy now, of the policy before the update, of the
            reference model, and of the sampler.
        value, old_value: the critic's values now and before the update; ``returns`` are its targets.
        advantage: advantage per token.
        entropy, pi_squared: entropy and sum of squared probabilities of the policy.
        logits, ref_logits: of the policy and of the reference model.
    """

    group: Tensor = _column("B", "", "label")
    trajectory: Tensor = _column("B", "", "label")
    step: Tensor = _column("B", "", "label")
    last_step: Tensor = _column("B", "", "mask")
    length: Tensor = _column("B", "tokens", "label")
    prompt_length: Tensor = _column("B", "tokens", "label")
    excluded: Tensor = _column("B", "", "label")
    scored: Tensor = _column("B", "", "mask")
    mask: Tensor = _column("B T", "", "mask")
    token: Tensor = _column("B T", "", "label")
    turn: Tensor = _column("B T", "", "label")
    version: Tensor = _column("B T", "updates", "label")
    reward: Tensor = _column("B", "reward", "signal")
    reward_baseline: Tensor = _column("B", "reward", "signal")
    reward_parts: Tensor = _column("B K", "reward", "signal")
    token_reward: Tensor = _column("B T", "reward", "signal")
    logprob: Tensor = _column("B T", "nats", "signal")
    old_logprob: Tensor = _column("B T", "nats", "signal")
    ref_logprob: Tensor = _column("B T", "nats", "signal")
    rollout_logprob: Tensor = _column("B T", "nats", "signal")
    value: Tensor = _column("B T", "reward", "signal")
    old_value: Tensor = _column("B T", "reward", "signal")
    returns: Tensor = _column("B T", "reward", "signal")
    advantage: Tensor = _column("B T", "reward", "signal")
    entropy: Tensor = _column("B T", "nats", "signal")
    pi_squared: Tensor = _column("B T", "", "signal")
    logits: Tensor = _column("B T V", "nats", "signal")
    ref_logits: Tensor = _column("B T V", "nats", "signal")

    @property
    def rows(self) -> int:
        """Number of responses, ``B``."""
        return self.mask.shape[0]

    @property
    def width(self) -> int:
        """Number of response positions, ``T``."""
        return self.mask.shape[1]

    @property
    def live(self) -> Tensor:
        """``[B]``: True where the row has at least one trained token."""
        return self.mask.any(dim=1)

    @property
    def device(self) -> torch.device:
        """Device of the columns."""
        return self.mask.device

    @property
    def valid(self) -> Tensor:
        """``[B, T]``: True at response tokens, trained or not."""
        return torch.arange(self.width, device=self.device) < self.length.unsqueeze(1)


#: name -> {"axes", "unit", "role"} of every column, in the order of the class.
COLUMNS: Mapping[str, Mapping[str, str]] = {f.name: dict(f.metadata) for f in fields(Batch)}


#: Columns that a model computes, in its own precision.
MODEL_COLUMNS = frozenset(
    {
        "logprob",
        "old_logprob",
        "ref_logprob",
        "rollout_logprob",
        "logits",
        "ref_logits",
        "entropy",
        "pi_squared",
        "value",
        "old_value",
    }
)


def columns(*, axes: str = "", role: str = "") -> tuple[str, ...]:
    """Names of the columns with these axes and this role; an empty string means any axes or any role."""
    return tuple(
        name
        for name, about in COLUMNS.items()
        if (not axes or about["axes"] == axes) and (not role or about["role"] == role)
    )


def batch_of(mask: Tensor, **values: Tensor) -> Batch:
    """Make a full batch from a trained-token mask ``[B, T]`` and some columns.

    Other columns get their default: one group, one trajectory per row,
    full length, reward 0, log-probs 0.

    Raises:
        ValueError: if a column is unknown.

    Example:
        >>> import torch
        >>> from rl_sentinel.core.batch import batch_of
        >>> batch_of(torch.tensor([[True, False]]), reward=torch.tensor([2.0])).reward
        tensor([2.])
    """
    b, t = mask.shape
    unknown = set(values) - set(COLUMNS)
    if unknown:
        message = f"batch_of[{min(unknown)}] is not a column, expected one of {', '.join(COLUMNS)}"
        raise ValueError(message)
    sizes = {"B": b, "T": t, "K": 2, "V": VOCABULARY}
    kinds = {"signal": torch.float32, "label": torch.int64, "mask": torch.bool}
    defaults = {
        name: torch.zeros([sizes[a] for a in about["axes"].split()], dtype=kinds[about["role"]], device=mask.device)
        for name, about in COLUMNS.items()
    }
    defaults |= {
        "mask": mask.bool(),
        "trajectory": torch.arange(b, device=mask.device),
        "last_step": torch.ones(b, dtype=torch.bool, device=mask.device),
        "length": torch.full((b,), t, device=mask.device),
        "prompt_length": torch.full((b,), 1, device=mask.device),
        "scored": torch.ones(b, dtype=torch.bool, device=mask.device),
    }
    return Batch(**(defaults | values))


def with_columns(batch: Batch, **changed: Tensor) -> Batch:
    """A copy of the batch with some columns replaced."""
    if not changed.keys() <= COLUMNS.keys():
        return replace(batch, **changed)  # raises with the unknown name
    if isinstance(batch, _Lazy):
        lazy = lazily(batch, lambda column: column)
        for name, column in changed.items():
            object.__setattr__(lazy, name, column)
        return lazy
    copy = object.__new__(Batch)  # a tenth of the time of ``replace``, and laws make thousands
    for name in COLUMNS:
        object.__setattr__(copy, name, changed[name] if name in changed else getattr(batch, name))
    return copy


class _Lazy(Batch):
    """A batch that derives each column when it is first read, because a call reads few columns."""

    __slots__ = ("_derive", "_source")
    _derive: Callable[[Tensor], Tensor]
    _source: Batch

    def __getattr__(self, name: str) -> Tensor:
        fresh: Tensor = self._derive(getattr(self._source, name))
        object.__setattr__(self, name, fresh)
        return fresh


def lazily(batch: Batch, derive: Callable[[Tensor], Tensor]) -> Batch:
    """A batch with ``derive(column)`` instead of each column, computed when the column is first read.

    Example:
        >>> import torch
        >>> from rl_sentinel.core.batch import batch_of, lazily
        >>> copy = lazily(batch_of(torch.ones(1, 2).bool()), torch.clone)
        >>> copy.reward is copy.reward, copy.reward.tolist()
        (True, [0.0])
    """
    lazy = object.__new__(_Lazy)
    object.__setattr__(lazy, "_source", batch)
    object.__setattr__(lazy, "_derive", derive)
    return lazy


def columns_read(batch: Batch) -> tuple[str, ...]:
    """The columns of a batch made by :func:`lazily` that were read so far.

    Example:
        >>> import torch
        >>> from rl_sentinel.core.batch import batch_of, columns_read, lazily
        >>> copy = lazily(batch_of(torch.ones(1, 2).bool()), torch.clone)
        >>> copy.rows, columns_read(copy)
        (1, ('mask',))
    """
    return tuple(name for name in COLUMNS if _is_set(batch, name))


def _is_set(batch: Batch, name: str) -> bool:
    try:
        object.__getattribute__(batch, name)
    except AttributeError:
        return False
    return True


def take_rows(batch: Batch, index: Tensor) -> Batch:
    """The rows at ``index`` (int64 ``[n]``), in the order of ``index``; a row may occur twice."""
    return lazily(batch, lambda column: column[index])


def take_positions(batch: Batch, index: Tensor) -> Batch:
    """The response positions at ``index`` (int64 ``[n]``), in the order of ``index``; ``length`` is computed again."""
    wide = {n: getattr(batch, n)[:, index] for n in COLUMNS if COLUMNS[n]["axes"].startswith("B T")}
    length = batch.valid[:, index].sum(dim=1)
    return replace(batch, **wide, length=length)
