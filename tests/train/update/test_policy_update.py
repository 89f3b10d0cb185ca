"""The update: any cut has one gradient, rows without an advantage cost nothing, a number that is none stops it."""

from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.signal.reduce import Mode
from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.config.selection import Selection, selected
from rl_sentinel.train.model.policy import Models, Policy
from rl_sentinel.train.run import rng
from rl_sentinel.train.run.training_state import optimized
from rl_sentinel.train.update.policy_update import (
    Batch,
    NotFiniteError,
    gradient,
    learned,
    loss_of,
    rate,
    speaking,
    told_apart,
)
from rl_sentinel.train.update.response_logprobs import scored
from rl_sentinel.train.update.training_batch import prepared
from training import CHOICES, name_of, recipe, sampled

WIDE = {"prompts": 6, "responses": 4, "tokens": 8}


def _batch(wanted: Recipe) -> tuple[Selection, Policy, Batch]:
    selection, policy, episodes = sampled(wanted)
    return (
        selection,
        policy,
        prepared(wanted, selection, Models(policy, policy, policy.copied()), episodes, step=0, price=0.0)[0],
    )


def _gradient(
    wanted: Recipe, made: tuple[Selection, Policy, Batch], *, lazy: bool, size: int, coefficient: float = 0.1
) -> Tensor:
    selection, policy, batch = made
    policy.model.zero_grad()
    every = torch.arange(len(batch.advantage))
    aggregation = selection.aggregation(wanted, batch.mask, batch.laid.rollout.group)
    for part in torch.split(speaking(batch, every, lazy=lazy), size):
        logprob = scored(policy, batch.laid, part, temperature=wanted.rollout.temperature)
        how: dict[str, Any] = {
            "selection": selection,
            "aggregation": aggregation.of_rows(part),
            "coefficient": coefficient,
        }
        loss_of(logprob, batch, part, **how).backward()  # type: ignore[no-untyped-call]  # torch's own
    return torch.cat([w.grad.flatten() for w in policy.model.parameters() if w.grad is not None])


