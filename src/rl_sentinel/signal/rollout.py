"""The input of the signal path: sampled responses as one frozen record of tensors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rl_sentinel.core.argument_checks import number
from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.merging import merge
from rl_sentinel.signal.requirements import WHOLE, require_instance, require_range
from rl_sentinel.signal.segments import Mask
from rl_sentinel.signal.trajectory_step import Step
from rl_sentinel.signal.validation import validate, validate_record


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rollout:
    """Sampled responses: one row each, or one row for each step of a trajectory.

    A column with default None may be left out unless a chosen function needs it.

    Attributes:
        reward: the outcome of each row, in reward units; the outcome of a trajectory is that of its last step.
        group: prompt id of each row.
        mask: True on trained tokens, padded or packed.
        scored: False where the response was cut off, so that its outcome is not known.
        trajectory: trajectory id of each row.
        last: True on the last step of each trajectory.
        token_reward: reward per token in addition to the outcome, in reward units.
        old_logprob: log-probs of the policy before the update, in nats.
        rollout_logprob: log-probs that the sampler reported, in nats.
        ref_logprob: log-probs of the reference, in nats.
        value: the critic's value of each token, in reward units.
        reward_baseline: the outcome of a greedy response to the same prompt, in reward units.
        reward_parts: outcomes that the estimator combines, each in its reward unit.
        pi_squared: the sum of squared probabilities over the vocabulary, under the policy before the update.
        version: number of updates of the weights that sampled each token, for ``signal.staleness``.
        turn: number of each token's turn, if one row has several turns of a conversation.
    """

    reward: Float[Tensor, " B"]
    group: Int[Tensor, " B"]
    mask: Mask
    scored: Bool[Tensor, " B"] | None = None
    trajectory: Int[Tensor, " B"] | None = None
    last: Bool[Tensor, " B"] | None = None
    token_reward: Float[Tensor, "*S"] | None = None
    old_logprob: Float[Tensor, "*S"] | None = None
    rollout_logprob: Float[Tensor, "*S"] | None = None
    ref_logprob: Float[Tensor, "*S"] | None = None
    value: Float[Tensor, "*S"] | None = None
    reward_baseline: Float[Tensor, " B"] | None = None
    reward_parts: Float[Tensor, "B K"] | None = None
    pi_squared: Float[Tensor, "*S"] | None = None
    version: Int[Tensor, "*S"] | None = None
    turn: Int[Tensor, "*S"] | None = None

    def __post_init__(self) -> None:
        """Validate dtypes and shapes of all columns, and that ``trajectory`` and ``last`` come together."""
        validate_record(self)
        if (self.trajectory is None) != (self.last is None):
            given = "trajectory" if self.last is None else "last"
            raise InputError(f"{given} is given alone, expected trajectory and last: give both or neither")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Laid:
    """Steps as tensors: full sequences for the model, and response-aligned columns for the signal.

    ``token`` ``[B, S]`` holds prompt, response and padding; response t of row b is at ``prompt_length[b] + t``,
    where ``align.response_aligned`` finds its log-prob and other numbers.
    """

    token: Int[Tensor, "B S"]
    prompt_length: Int[Tensor, " B"]
    length: Int[Tensor, " B"]
    rollout: Rollout


@validate(padding=WHOLE)
def laid_out(  # noqa: PLR0913 - steps, facts about their trajectories, and two choices
    steps: Sequence[Step],
    *,
    reward: Mapping[str, float],
    group: Mapping[str, int],
    scored: Mapping[str, bool],
    merged: bool,
    padding: int,
    device: torch.device | None = None,
) -> Laid:
    """Lay out the steps of trajectories as padded tensors.

    Args:
        steps: the steps of each trajectory together and in order, as for ``merging.merge``.
        reward: outcome of each trajectory, in reward units; each row of the trajectory gets it.
        group: prompt id of each trajectory.
        scored: True for a trajectory that ended; otherwise its outcome is not known.
        merged: True to make steps that share a prefix one row, so that each token is trained once.
        padding: the token that fills the rest of a row.
        device: device of the tensors; the CPU if None.

    Returns:
        One row per (merged) step, in order; trajectories are numbered from 0 in the order of their first steps.

    Raises:
        InputError: if there is no step, or a trajectory has no valid entry in ``reward``, ``group`` or ``scored``; and
            as for ``merging.merge``, even if ``merged`` is False.

    Example:
        >>> from rl_sentinel.signal.trajectory_step import Step
        >>> from rl_sentinel.signal.rollout import laid_out
        >>> first = Step("a", (1,), (2, 3), (True, True), (0.0, 0.5), (-1.0, -1.0), last=False)
        >>> second = Step("a", (1, 2, 3, 9), (4,), (True,), (0.0,), (-2.0,), last=True)
        >>> known = {"reward": {"a": 1.0}, "group": {"a": 7}, "scored": {"a": True}}
        >>> laid = laid_out([first, second], **known, merged=True, padding=0)
        >>> laid.token, laid.rollout.mask
        (tensor([[1, 2, 3, 9, 4]]), tensor([[ True,  True, False,  True]]))
    """
    joined = merge(steps)
    if not joined:
        raise InputError("steps is empty, expected at least one step: there is nothing to lay out")
    rows = joined if merged else list(steps)
    names = [name for name, _ in groupby(rows, key=lambda step: step.trajectory)]
    place = {name: number for number, name in enumerate(names)}
    for parameter, entries in (("reward", reward), ("group", group), ("scored", scored)):
        require_instance(parameter, entries, Mapping, "an entry for each trajectory")
        lacking = [name for name in names if name not in entries]
        if lacking:
            raise InputError(
                f"{parameter} has no entry for trajectory {lacking[0]}, expected an entry for each trajectory"
            )
    for name in names:
        if type(reward[name]) is not float:  # the usual types are checked in place, which is faster
            number(f"reward[{name}]", reward[name])
        if type(group[name]) is not int or not -(2**53) < group[name] < 2**53:
            require_range(f"group[{name}]", group[name], WHOLE)
        if type(scored[name]) is not bool:
            require_instance(f"scored[{name}]", scored[name], bool, "whether the trajectory ended")
    each = [step.trajectory for step in rows]
    rollout = Rollout(
        reward=torch.tensor([float(reward[n]) for n in each], device=device),
        group=torch.tensor([group[n] for n in each], device=device),
        mask=_padded([step.trained for step in rows], fill=False, dtype=torch.bool, device=device),
        scored=torch.tensor([scored[n] for n in each], device=device),
        trajectory=torch.tensor([place[n] for n in each], device=device),
        last=torch.tensor([step.last for step in rows], device=device),
        token_reward=_padded(
            [step.token_reward for step in rows], fill=0.0, dtype=torch.get_default_dtype(), device=device
        ),
        rollout_logprob=_padded(
            [step.logprob for step in rows], fill=0.0, dtype=torch.get_default_dtype(), device=device
        ),
    )
    return Laid(
        token=_padded([step.prompt + step.response for step in rows], fill=padding, dtype=torch.long, device=device),
        prompt_length=torch.tensor([len(step.prompt) for step in rows], device=device),
        length=torch.tensor([len(step.response) for step in rows], device=device),
        rollout=rollout,
    )


def _padded(rows: Sequence[Sequence[float]], *, fill: float, dtype: torch.dtype, device: torch.device | None) -> Tensor:
    """Pad lists of numbers to one tensor; the dtype is a parameter, because empty rows do not show it."""
    width = max(len(row) for row in rows)
    return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows], dtype=dtype, device=device)
