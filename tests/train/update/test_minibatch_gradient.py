"""Mini-batch gradients: equal for all parts, without the rows that have none."""

from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.signal.reduce import Mode
from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.config.selection import Selection, select_components
from rl_sentinel.train.model.policy import Policy
from rl_sentinel.train.run import rng
from rl_sentinel.train.update.minibatch_gradient import (
    choose_tokens,
    compute_gradient,
    compute_loss,
    rows_with_gradient,
)
from rl_sentinel.train.update.response_logprobs import response_logprobs
from rl_sentinel.train.update.training_batch import TrainingBatch
from training import COMPONENTS, component_name, recipe, sample_batch

WIDE = {"prompts": 6, "responses": 4, "tokens": 8}


def _batch(config: Recipe) -> tuple[Selection, Policy, TrainingBatch]:
    selection, policy, _, batch, _ = sample_batch(config, reference=True)
    return selection, policy, batch


def _gradient(
    config: Recipe, setup: tuple[Selection, Policy, TrainingBatch], *, lazy: bool, size: int, coefficient: float = 0.1
) -> Tensor:
    selection, policy, batch = setup
    policy.model.zero_grad()
    every = torch.arange(len(batch.advantage))
    aggregation = selection.aggregation(config, batch.mask, batch.laid.rollout.group)
    for part in torch.split(rows_with_gradient(batch, every, lazy=lazy), size):
        logprob = response_logprobs(policy, batch.laid, part, temperature=config.rollout.temperature)
        kwargs: dict[str, Any] = {
            "selection": selection,
            "aggregation": aggregation.of_rows(part),
            "coefficient": coefficient,
        }
        compute_loss(logprob, batch, part, **kwargs).backward()  # type: ignore[no-untyped-call]  # torch's own
    return torch.cat([w.grad.flatten() for w in policy.model.parameters() if w.grad is not None])


@pytest.mark.parametrize("mode", get_args(Mode))
@pytest.mark.parametrize("pieces", [2, 4])
def test_parts_of_any_size_have_one_gradient(mode: str, pieces: int) -> None:
    """One, two and four parts of a mini-batch, at every aggregation: equal to 1e-6 of the largest entry."""
    loss = {"name": "ppo", "clip_low": 0.2, "clip_high": 0.2, "aggregation": mode}
    loss |= {"length": 8} if mode == "token-sum" else {}
    config = recipe(rollout=WIDE, loss=loss, kl={"loss": 0.1})
    selection, policy, batch = _batch(config)
    whole = _gradient(config, (selection, policy, batch), lazy=False, size=99)
    cut = _gradient(config, (selection, policy, batch), lazy=False, size=24 // pieces)
    assert float(whole.abs().max()) > 1e-3
    torch.testing.assert_close(cut, whole, atol=1e-6 * float(whole.abs().max()), rtol=1e-6)


def test_merged_and_unmerged_turns_have_one_gradient() -> None:
    kwargs = {"prompts": 2, "responses": 4, "tokens": 4, "turns": 2}
    results = []
    for merged in (True, False):
        config = recipe(environment={"name": "training:TwoTurns"}, rollout={**kwargs, "merged": merged})
        setup = _batch(config)
        assert len(setup[2].advantage) == (8 if merged else 16)
        results.append(_gradient(config, setup, lazy=False, size=99))
    assert float(results[0].abs().max()) > 1e-3
    torch.testing.assert_close(results[1], results[0], atol=1e-6 * float(results[0].abs().max()), rtol=1e-5)


@pytest.mark.parametrize("choice", [c for c in COMPONENTS if "loss" in c], ids=component_name)
@pytest.mark.on_cpu
def test_groups_with_equal_rewards_are_skipped_without_changing_the_gradient(choice: dict[str, Any]) -> None:
    config = recipe(rollout=WIDE, update={"prompts": 3}, **choice)
    selection, policy, batch = _batch(config)
    noise = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.add_(torch.randn(weight.shape, generator=noise), alpha=0.02)
    batch = choose_tokens(policy, batch, torch.arange(24), selection=selection, recipe=config)
    dead = batch.laid.rollout.group < 3
    batch = replace(batch, advantage=batch.advantage.masked_fill(dead.unsqueeze(1), 0.0))
    assert 0 < len(rows_with_gradient(batch, torch.arange(24), lazy=True)) <= 12
    whole, skipped, cut = (
        _gradient(config, (selection, policy, batch), lazy=lazy, size=size, coefficient=0.0)
        for lazy, size in ((False, 99), (True, 99), (False, 5))
    )
    least = 1e-6 * float(whole.abs().max())
    assert least > 0
    assert torch.allclose(skipped, whole, atol=least, rtol=1e-6) == selection.lazy
    if torch.allclose(cut, whole, atol=least, rtol=1e-6):
        select_components(recipe(rollout=WIDE, update={"rows": 5}, **choice))
    else:
        with pytest.raises(SentinelError, match="this loss needs all rows of a mini-batch at once"):
            select_components(recipe(rollout=WIDE, update={"rows": 5}, **choice))


@pytest.mark.parametrize(
    "more", [{"loss": {"name": "dro", "penalty": 0.1, "aggregation": "token-mean"}}, {"kl": {"loss": 0.1}}]
)
def test_rows_with_a_penalty_are_not_skipped(more: dict[str, Any]) -> None:
    assert not select_components(recipe(**more)).lazy


@pytest.mark.parametrize("mode", get_args(Mode))
def test_mini_batches_in_parts_are_trained_as_whole(mode: str) -> None:
    length = {"length": 8} if mode == "token-sum" else {}
    loss = {"name": "ppo", "clip_low": 0.2, "clip_high": 0.2, "aggregation": mode, **length}
    rows, results = torch.tensor([8, 20, 9, 10, 0, 11, 1, 21, 2, 22, 3, 23]), []
    for size in (99, 5):
        config = recipe(rollout=WIDE, loss=loss, update={"prompts": 3, "clip": 1e9})
        selection, policy, batch = _batch(config)
        cut = config.model_copy(update={"update": config.update.model_copy(update={"rows": size})})
        compute_gradient(policy, batch, rows, selection=selection, recipe=cut, coefficient=0.0)
        results.append(torch.cat([w.grad.flatten() for w in policy.model.parameters() if w.grad is not None]))
        logprob = response_logprobs(policy, batch.laid, rows, temperature=1.0)
        policy.model.zero_grad()
        whole = selection.aggregation(config, batch.mask[rows], batch.laid.rollout.group[rows])
        compute_loss(logprob, batch, rows, selection=selection, aggregation=whole, coefficient=0.0).backward()  # type: ignore[no-untyped-call]  # torch's own
        results.append(torch.cat([w.grad.flatten() for w in policy.model.parameters() if w.grad is not None]))
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], atol=1e-6 * float(results[0].abs().max()), rtol=1e-6)