@pytest.mark.parametrize("mode", get_args(Mode))
@pytest.mark.parametrize("pieces", [2, 4])
def test_any_cut_has_one_gradient(mode: str, pieces: int) -> None:
    """One, two and four parts of a mini-batch, at every aggregation: equal to 1e-6 of the largest number."""
    loss = {"name": "ppo", "clip_low": 0.2, "clip_high": 0.2, "aggregation": mode}
    loss |= {"length": 8} if mode == "token-sum" else {}
    wanted = recipe(rollout=WIDE, loss=loss, kl={"loss": 0.1})
    selection, policy, batch = _batch(wanted)
    whole = _gradient(wanted, (selection, policy, batch), lazy=False, size=99)
    cut = _gradient(wanted, (selection, policy, batch), lazy=False, size=24 // pieces)
    assert float(whole.abs().max()) > 1e-3
    torch.testing.assert_close(cut, whole, atol=1e-6 * float(whole.abs().max()), rtol=1e-6)


def test_turns_merged_and_apart_have_one_gradient() -> None:
    """Each token is read behind the same tokens, and trained once; the advantage is its trajectory's."""
    how = {"prompts": 2, "responses": 4, "tokens": 4, "turns": 2}
    found = []
    for merged in (True, False):
        wanted = recipe(environment={"name": "training:Twice"}, rollout={**how, "merged": merged})
        made = _batch(wanted)
        assert len(made[2].advantage) == (8 if merged else 16)
        found.append(_gradient(wanted, made, lazy=False, size=99))
    assert float(found[0].abs().max()) > 1e-3
    torch.testing.assert_close(found[1], found[0], atol=1e-6 * float(found[0].abs().max()), rtol=1e-5)


@pytest.mark.parametrize("choice", [c for c in CHOICES if "loss" in c], ids=name_of)
def test_dead_groups_are_skipped_without_changing_the_gradient(choice: dict[str, Any]) -> None:
    """Half of the groups have equal rewards; their tokens stay in the denominator. Every loss, off policy.

    Where a row without an advantage has a gradient the loss is not lazy; where parts of a mini-batch do not add up it
    is refused in parts.
    """
    wanted = recipe(rollout=WIDE, update={"prompts": 3}, **choice)
    selection, policy, batch = _batch(wanted)
    moved_by = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.add_(torch.randn(weight.shape, generator=moved_by), alpha=0.02)
    batch = told_apart(policy, batch, torch.arange(24), selection=selection, recipe=wanted)
    dead = batch.laid.rollout.group < 3
    batch = replace(batch, advantage=batch.advantage.masked_fill(dead.unsqueeze(1), 0.0))
    assert 0 < len(speaking(batch, torch.arange(24), lazy=True)) <= 12
    whole, skipped, cut = (
        _gradient(wanted, (selection, policy, batch), lazy=lazy, size=size, coefficient=0.0)
        for lazy, size in ((False, 99), (True, 99), (False, 5))
    )
    least = 1e-6 * float(whole.abs().max())
    assert least > 0
    assert torch.allclose(skipped, whole, atol=least, rtol=1e-6) == selection.lazy
    if torch.allclose(cut, whole, atol=least, rtol=1e-6):
        selected(recipe(rollout=WIDE, update={"rows": 5}, **choice))
    else:
        with pytest.raises(SentinelError, match="it looks at its mini-batch as a whole"):
            selected(recipe(rollout=WIDE, update={"rows": 5}, **choice))


@pytest.mark.parametrize(
    "more", [{"loss": {"name": "dro", "penalty": 0.1, "aggregation": "token-mean"}}, {"kl": {"loss": 0.1}}]
)
def test_rows_with_a_penalty_are_not_skipped(more: dict[str, Any]) -> None:
    """They have a gradient without an advantage."""
    selection, _, _ = sampled(recipe(**more))
    assert not selection.lazy


def test_update_without_any_advantage_is_a_step_of_momentum() -> None:
    """As the optimizer would take it with a gradient of 0: the count of steps, and so the run, stays the same."""
    wanted = recipe(rollout=WIDE)
    selection, policy, batch = _batch(wanted)
    dead = replace(batch, advantage=torch.zeros_like(batch.advantage))
    optimizer, how = optimized(policy, wanted.update), {"selection": selection, "recipe": wanted, "coefficient": 0.0}
    learned(policy, optimizer, batch, order=rng.generator(0), **how)  # type: ignore[arg-type]  # as named
    before = [w.detach().clone() for w in policy.model.parameters()]
    seen = learned(policy, optimizer, dead, order=rng.generator(0), **how)  # type: ignore[arg-type]  # as named
    assert (seen.loss, seen.norm, bool(seen.rows.any())) == (0.0, 0.0, False)
    assert any(not torch.equal(w, b) for w, b in zip(policy.model.parameters(), before, strict=True))


def test_number_that_is_none_stops_before_the_step() -> None:
    """The weights stay as they were."""
    wanted = recipe(rollout=WIDE)
    selection, policy, batch = _batch(wanted)
    batch.advantage[batch.mask] *= 1e38
    batch.advantage[batch.mask] *= 1e38
    batch = replace(batch, advantage=torch.nan_to_num(batch.advantage, posinf=3e38, neginf=-3e38))
    before = [w.detach().clone() for w in policy.model.parameters()]
    with pytest.raises(NotFiniteError, match=r"norm of the gradient (inf|nan), expected finite numbers"):
        learned(
            policy,
            optimized(policy, wanted.update),
            batch,
            selection=selection,
            recipe=wanted,
            coefficient=0.0,
            order=rng.generator(0),
        )
    assert all(torch.equal(w, b) for w, b in zip(policy.model.parameters(), before, strict=True))


def test_rate_goes_up_and_down() -> None:
    """A ramp of four steps, then half a cosine over all ten."""
    wanted = recipe(steps=10, update={"ramp": 4, "rate": 2.0, "schedule": "cosine"})
    assert rate(wanted, 0) == 0.5
    assert abs(rate(wanted, 5) - 1.0) < 1e-9
    assert rate(recipe(steps=10, update={"rate": 2.0}), 9) == 2.0


@pytest.mark.parametrize("mode", get_args(Mode))
def test_mini_batches_in_parts_are_learned_from_as_whole(mode: str) -> None:
    """Of a shuffled half of the prompts: each aggregation is counted over the mini-batch, and knows its parts' rows."""
    length = {"length": 8} if mode == "token-sum" else {}
    loss = {"name": "ppo", "clip_low": 0.2, "clip_high": 0.2, "aggregation": mode, **length}
    rows, found = torch.tensor([8, 20, 9, 10, 0, 11, 1, 21, 2, 22, 3, 23]), []
    for size in (99, 5):
        wanted = recipe(rollout=WIDE, loss=loss, update={"prompts": 3, "clip": 1e9})
        selection, policy, batch = _batch(wanted)
        cut = wanted.model_copy(update={"update": wanted.update.model_copy(update={"rows": size})})
        gradient(policy, batch, rows, selection=selection, recipe=cut, coefficient=0.0)
        found.append(torch.cat([w.grad.flatten() for w in policy.model.parameters() if w.grad is not None]))
        logprob = scored(policy, batch.laid, rows, temperature=1.0)
        policy.model.zero_grad()
        whole = selection.aggregation(wanted, batch.mask[rows], batch.laid.rollout.group[rows])
        loss_of(logprob, batch, rows, selection=selection, aggregation=whole, coefficient=0.0).backward()  # type: ignore[no-untyped-call]  # torch's own
        found.append(torch.cat([w.grad.flatten() for w in policy.model.parameters() if w.grad is not None]))
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], atol=1e-6 * float(found[0].abs().max()), rtol=1e-6)


