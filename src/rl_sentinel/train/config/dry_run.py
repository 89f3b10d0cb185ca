"""Run signal path and loss on two prompts before a model is loaded: reject bad parameters, and inspect the loss."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.signal.choices import Choices
from rl_sentinel.signal.covariance import covariances
from rl_sentinel.signal.minibatches import aggregation
from rl_sentinel.signal.path import loss_ready
from rl_sentinel.signal.rollout import Rollout
from rl_sentinel.train.config.recipe import Recipe

#: Log-ratios from far below to equal, in nats: a lower clip that can bind binds on some of them.
LOW_LOG_RATIOS = torch.linspace(-60.0, 0.0, 6001, dtype=torch.float64, device="cpu").unsqueeze(0)


class LossForm(NamedTuple):
    """Two properties of a loss by which the update can skip work.

    ``lazy``: rows with advantage 0 have gradient 0. ``additive``: the gradients of parts of a mini-batch add up.
    """

    lazy: bool
    additive: bool


def dry_run(
    recipe: Recipe,
    choices: Choices,
    loss: Callable[..., Tensor],
    choose_tokens: Callable[..., Tensor] | None,
    *,
    parts: int,
) -> LossForm:
    """Run the responses to two prompts through ``signal.path`` and the loss, and find out the form of the loss.

    Args:
        recipe: for the number of responses per prompt and the loss's aggregation.
        choices: the functions for the stages of the path.
        loss: with its parameters bound.
        choose_tokens: selects the tokens that the loss treats differently; None if it treats all tokens alike.
        parts: the number of parts of the environment's reward.

    Raises:
        ValueError: from a function that rejects its parameters.
        SentinelError: if user code fails, the loss's gradient does not reach the log-probs, or a lower clip above 1
            never binds.
    """
    column = partial(torch.tensor, device="cpu")
    # The groups differ in their longest row, and below in the size of advantages, so that a loss that is divided by the
    # longest row or the largest advantage of a mini-batch is not additive.
    count = recipe.rollout.responses
    rows = column([prompt * 2 + response % 2 for prompt in (0, 1) for response in range(count)])  # two alternate
    mask = column([[True, True, True], [True, False, False], [True, True, False], [True, True, False]])[rows]
    shift = column([[0.01, -0.3, 0.2], [0.1, 0.0, 0.0], [-0.02, 0.4, 0.0], [-0.2, 0.05, 0.3]])[rows]
    old, turn = torch.full_like(shift, -1.0), torch.zeros_like(shift).long()
    reward, group = (rows + 1) % 2 * 1.0, rows // 2
    rollout = Rollout(
        reward=reward,
        group=group,
        mask=mask,
        old_logprob=old,
        rollout_logprob=old.clone(),
        ref_logprob=old + shift,
        value=shift,
        pi_squared=torch.full_like(shift, 0.5),
        turn=turn,
        reward_baseline=reward * 0.5,
        reward_parts=reward.unsqueeze(1).repeat(1, parts) if parts else None,
    )
    sizes = 1 + 1.5 * group.unsqueeze(1)
    advantage = torch.where(mask, loss_ready(rollout, by=replace(choices)).token_advantage() * sizes + 0.5, 0.0)
    if choose_tokens is not None:
        choose_tokens(covariances(old + shift, advantage, mask=mask), mask=mask, generator=torch.Generator())
    columns = {"old_logprob": old, "mask": mask, "turn": turn, "chosen": shift > 0}
    read = set(inspect.signature(loss).parameters)
    _require_binding_clip(recipe, loss)

    def gradient(advantage: Tensor, rows: Tensor) -> Tensor:
        logprob = (old + shift).requires_grad_()
        parts = {k: v[rows] for k, v in (columns | {"advantage": advantage}).items() if k in read}
        by = aggregation(recipe.loss.aggregation, mask=mask, length=recipe.loss.length, group=group).of_rows(rows)
        total = loss(logprob[rows], **parts, aggregation=by)
        if not total.requires_grad:
            return torch.zeros_like(logprob)
        slope = torch.autograd.grad(total, logprob, allow_unused=True)[0]
        if slope is None:
            raise SentinelError(
                f"loss {recipe.loss.name!r} returned a tensor without a gradient to logprob, expected a loss that is "
                "computed from logprob: fix the function"
            )
        return slope

    every_row = torch.arange(2 * count, device="cpu")
    first, second = every_row[:count], every_row[count:]
    half = torch.where(group.unsqueeze(1) == 0, advantage, 0.0)
    return LossForm(
        lazy=torch.allclose(gradient(half, every_row), gradient(half, first)),
        additive=torch.allclose(
            gradient(advantage, every_row), gradient(advantage, first) + gradient(advantage, second)
        ),
    )


def _require_binding_clip(recipe: Recipe, loss: Callable[..., Tensor]) -> None:
    """Reject a lower clip above 1 that never binds, since a ratio is never below 0; a clip in nats may be above 1."""
    parameters = recipe.loss.parameters
    if parameters.get("clip_low", 0.0) <= 1:
        return
    mask = torch.ones_like(LOW_LOG_RATIOS, dtype=torch.bool)
    columns = {"old_logprob": torch.full_like(LOW_LOG_RATIOS, -1.0), "advantage": -torch.ones_like(LOW_LOG_RATIOS)}
    columns |= {"mask": mask, "turn": torch.zeros_like(LOW_LOG_RATIOS).long(), "chosen": ~mask}
    columns = {k: v for k, v in columns.items() if k in inspect.signature(loss).parameters}
    by = aggregation(
        recipe.loss.aggregation, mask=mask, length=recipe.loss.length, group=torch.tensor([0], device="cpu")
    )
    clipped, unclipped = (
        f(LOW_LOG_RATIOS - 1.0, **columns, aggregation=by) for f in (loss, partial(loss, clip_low=1.0))
    )
    if torch.equal(clipped, unclipped):
        raise SentinelError(
            f"loss.clip_low is {parameters['clip_low']}, expected at most 1 with loss {recipe.loss.name}: "
            "a larger value has the same effect as 1, because no ratio and no probability is below 0"
        )
