"""A recipe's choices are tried on four rows before anything is loaded: what is impossible is refused there."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.signal.covariance import covariances
from rl_sentinel.signal.minibatches import aggregation
from rl_sentinel.signal.path import Choices, loss_ready
from rl_sentinel.signal.rollout import Rollout
from rl_sentinel.train.config.recipe import Recipe

#: Log-ratios of a policy that left its tokens far behind, in nats: any lower clip holds some of them.
FAR = torch.linspace(-60.0, 0.0, 6001, dtype=torch.float64).unsqueeze(0)


class Rehearsed(NamedTuple):
    """Whether rows without an advantage add nothing to the gradient, and whether parts of a mini-batch add up."""

    lazy: bool
    split: bool


def rehearsed(
    recipe: Recipe, choices: Choices, loss: Callable[..., Tensor], chosen: Callable[..., Tensor] | None, *, parts: int
) -> Rehearsed:
    """Carry four rows through the path and the loss.

    Args:
        recipe: the loss's aggregation.
        choices: the stages of the path.
        loss: with its numbers filled in.
        chosen: which tokens the loss treats apart, with its numbers filled in; None where it treats all alike.
        parts: how many parts the environment's reward has.

    Raises:
        ValueError: one line from whatever refuses its numbers.
        SentinelError: if a lower clip holds nothing.
    """
    mask = torch.tensor([[True, True, True], [True, False, False], [True, True, False], [True, True, True]])
    apart = torch.tensor([[0.01, -0.3, 0.2], [0.1, 0.0, 0.0], [-0.02, 0.4, 0.0], [-0.2, 0.05, 0.3]])
    old = torch.full((4, 3), -1.0)
    every = {"old_logprob": old, "rollout_logprob": old.clone(), "ref_logprob": old + apart, "value": apart}
    every |= {"pi_squared": torch.full((4, 3), 0.5), "turn": torch.zeros(4, 3).long()}
    reward, group = torch.tensor([1.0, 0.0, 1.0, 0.0]), torch.tensor([0, 0, 1, 1])
    every |= {"reward_baseline": reward * 0.5}
    every |= {"reward_parts": reward.unsqueeze(1).repeat(1, parts)} if parts else {}
    ready = loss_ready(Rollout(reward=reward, group=group, mask=mask, **every), by=replace(choices))
    advantage = torch.where(mask, ready.token_advantage() + 0.5, 0.0)
    if chosen is not None:
        chosen(covariances(old + apart, advantage, mask=mask), mask=mask, generator=torch.Generator())
    every_token = {"old_logprob": old, "mask": mask, "turn": every["turn"], "chosen": apart > 0}
    wanted = set(inspect.signature(loss).parameters)
    _require_clip(recipe, loss)

    def gradient(advantage: Tensor, rows: Tensor) -> Tensor:
        now = (old + apart).requires_grad_()
        told = {k: v[rows] for k, v in (every_token | {"advantage": advantage}).items() if k in wanted}
        by = aggregation(recipe.loss.aggregation, mask=mask, length=recipe.loss.length, group=group).of_rows(rows)
        found = loss(now[rows], **told, aggregation=by)
        slope = torch.autograd.grad(found, now, allow_unused=True)[0] if found.requires_grad else torch.zeros_like(now)
        if slope is None:
            told = f"loss {recipe.loss.name!r} gave a number with a gradient that does not lead to logprob"
            raise SentinelError(f"{told}, expected one made of it: mend it there")
        return slope

    first, second, every_row = torch.tensor([0, 1]), torch.tensor([2, 3]), torch.arange(4)
    half = torch.where(torch.tensor([[True], [True], [False], [False]]), advantage, 0.0)
    lazy = torch.allclose(gradient(half, every_row), gradient(half, first))
    split = torch.allclose(gradient(advantage, every_row), gradient(advantage, first) + gradient(advantage, second))
    return Rehearsed(lazy, split)


def _require_clip(recipe: Recipe, loss: Callable[..., Tensor]) -> None:
    """Refuse a lower clip above 1 that is none: a ratio never falls below 0. In nats it may be above 1."""
    numbers = recipe.loss.numbers
    if numbers.get("clip_low", 0.0) <= 1:
        return
    mask = torch.ones_like(FAR, dtype=torch.bool)
    told = {"old_logprob": torch.full_like(FAR, -1.0), "advantage": -torch.ones_like(FAR), "mask": mask}
    told |= {"turn": torch.zeros_like(FAR).long(), "chosen": ~mask}
    told = {k: v for k, v in told.items() if k in inspect.signature(loss).parameters}
    by = aggregation(recipe.loss.aggregation, mask=mask, length=recipe.loss.length, group=torch.tensor([0]))
    given, whole = (f(FAR - 1.0, **told, aggregation=by) for f in (loss, partial(loss, clip_low=1.0)))
    if torch.equal(given, whole):
        raise SentinelError(
            f"loss.clip_low is {numbers['clip_low']}, expected at most 1 with loss {recipe.loss.name}: from 1 on it "
            "holds nothing, neither a ratio nor a probability falls below 0 (1 is no lower clip)"
        )