KL_COV = {"name": "kl_cov", "penalty": 1.0, "aggregation": "token-mean"}


DRAWN = {"name": "drawn_between", "low": -10.0, "high": 10.0, "share": 0.4}


@pytest.mark.on_cpu
def test_chosen_tokens_are_of_the_whole_mini_batch() -> None:
    results, rows = [], torch.tensor([8, 20, 9, 10, 0, 11, 1, 21, 2, 22, 3, 23])
    for size in (99, 5):
        chosen = {"name": "largest", "share": 0.25}
        config = recipe(rollout=WIDE, loss={**KL_COV, "chosen": chosen}, update={"prompts": 3, "rows": size})
        selection, policy, batch = _batch(config)
        batch = replace(
            batch, old_logprob=response_logprobs(policy, batch.laid, torch.arange(24), temperature=1.0).detach() + 0.1
        )
        compute_gradient(policy, batch, rows, selection=selection, recipe=config, coefficient=0.0)
        results.append(torch.cat([w.grad.flatten() for w in policy.model.parameters() if w.grad is not None]))
        chosen_mask = choose_tokens(policy, batch, rows, selection=selection, recipe=config).chosen
        assert chosen_mask is not None
        mask = batch.mask[rows]
        now = response_logprobs(policy, batch.laid, rows, temperature=1.0).detach()[mask]
        covariance = (now - now.mean()) * (batch.advantage[rows][mask] - batch.advantage[rows][mask].mean())
        assert (
            chosen_mask[rows][mask].tolist() == (covariance >= covariance.sort().values[-int(0.25 * len(now))]).tolist()
        )
        assert not (chosen_mask & ~batch.mask).any()
    torch.testing.assert_close(results[1], results[0], atol=1e-6 * float(results[0].abs().max()), rtol=1e-6)


def test_drawn_tokens_depend_on_the_generator() -> None:
    config = recipe(rollout=WIDE, loss={**KL_COV, "chosen": DRAWN})
    selection, policy, batch = _batch(config)
    rows = torch.arange(24)
    results = [
        choose_tokens(policy, batch, rows, selection=selection, recipe=config, generator=rng.torch_generator(n))
        for n in (0, 0, 1)
    ]
    one, same, other = (f.chosen for f in results)
    assert one is not None
    assert same is not None
    assert other is not None
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert int(one.sum()) == int(0.4 * int(batch.mask.sum()))
    assert (
        choose_tokens(policy, results[0], rows, selection=selection, recipe=config, generator=rng.torch_generator(1))
        is results[0]
    )