KL_COV = {"name": "kl_cov", "penalty": 1.0, "aggregation": "token-mean"}
DRAWN = {"name": "drawn_between", "low": -10.0, "high": 10.0, "share": 0.4}


def test_tokens_apart_are_of_the_whole_mini_batch() -> None:
    """Those of largest covariance by hand; in parts of any size they are the same, and so is the gradient."""
    found, rows = [], torch.tensor([8, 20, 9, 10, 0, 11, 1, 21, 2, 22, 3, 23])
    for size in (99, 5):
        chosen = {"name": "largest", "share": 0.25}
        wanted = recipe(rollout=WIDE, loss={**KL_COV, "chosen": chosen}, update={"prompts": 3, "rows": size})
        selection, policy, batch = _batch(wanted)
        batch = replace(batch, old_logprob=scored(policy, batch.laid, torch.arange(24), temperature=1.0).detach() + 0.1)
        gradient(policy, batch, rows, selection=selection, recipe=wanted, coefficient=0.0)
        found.append(torch.cat([w.grad.flatten() for w in policy.model.parameters() if w.grad is not None]))
        apart = told_apart(policy, batch, rows, selection=selection, recipe=wanted).chosen
        assert apart is not None
        mask = batch.mask[rows]
        now = scored(policy, batch.laid, rows, temperature=1.0).detach()[mask]
        covariance = (now - now.mean()) * (batch.advantage[rows][mask] - batch.advantage[rows][mask].mean())
        assert apart[rows][mask].tolist() == (covariance >= covariance.sort().values[-int(0.25 * len(now))]).tolist()
        assert not (apart & ~batch.mask).any()
    torch.testing.assert_close(found[1], found[0], atol=1e-6 * float(found[0].abs().max()), rtol=1e-6)


def test_tokens_are_drawn_by_the_steps_own_numbers() -> None:
    """The same source draws the same, another another; what was chosen before stays."""
    wanted = recipe(rollout=WIDE, loss={**KL_COV, "chosen": DRAWN})
    selection, policy, batch = _batch(wanted)
    rows = torch.arange(24)
    found = [
        told_apart(policy, batch, rows, selection=selection, recipe=wanted, source=rng.generator(n)) for n in (0, 0, 1)
    ]
    one, same, other = (f.chosen for f in found)
    assert one is not None
    assert same is not None
    assert other is not None
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert int(one.sum()) == int(0.4 * int(batch.mask.sum()))
    assert told_apart(policy, found[0], rows, selection=selection, recipe=wanted, source=rng.generator(1)) is found[0]
