"""The composed path: its order on the numbers of known faults, steps of trajectories, and what it refuses."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal import advantage, kl
from rl_sentinel.signal.advantage import (
    gae,
    gdpo,
    grpo,
    maxrl,
    opo,
    optimal_token_baseline,
    passk,
    reinforce,
    remax,
    rloo,
    turn_level_gae,
)
from rl_sentinel.signal.advantage import gpg as gpg_module
from rl_sentinel.signal.advantage import reinforce_plus_plus_baseline as baseline
from rl_sentinel.signal.align import at_last
from rl_sentinel.signal.choices import Choices
from rl_sentinel.signal.controller import Adaptive
from rl_sentinel.signal.correction import rejection, weights
from rl_sentinel.signal.loss import ppo
from rl_sentinel.signal.minibatches import aggregation
from rl_sentinel.signal.normalization import Normalization
from rl_sentinel.signal.path import loss_ready
from rl_sentinel.signal.ready import prompts_apart, trusted
from rl_sentinel.signal.reduce import row_means
from rl_sentinel.signal.rollout import Rollout
from rl_sentinel.signal.segments import Segments, packed, trained

CENTERED = partial(grpo.advantages, standardize=False, epsilon=0.0)
GAE = partial(gae.advantages, discount=1.0, decay=1.0)
LOW = torch.full((4, 2), -1.0)
BATCH = Normalization(mean="batch", deviation="none", leave_one_out=False, biased=False, epsilon=0.0)

OUTCOMES: dict[str, Callable[..., Tensor]] = {
    "grpo": partial(grpo.advantages, standardize=True, epsilon=1e-6),
    "grpo, centered": CENTERED,
    "rloo": rloo.advantages,
    "opo": opo.advantages,
    "passk": passk.advantages,
    "gpg": gpg_module.advantages,
    "maxrl": maxrl.advantages,
    "remax": remax.advantages,
    "reinforce": reinforce.advantages,
    "reinforce++ baseline": partial(baseline.advantages, epsilon=1e-6),
}


def _no_eos(second: float, normalization: Normalization) -> Tensor:
    rollout = Rollout(
        reward=torch.tensor([1.0, second]),
        group=torch.tensor([0, 0]),
        mask=torch.tensor([[False, True, False], [False, True, True]]),
        scored=torch.tensor([True, False]),
        value=torch.zeros(2, 3),
    )
    return loss_ready(rollout, by=Choices(estimator=GAE, normalization=normalization)).token_advantage()


@pytest.mark.parametrize("mean", ["batch", "group"])
@pytest.mark.parametrize("deviation", ["batch", "group", "none"])
@pytest.mark.parametrize("leave_one_out", [False, True])
def test_a_suppressed_reward_moves_nothing(mean: str, deviation: str, leave_one_out: bool) -> None:
    """Where 1 beside 100 would be -49.5, the difference to 1 beside 1 is exactly 0: suppression comes first."""
    by = Normalization(
        mean=mean,  # type: ignore[arg-type]  # words of the class
        deviation=deviation,  # type: ignore[arg-type]  # words of the class
        leave_one_out=leave_one_out,
        biased=False,
        epsilon=1e-5,
    )
    assert torch.equal(_no_eos(1.0, by), _no_eos(100.0, by))
    assert _no_eos(torch.nan, BATCH).tolist() == [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]


@pytest.mark.parametrize("name", OUTCOMES)
def test_a_rejected_reward_moves_no_sibling(name: str) -> None:
    """A row that the sampler's mismatch rejects, at reward 0 and 100, equals one that is left out."""
    far = torch.zeros(6, 2)
    far[3] = 4.0

    def judged(reward: float) -> Tensor:
        rollout = Rollout(
            reward=torch.tensor([1.0, 0.0, 0.5, reward, 1.0, 0.0]),
            group=torch.tensor([0, 0, 0, 0, 1, 1]),
            mask=torch.tensor([[True, True]] * 5 + [[True, False]]),
            old_logprob=-1 - far,
            rollout_logprob=torch.full((6, 2), -1.0),
            reward_baseline=torch.full((6,), 0.5),
        )
        reject = partial(rejection.rows_kept, estimator="k1", over="sum", low=-0.7, high=0.7)
        ready = loss_ready(rollout, by=Choices(estimator=OUTCOMES[name], rejections=(reject,)))
        assert ready.kept.tolist() == [True, True, True, False, True, True]
        assert ready.live.all()
        assert not trained(ready.mask)[3].any()
        return ready.advantage

    left = [0, 1, 2, 4, 5]
    alone = Rollout(
        reward=torch.tensor([1.0, 0.0, 0.5, 1.0, 0.0]),
        group=torch.tensor([0, 0, 0, 1, 1]),
        mask=torch.tensor([[True, True]] * 4 + [[True, False]]),
        reward_baseline=torch.full((5,), 0.5),
    )
    expected = loss_ready(alone, by=Choices(estimator=OUTCOMES[name])).advantage
    assert torch.equal(judged(0.0), judged(100.0))
    assert torch.equal(judged(100.0)[left], expected)
    assert judged(100.0)[3] == 0


