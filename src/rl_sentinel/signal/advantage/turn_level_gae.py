"""GAE over turns: each turn of a conversation is one step, and its trained tokens share its advantage."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rl_sentinel.core.argument_checks import refuse_where
from rl_sentinel.signal.requirements import FRACTION, explain_result
from rl_sentinel.signal.scan import discounted_suffix_sums
from rl_sentinel.signal.segments import Mask, Segments, trained
from rl_sentinel.signal.validation import validate

#: Claims about this estimator.
CLAIMS = {
    "algorithm": "turn-level gae",
    "definition:advantage": "as they are",
    "scope": "sequence",
    "credit": "temporal",
    "untrained": "skipped",
    "masked": "yes",
    "masked-slots": "any",
    "knob:discount": "0.5|1.0",
    "knob:decay": "0.0|1.0",
}


@validate(discount=FRACTION, decay=FRACTION)
def advantages(  # noqa: PLR0913 - two columns, their turns and mask, and two factors
    token_reward: Float[Tensor, "*S"],
    value: Float[Tensor, "*S"],
    *,
    mask: Mask,
    turn: Int[Tensor, "*S"],
    discount: float,
    decay: float,
) -> Float[Tensor, "*S"]:
    r"""Compute the advantage of each turn, and repeat it at the turn's trained tokens.

    .. math:: A_k = \delta_k + \gamma \lambda A_{k+1}, \quad
        \delta_k = \sum_{t \in k} r_t + \gamma V_{k+1} - V_k

    where :math:`V_k` is the value of the first trained token of turn :math:`k`, before which the turn is decided;
    after the last turn of a row :math:`A` and :math:`V` are 0. Discounting is per turn: the number of tokens in or
    between turns has no effect. Returns are ``advantages(...) + turn_values(...)``.

    Args:
        token_reward: reward per token, in reward units; ``align.at_last`` places an outcome at the last token.
        value: the critic's value of each token, in reward units; only the first trained token of a turn is read.
        mask: True on trained tokens; other values are ignored.
        turn: number of the turn that a trained token belongs to; any integers that never fall along a row. A number
            without a trained token is not a step.
        discount: factor per turn on later rewards, from 0 to 1 (gamma).
        decay: factor per turn on later differences, from 0 to 1 (lambda).

    Returns:
        Advantage per token, in reward units, not whitened; exactly 0 off the mask.

    Raises:
        InputError: if a reward on the mask or a value that is read is not finite, a dtype or shape is wrong, turns
            fall along a row, or ``discount`` or ``decay`` is not from 0 to 1.

    Source:
        High-Dimensional Continuous Control Using Generalized Advantage Estimation, arXiv 1506.02438, with turns as its
        steps, as AReaL (``trainer/ppo/gae.py`` of its repository; the releases have none) and VAGEN
        (``turn_level_gae``; arXiv 2510.16907) do: a turn's rewards are added up, and it has the value of its first
        token. AReaL also bootstraps from the last value where a response never ended; here the end has value 0.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.advantage.turn_level_gae import advantages
        >>> reward, value = torch.tensor([[0.0, 0.0, 0.0, 1.0]]), torch.tensor([[0.25, 9.0, 9.0, 0.5]])
        >>> mask, turn = torch.tensor([[True, True, False, True]]), torch.tensor([[0, 0, 0, 1]])
        >>> advantages(reward, value, mask=mask, turn=turn, discount=1.0, decay=0.5)
        tensor([[0.5000, 0.5000, 0.0000, 0.5000]])
    """
    turns = _turns(turn, mask)
    gained = token_reward.flatten()[turns.position]
    total = gained.new_zeros(len(turns.row), dtype=torch.float64)  # as wide as any sum of a row
    reward = turns.lined_up(total.index_add(0, turns.number, gained.double()).to(gained.dtype))
    baseline = turns.lined_up(value.flatten()[turns.position[turns.first]])
    difference = reward - baseline
    difference[:, :-1].add_(baseline[:, 1:], alpha=discount)
    found = discounted_suffix_sums(difference, discount=discount * decay)[turns.row, turns.step]
    spread = turns.put_back(found, mask)
    read = turns.put_back(turns.first, mask, of_turns=False)
    explain_result(spread, where=mask, token_reward=token_reward)
    explain_result(spread, where=read, value=value)
    return spread


@validate()
def turn_values(value: Float[Tensor, "*S"], *, mask: Mask, turn: Int[Tensor, "*S"]) -> Float[Tensor, "*S"]:
    """Repeat the value of each turn (the value at its first trained token) at all trained tokens of the turn.

    Args:
        value: the critic's value of each token, in reward units; only the first trained token of a turn is read.
        mask: True on trained tokens; other values are ignored.
        turn: as for :func:`advantages`.

    Returns:
        Value per token, in reward units; exactly 0 off the mask.

    Raises:
        InputError: if a value that is read is not finite, a dtype or shape is wrong, or turns fall along a row.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.advantage.turn_level_gae import turn_values
        >>> mask, turn = torch.tensor([[True, True, False, True]]), torch.tensor([[0, 0, 0, 1]])
        >>> turn_values(torch.tensor([[0.25, 9.0, 9.0, 0.5]]), mask=mask, turn=turn)
        tensor([[0.2500, 0.2500, 0.0000, 0.5000]])
    """
    turns = _turns(turn, mask)
    read = turns.put_back(turns.first, mask, of_turns=False)
    spread = turns.put_back(value.flatten()[turns.position[turns.first]], mask)
    explain_result(spread, where=read, value=value)
    return spread


class _Turns(NamedTuple):
    """Trained tokens and their turns; turns are numbered from 0, row after row.

    Attributes:
        position, first, number: of each trained token: its flat position, whether it begins a turn, and its turn.
        row, step: of each turn: its row, and its index in the row.
        rows: number of rows, with and without a turn.
    """

    position: Int[Tensor, " N"]
    first: Bool[Tensor, " N"]
    number: Int[Tensor, " N"]
    row: Int[Tensor, " K"]
    step: Int[Tensor, " K"]
    rows: int

    def lined_up(self, of_turns: Float[Tensor, " K"]) -> Float[Tensor, "B S"]:
        """Lay out the turns of each row as columns; 0 after the last."""
        most = int(self.step.max()) + 1 if len(self.step) else 0
        return of_turns.new_zeros(self.rows, most).index_put((self.row, self.step), of_turns)

    def put_back(self, found: Tensor, mask: Mask, *, of_turns: bool = True) -> Tensor:
        """Values per token, 0 at untrained tokens; ``found`` has one per turn or, without ``of_turns``, per token."""
        where = trained(mask)
        empty = found.new_zeros(where.numel())
        return empty.scatter(0, self.position, found[self.number] if of_turns else found).view(where.shape)


def _turns(turn: Tensor, mask: Mask) -> _Turns:
    """Find the turns: a turn begins where the row or the turn number of the trained tokens changes."""
    where = trained(mask)
    position = torch.nonzero(where.flatten()).squeeze(1)
    row = mask.row[position] if isinstance(mask, Segments) else position // max(1, where.shape[1])
    ids, first = turn.flatten().long()[position], torch.ones_like(position, dtype=torch.bool)
    same = row[1:] == row[:-1]
    falls = same & (ids[1:] < ids[:-1])
    refuse_where(
        falls,
        lambda at: (
            f"turn falls from {int(ids[at[0]])} to {int(ids[at[0] + 1])} in row {int(row[at[0]])}, expected numbers "
            "that never fall along a row: a later token belongs to the same turn or a later one"
        ),
    )
    first[1:] = ~same | (ids[1:] != ids[:-1])
    rows = len(mask.length) if isinstance(mask, Segments) else len(where)
    of_turns = row[first]
    count = torch.bincount(of_turns, minlength=rows)
    step = torch.arange(len(of_turns), device=position.device) - (count.cumsum(0) - count)[of_turns]
    return _Turns(position, first, first.cumsum(0) - 1, of_turns, step, rows)
