"""Calls of the library beside their oracles, of functions of one batch: groups of rows, tokens of rows."""

from collections.abc import Callable

import torch
from oracle import choices, rows, tokens
from oracle.draws import Draw
from torch import Tensor

from rl_sentinel.signal import covariance, groups, reduce, value
from rl_sentinel.signal.advantage import gdpo, maxrl, optimal_token_baseline, turn_level_gae

#: The library's call and the oracle's, on one draw.
Pair = tuple[Callable[[Draw], Tensor], Callable[[Draw], object]]

#: Of two parts of a reward.
_WEIGHT = [0.6, 1.7]


def _policy(x: Draw) -> tuple[Tensor, Tensor]:
    """Log-probs of at most 0, and sums of squares that allow them."""
    own = -x.logprob.abs()
    return own, own.exp().square() + (1 - own.exp()).square() * torch.sigmoid(x.value)


def _held(x: Draw) -> Tensor:
    by = reduce.Aggregation("token-sum", 3.0)
    return value.value_loss(x.value, x.old, x.token_reward, mask=x.mask, value_clip=0.4, aggregation=by)


def _squares(x: Draw) -> float:
    found = tokens.value_loss(x.value.tolist(), x.old.tolist(), x.token_reward.tolist(), x.mask.tolist(), 0.4)
    return tokens.aggregate(found, x.mask.tolist(), "token-sum", 3.0)


def _parts(x: Draw) -> Tensor:
    weight = torch.tensor(_WEIGHT, dtype=torch.float64)
    parts = torch.stack([x.reward, x.baseline], 1)
    return gdpo.advantages(parts, group=x.group, live=x.live, weight=weight, epsilon=1e-3)


def _whole(x: Draw) -> list[float]:
    parts = [x.reward.tolist(), x.baseline.tolist()]
    return rows.gdpo(parts, x.group.tolist(), x.live.tolist(), _WEIGHT, 1e-3)


def _compared(x: Draw) -> Tensor:
    own, squared = _policy(x)
    return optimal_token_baseline.advantages(x.token_reward, own, squared, mask=x.mask, group=x.group)


def _compared_plain(x: Draw) -> tokens.Grid:
    own, squared = (c.tolist() for c in _policy(x))
    return tokens.optimal_token_baseline(x.token_reward.tolist(), own, squared, x.mask.tolist(), x.group.tolist())


#: Functions whose rows or groups do not touch each other.
APART: dict[str, Pair] = {
    "groups.places": (lambda x: groups.places(x.group), lambda x: rows.places(x.group.tolist())),
    "advantage.maxrl.advantages": (
        lambda x: maxrl.advantages(x.reward.abs(), group=x.group, live=x.live),
        lambda x: rows.maxrl(x.reward.abs().tolist(), x.group.tolist(), x.live.tolist()),
    ),
    "advantage.turn_level_gae.advantages": (
        lambda x: turn_level_gae.advantages(x.token_reward, x.value, mask=x.mask, turn=x.turn, discount=0.9, decay=0.8),
        lambda x: tokens.turn_level_gae(
            x.token_reward.tolist(), x.value.tolist(), x.turn.tolist(), x.mask.tolist(), 0.9, 0.8
        ),
    ),
    "advantage.turn_level_gae.turn_values": (
        lambda x: turn_level_gae.turn_values(x.value, mask=x.mask, turn=x.turn),
        lambda x: tokens.turn_values(x.value.tolist(), x.turn.tolist(), x.mask.tolist()),
    ),
}

#: Functions of the whole batch.
WHOLE: dict[str, Pair] = {
    "advantage.gdpo.advantages": (_parts, _whole),
    "advantage.optimal_token_baseline.advantages": (_compared, _compared_plain),
    "covariance.covariances": (
        lambda x: covariance.covariances(x.logprob, x.advantage, mask=x.mask),
        lambda x: choices.covariances(x.logprob.tolist(), x.advantage.tolist(), x.mask.tolist()),
    ),
    "covariance.largest": (
        lambda x: covariance.largest(x.value.round(decimals=1), mask=x.mask, share=0.4),
        lambda x: choices.largest(x.value.round(decimals=1).tolist(), x.mask.tolist(), 0.4),
    ),
    "value.value_loss": (_held, _squares),
}