#: What an estimator is given besides the columns of a rollout.
FILLED = {
    "standardize": True,
    "epsilon": 1e-6,
    "discount": 0.9,
    "decay": 0.8,
    "weight": torch.tensor([1.0, 0.5]),
}


@pytest.mark.parametrize("name", sorted(m.name for m in pkgutil.iter_modules(advantage.__path__)))
def test_every_estimator_walks_the_path(name: str) -> None:
    function = importlib.import_module(f"{advantage.__name__}.{name}").advantages
    wanted = inspect.signature(function).parameters
    estimator = partial(function, **{n: v for n, v in FILLED.items() if n in wanted})
    mask = torch.tensor([[True, True, False], [False, True, True], [True, False, False], [True, True, True]])
    reward, old = torch.tensor([1.0, 0.0, 0.5, 2.0]), -torch.arange(1.0, 13.0).view(4, 3) / 4
    rollout = Rollout(
        reward=reward,
        group=torch.tensor([3, 3, 5, 5]),
        mask=mask,
        old_logprob=old,
        value=old / 2,
        turn=torch.tensor([[1, 1, 1], [0, 2, 4], [0, 0, 0], [5, 5, 6]]),
        reward_baseline=torch.full((4,), 0.25),
        reward_parts=torch.stack([reward, 1 - reward], dim=1),
        pi_squared=old.exp() / 2,
    )
    known = {
        "reward": reward,
        "group": rollout.group,
        "live": mask.any(dim=1),
        "length": mask.sum(dim=1),
        "reward_baseline": rollout.reward_baseline,
        "reward_parts": rollout.reward_parts,
        "mask": mask,
        "token_reward": at_last(reward, mask=mask),
        "logprob": old,
        "value": rollout.value,
        "turn": rollout.turn,
        "pi_squared": rollout.pi_squared,
    }
    ready = loss_ready(rollout, by=Choices(estimator=estimator))
    assert torch.equal(ready.advantage, estimator(**{n: v for n, v in known.items() if n in wanted}))
    assert bool(ready.advantage.any())


def test_returns_of_turns_are_above_the_value_of_the_turn() -> None:
    turns = partial(turn_level_gae.advantages, discount=1.0, decay=1.0)
    rollout = Rollout(
        reward=torch.tensor([1.0]),
        group=torch.tensor([0]),
        mask=torch.ones(1, 4).bool(),
        old_logprob=torch.tensor([[-9.0, 0.0, 0.0, 0.0]]),
        rollout_logprob=torch.zeros(1, 4),
        value=torch.tensor([[8.0, 0.25, 9.0, 0.5]]),
        turn=torch.tensor([[0, 0, 0, 1]]),
    )
    keep = partial(rejection.tokens_kept, estimator="k1", low=-1.0, high=1.0)
    ready = loss_ready(rollout, by=Choices(estimator=turns, rejections=(keep,)))
    assert ready.advantage.tolist() == [[0.0, 0.75, 0.75, 0.5]]
    assert ready.returns is not None
    assert ready.returns.tolist() == [[0.0, 1.0, 1.0, 1.0]]


def _parts(parts: list[list[float]], **more: object) -> Tensor:
    by = {"estimator": partial(gdpo.advantages, weight=torch.ones(2), epsilon=0.0)}
    choices = {n: more.pop(n) for n in ("scale", "most", "kl", "kl_coefficient", "normalization") if n in more}
    rollout = Rollout(
        reward=torch.zeros(4),
        group=torch.tensor([0, 0, 1, 1]),
        mask=torch.ones(4, 2).bool(),
        reward_parts=torch.tensor(parts),
        **more,  # type: ignore[arg-type]  # columns of each test
    )
    return loss_ready(rollout, by=Choices(**by, **choices)).advantage  # type: ignore[arg-type]  # of each test


def test_parts_are_treated_as_the_reward_is() -> None:
    plain = [[1.0, 0.0], [0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]
    high = [[5.0, 0.0], [0.0, 0.0], [1.0, 7.0], [0.0, 0.0]]
    assert torch.equal(_parts(high, most=1.0), _parts(plain))
    assert not torch.equal(_parts([*high[:1], [0.0, 3.0], *high[2:]]), _parts(plain))
    void = {"scored": torch.tensor([True, False, True, True])}
    assert torch.equal(_parts([*high[:1], [3.0, torch.nan], *high[2:]], **void), _parts(high, **void))


def test_steps_of_a_trajectory_carry_its_parts() -> None:
    steps = {"trajectory": torch.tensor([0, 0, 1, 2]), "last": torch.tensor([False, True, True, True])}
    rollout = {"reward": torch.zeros(4), "group": torch.zeros(4, dtype=torch.long), "mask": torch.ones(4, 2).bool()}
    by = Choices(estimator=partial(gdpo.advantages, weight=torch.tensor([1.0, 0.0]), epsilon=0.0))
    parts = torch.tensor([[99.0, 9.0], [1.0, 0.0], [0.0, 0.0], [0.5, 0.0]])
    found = loss_ready(Rollout(**rollout, **steps, reward_parts=parts), by=by).advantage
    assert found.tolist() == pytest.approx([1.0, 1.0, -1.0, 0.0])


@pytest.mark.parametrize(
    ("more", "fault", "fix"),
    [
        (
            {"kl": kl.k1, "kl_coefficient": 0.1, "old_logprob": LOW, "ref_logprob": LOW},
            "kl_coefficient is 0.1, expected 0",
            "put the KL into the loss",
        ),
        ({"token_reward": LOW}, "token_reward is given, expected None", "pass token rewards as a reward part"),
    ],
)
def test_what_is_paid_per_token_is_no_part(more: dict[str, object], fault: str, fix: str) -> None:
    with pytest.raises(InputError) as refused:
        _parts([[1.0, 0.0]] * 4, **more)
    assert str(refused.value) == f"{fault} with gdpo.advantages, which reads reward parts only: {fix}"


def test_the_logged_kl_is_a_kl() -> None:
    """Log-ratios 0.5, -1, 0.5 are logged as these, whatever the coefficient and the reward, which pays for them."""
    new = torch.tensor([[-1.0, -2.0, -1.0]])
    rollout = Rollout(
        reward=torch.tensor([2.0]),
        group=torch.tensor([0]),
        mask=torch.ones(1, 3).bool(),
        old_logprob=new,
        ref_logprob=new - torch.tensor([[0.5, -1.0, 0.5]]),
        value=torch.zeros(1, 3),
    )
    free, priced = (loss_ready(rollout, by=Choices(estimator=GAE, kl=kl.k1, kl_coefficient=c)) for c in (0.0, 0.05))
    assert free.kl is not None
    assert priced.kl is not None
    assert torch.equal(free.kl, priced.kl)
    assert priced.kl.tolist() == [[0.5, -1.0, 0.5]]
    torch.testing.assert_close(priced.advantage, torch.tensor([[2.0, 2.025, 1.975]]))
    seen = [row_means(raw, mask=rollout.mask).item() for raw in (free.kl, priced.kl)]
    first, other = (Adaptive(0.05, target=6.0, horizon=100.0).after(one, samples=1) for one in seen)
    assert first == other


def test_every_step_carries_its_outcome() -> None:
    """Trajectories of steps of 5, 3, 1 and of 4, 2 tokens: none of 15 trained tokens has advantage 0."""
    length = torch.tensor([5, 3, 1, 4, 2])
    rollout = Rollout(
        reward=torch.tensor([0.0, 0.0, 1.0, 0.0, 0.0]),
        group=torch.zeros(5, dtype=torch.long),
        mask=torch.arange(5) >= 5 - length.unsqueeze(1),
        trajectory=torch.tensor([0, 0, 0, 1, 1]),
        last=torch.tensor([False, False, True, False, True]),
    )
    by = Choices(estimator=partial(grpo.advantages, standardize=True, epsilon=0.0))
    found = loss_ready(rollout, by=by).token_advantage()
    half = 0.5**0.5
    expected = torch.tensor([half, half, half, -half, -half])
    assert int((found[rollout.mask] == 0).sum()) == 0  # type: ignore[index]  # a tensor here
    torch.testing.assert_close(found, torch.where(rollout.mask, expected.unsqueeze(1), 0.0))  # type: ignore[arg-type]  # a tensor here
    with pytest.raises(InputError) as refused:
        loss_ready(rollout, by=Choices(estimator=GAE))
    assert str(refused.value) == (
        "last[0] is False, expected True on every row for gae.advantages: it assigns credit within a row, "
        "so earlier steps would get no credit; merge the steps, or use an outcome estimator"
    )


def test_a_rejected_last_step_keeps_its_outcome_for_the_others() -> None:
    rollout = Rollout(
        reward=torch.tensor([torch.nan, 1.0, 0.0]),
        group=torch.tensor([4, 4, 4]),
        mask=torch.tensor([[True], [False], [True]]),
        trajectory=torch.tensor([8, 8, 9]),
        last=torch.tensor([False, True, True]),
    )
    assert loss_ready(rollout, by=Choices(estimator=CENTERED)).advantage.tolist() == [0.5, 0.0, -0.5]


def test_one_decision_for_a_sequence() -> None:
    """Log-probs 0 where they were 1, advantages of both signs: mask [0, 0, 0], and a loss of exactly 0."""
    rollout = Rollout(reward=torch.zeros(1), group=torch.zeros(1, dtype=torch.long), mask=torch.ones(1, 3).bool())
    advantage = torch.tensor([[-0.5, 0.25, -0.25]])

    def given(mask: Tensor) -> Tensor:
        return torch.where(mask, advantage, 0.0)

    ready = loss_ready(rollout, by=Choices(estimator=given))
    now, old = torch.zeros(1, 3, requires_grad=True), torch.ones(1, 3)
    found = trusted(ready, now, old, threshold=0.1, denominator=1.0)
    assert found.mask.tolist() == [[False, False, False]]  # type: ignore[union-attr]  # a tensor here
    assert found.dropped_fraction.item() == 1.0
    whole = aggregation("token-mean", mask=ready.mask)
    loss = ppo.loss(now, old, ready.token_advantage(), mask=found.mask, clip_low=0.2, clip_high=0.2, aggregation=whole)
    assert loss.item() == 0.0
    (slope,) = torch.autograd.grad(loss, now)
    assert not slope.any()


def test_packed_rows_walk_the_same_path() -> None:
    chance = torch.Generator().manual_seed(0)
    mask = torch.rand(6, 5, generator=chance) < 0.6
    wide = {n: torch.randn(6, 5, generator=chance) for n in ("old_logprob", "rollout_logprob", "ref_logprob", "value")}
    rows = {"reward": torch.randn(6, generator=chance), "group": torch.tensor([0, 1, 0, 1, 2, 2])}
    length = torch.full((6,), 5)
    flat = {n: packed(x, length=length) for n, x in wide.items()}
    one, other = Rollout(**rows, mask=mask, **wide), Rollout(**rows, mask=Segments(mask.flatten(), length), **flat)
    reject = partial(rejection.rows_kept, estimator="k1", over="mean", low=-1.0, high=1.0)
    for estimator in (rloo.advantages, GAE):
        by = Choices(
            estimator=estimator, rejections=(reject,), weight=weights.token_weights, kl=kl.k3, kl_coefficient=0.1
        )
        mine, theirs = loss_ready(one, by=by), loss_ready(other, by=by)
        torch.testing.assert_close(mine.token_advantage().flatten(), theirs.token_advantage())
        for a, b in zip(*(prompts_apart(r, prompts=2, generator=None) for r in (mine, theirs)), strict=True):
            torch.testing.assert_close(a.token_advantage().flatten(), b.token_advantage())
            torch.testing.assert_close(a.reward, b.reward)


LOGPROBS = ("old_logprob", "rollout_logprob", "ref_logprob")

REFUSED = {
    "a missing column": (
        {"estimator": partial(optimal_token_baseline.advantages)},
        "old_logprob is None, expected a tensor with optimal_token_baseline.advantages: add the column to the rollout",
    ),
    "no parts": (
        {"estimator": partial(gdpo.advantages, weight=torch.ones(2), epsilon=0.0)},
        "reward_parts is None, expected a tensor with gdpo.advantages: add the column to the rollout",
    ),
    "an unknown column": (
        {"estimator": partial(grpo.advantages, standardize=False)},
        "grpo.advantages has the parameter epsilon, expected only reward, group, live, length, ",
    ),
    "no sampler": (
        {"estimator": CENTERED, "weight": weights.token_weights},
        "old_logprob is None, expected a log-prob per token, since a chosen function compares two policies: ",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_known_is_asked_for(name: str) -> None:
    choices, told = REFUSED[name]
    rollout = Rollout(reward=torch.zeros(1), group=torch.zeros(1, dtype=torch.long), mask=torch.ones(1, 3).bool())
    with pytest.raises(InputError) as refused:
        loss_ready(rollout, by=Choices(**choices))  # type: ignore[arg-type]  # of the table above
    assert str(refused.value).startswith(told)


def _outcome(reward: Tensor, live: Tensor) -> Tensor:
    return torch.where(live, reward / 0, 7.0)


def _temporal(token_reward: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, token_reward.log(), 7.0)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (
            {"estimator": _outcome},
            "advantage[0] is nan, expected a finite number: test_path._outcome returned it for a trained response",
        ),
        (
            {"estimator": _temporal},
            "advantage[0, 0] is -inf, expected a finite number: test_path._temporal returned it",
        ),
        (
            {"weight": lambda a, _, mask: torch.where(mask, a / 0, 0.0)},
            "weight[0, 0] is nan, expected a finite number: a bound is missing, or your function returned it",
        ),
        (
            {"weight": lambda a, _, mask: torch.where(mask, a - 1, 0.0)},
            "weight[0, 0] is -1.0, expected 0 or more: it is the ratio of two probabilities",
        ),
    ],
)
def test_what_an_own_function_gives_is_finite(choices: dict[str, Any], message: str) -> None:
    """Where something is trained; elsewhere it is made 0, whatever it was."""
    mask, zeros = torch.tensor([[True, True], [False, False]]), torch.zeros(2, 2)
    known = {"reward": torch.zeros(2), "group": torch.zeros(2).long(), "old_logprob": zeros, "rollout_logprob": zeros}
    with pytest.raises(InputError) as told:
        loss_ready(Rollout(mask=mask, **known), by=Choices(**{"estimator": CENTERED} | choices))
    assert str(told.value).startswith(message)


def test_an_own_advantage_is_0_where_nothing_trains() -> None:
    rollout = Rollout(
        reward=torch.ones(2), group=torch.zeros(2).long(), mask=torch.tensor([[True, False], [False, False]])
    )
    found = loss_ready(rollout, by=Choices(estimator=_temporal))
    assert found.token_advantage().tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_what_is_ready_carries_no_gradient() -> None:
    value, reward = torch.zeros(2, 3, requires_grad=True), torch.tensor([1.0, 0.0], requires_grad=True)
    mask = torch.tensor([[True, True, False], [True, True, True]])
    rollout = Rollout(reward=reward, group=torch.tensor([0, 0]), mask=mask, value=value)
    ready = loss_ready(rollout, by=Choices(estimator=GAE))
    assert ready.returns is not None
    assert not any(x.requires_grad for x in (ready.returns, ready.reward, ready.advantage))


def _lengths(reward: Tensor, live: Tensor, length: Tensor | None = None, **_: Tensor) -> Tensor:
    return torch.where(live, reward, 0.0) if length is None else length.to(reward.dtype)


def test_how_an_own_estimator_is_called() -> None:
    mask = torch.tensor([[True, True], [True, False]])
    rollout = Rollout(reward=torch.ones(2), group=torch.zeros(2).long(), mask=mask)
    assert loss_ready(rollout, by=Choices(estimator=_lengths)).advantage.tolist() == [2.0, 1.0]


def test_own_weights_and_kls_leave_no_trace() -> None:
    mask, zeros = torch.tensor([[True, False]]), torch.zeros(1, 2)
    slope = torch.ones(1, 2, requires_grad=True)
    known = {"reward": torch.ones(1), "group": torch.zeros(1).long(), **dict.fromkeys(LOGPROBS, zeros)}

    def own(_: Tensor, _other: Tensor, mask: Tensor) -> Tensor:
        return slope + torch.where(mask, 0.0, torch.nan)

    ready = loss_ready(Rollout(mask=mask, **known), by=Choices(estimator=CENTERED, weight=own, kl=own))
    for found in (ready.weight, ready.kl):
        assert found is not None
        assert (found.tolist(), found.requires_grad) == ([[1.0, 0.0]], False)
