"""REF001: sound, broken and refusing specimens."""

import re
from functools import partial

import pytest
import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output
from rl_sentinel.laws.differs_from_reference import LAW
from specimens import judged, specimen

READS = "reward group mask"
ROWS = {"advantage": Output("B", "reward", "advantage")}
LOSS_READS = "logprob old_logprob advantage mask"
LOSS = {"loss": Output("", "", "loss")}
PPO = {"algorithm": "ppo", "aggregation": "token-mean"}
CLIPS = {"default": {"clip_low": 0.2, "clip_high": 0.3}}


def _means(batch: Batch) -> tuple[Tensor, Tensor]:
    same = (batch.group.unsqueeze(0) == batch.group.unsqueeze(1)).float()
    return batch.reward - same @ batch.reward / same.sum(1), same.sum(1)


def _rloo(batch: Batch) -> Tensor:
    gap, count = _means(batch)
    return gap * count / (count - 1).clamp(min=1)


def _ppo(batch: Batch, clip_low: float, clip_high: float) -> Tensor:
    ratio = (batch.logprob - batch.old_logprob).exp()
    gain = torch.minimum(ratio * batch.advantage, ratio.clamp(1 - clip_low, 1 + clip_high) * batch.advantage)
    return -torch.where(batch.mask, gain, 0.0).sum() / batch.mask.sum().clamp(min=1)


def _one_sided(batch: Batch, clip_low: float, clip_high: float) -> Tensor:
    return _ppo(batch, clip_low + 9.0, clip_high)


def _doubled(batch: Batch, clip_low: float, clip_high: float) -> Tensor:
    return 2 * _ppo(batch, clip_low, clip_high)


def test_sound() -> None:
    """Leave-one-out as the mean of the others, per row or per token."""
    claims = {"algorithm": "rloo", "grouping": "id"}
    for outputs, compute in ((ROWS, _rloo), (None, lambda b: _rloo(b).unsqueeze(1) * b.mask)):
        judgement = judged(LAW, specimen(compute, reads=READS, outputs=outputs, claims=claims))
        assert judgement.found is None
        assert judgement.tried > 0


def test_broken() -> None:
    """The mean of all instead of the others' is found, and the story names the reading."""
    claims = {"algorithm": "rloo", "grouping": "id"}
    found = judged(LAW, specimen(lambda b: _means(b)[0], reads=READS, outputs=ROWS, claims=claims)).found
    assert found is not None
    assert found.expectation.sentence() == (
        "advantage is 0.5 at row 0, expected 1: the formula of rloo gives the expected value (against the others' mean)"
    )
    assert LAW.level(found.case) == "contested"


def test_one_reading_on_all_cases() -> None:
    def turning(batch: Batch) -> Tensor:
        gap, count = _means(batch)
        same = (batch.group.unsqueeze(0) == batch.group.unsqueeze(1)).float()
        less = torch.where(count > 2, count, count - 1).clamp(min=1)
        deviation = (same @ gap.square() / less).sqrt()
        return gap / torch.where(deviation == 0, 1.0, deviation)

    claims = {"algorithm": "grpo", "standardized": "yes", "grouping": "id"}
    assert judged(LAW, specimen(turning, reads=READS, outputs=ROWS, claims=claims)).found is not None


def test_groups_without_a_signal_count() -> None:
    claims = {"algorithm": "gpg", "grouping": "id"}
    make = partial(specimen, reads=READS, outputs=ROWS, claims=claims)

    def scaled(batch: Batch) -> Tensor:
        gap, _ = _means(batch)
        signal = torch.tensor([bool((gap[batch.group == g] != 0).any()) for g in batch.group])
        return gap * batch.rows / signal.sum().clamp(min=1)

    def by_rewards(batch: Batch) -> Tensor:
        return _means(batch)[0] * batch.rows / (batch.reward != 0).sum().clamp(min=1)

    assert judged(LAW, make(scaled)).found is None
    assert judged(LAW, make(by_rewards)).found is not None
    found = judged(LAW, make(lambda b: _means(b)[0])).found
    assert found is not None
    assert found.case.batch.rows == 4


@pytest.mark.parametrize("whitened", [False, True])
def test_returns(whitened: bool) -> None:
    def outcome(batch: Batch) -> dict[str, Tensor]:
        returns = batch.reward.unsqueeze(1) * batch.mask
        every = returns[batch.mask]
        spread = every.std(correction=0) if len(every) > 1 else torch.tensor(0.0)
        advantage = (returns - every.mean()) / torch.where(spread == 0, 1.0, spread) * batch.mask
        return {"advantage": advantage, "returns": advantage if whitened else returns}

    outputs = {n: Output("B T", "reward", n) for n in ("advantage", "returns")}
    claims = {"algorithm": "reinforce++", "credit": "temporal"}
    judgement = judged(LAW, specimen(outcome, reads="reward mask length", outputs=outputs, claims=claims))
    assert judgement.tried > 0
    assert (judgement.found is not None) is whitened
    if judgement.found is not None:
        assert judgement.found.expectation.name == "returns"


def test_loss() -> None:
    make = partial(specimen, reads=LOSS_READS, stage="policy-loss", outputs=LOSS, claims=PPO, settings=CLIPS)
    sound = judged(LAW, make(_ppo))
    assert sound.found is None
    assert sound.tried > 0
    for wrong in (_one_sided, _doubled):
        found = judged(LAW, make(wrong)).found
        assert found is not None
        assert re.fullmatch(
            r"loss is \S+, expected \S+: the formula of ppo gives the expected value", found.expectation.sentence()
        )


def test_knob() -> None:
    claims = PPO | {"knob:clip_high": "0.3|0.9"}
    boundary = specimen(
        lambda b, clip_low, clip_high: _ppo(b, clip_low, 0.3 + 0 * clip_high),
        reads=LOSS_READS,
        stage="policy-loss",
        outputs=LOSS,
        claims=claims,
        settings=CLIPS,
    )
    found = judged(LAW, boundary).found
    assert found is not None
    assert found.expectation.sentence() == (
        "loss is -1.3, expected -1.9: the formula of ppo gives the expected value, at clip_high 0.9"
    )


def test_not_applicable() -> None:
    """A name that the table does not have is not judged."""
    judgement = judged(LAW, specimen(_rloo, reads=READS, outputs=ROWS, claims={"algorithm": "own"}))
    assert (judgement.tried, judgement.reason) == (0, "the boundary claims no algorithm whose formula is known")


def _to_go(batch: Batch, gamma: float, how: str) -> Tensor:
    """Rewards to go, not whitened: a token that does not train is no step, a step, or the end of all credit."""
    found, later = torch.zeros(batch.mask.shape), torch.zeros(batch.rows)
    for t in reversed(range(batch.width)):
        on, last = batch.mask[:, t], batch.length == t + 1
        here = torch.where(last, batch.reward, gamma * later)
        found[:, t] = torch.where(on, here, 0.0)
        later = torch.where(on, here, {"skipped": later, "steps": here, "ends": 0.0 * later}[how])
        later = torch.where(batch.length < t + 1, 0.0, later)
    return found


def _whitened(batch: Batch, gamma: float, how: str) -> Tensor:
    found = _to_go(batch, gamma, how)
    every = found[batch.mask]
    spread = every.std() if every.numel() > 1 else torch.ones(())
    return torch.where(batch.mask, (found - every.mean()) / spread, 0.0)


@pytest.mark.parametrize(
    ("how", "claim", "breaks"),
    [
        ("skipped", {}, False),
        ("steps", {}, False),
        ("ends", {}, True),
        ("skipped", {"untrained": "skipped"}, False),
        ("steps", {"untrained": "skipped"}, True),
        ("ends", {"untrained": "skipped"}, True),
    ],
)
def test_credit_across_tokens_that_do_not_train(how: str, claim: dict[str, str], breaks: object) -> None:
    boundary = specimen(
        lambda batch, gamma: _whitened(batch, gamma, how),
        reads="reward mask length",
        claims={"algorithm": "reinforce++", "credit": "temporal", **claim},
        settings={"default": {"gamma": 0.5}},
    )
    judgement = judged(LAW, boundary)
    assert judgement.tried > 0
    assert (judgement.found is not None) is breaks
    if judgement.found is not None:
        assert bool((judgement.found.case.batch.mask != judgement.found.case.batch.valid).any())


def _of_last_steps(batch: Batch, chosen: str) -> Tensor:
    """The mean of a prompt's last steps taken off the last step's outcome, or the first one's, of each trajectory."""
    last = batch.last_step if chosen == "last" else batch.step == 0
    same = (batch.group.unsqueeze(0) == batch.group.unsqueeze(1)) & last
    own = ((batch.trajectory.unsqueeze(0) == batch.trajectory.unsqueeze(1)) & last).int().argmax(1)
    return batch.reward[own] - (same * batch.reward).sum(1) / same.sum(1).clamp(min=1)


@pytest.mark.parametrize(("chosen", "found"), [("last", False), ("first", True)])
def test_which_step_of_a_trajectory_counts(chosen: str, found: bool) -> None:
    claims = {"algorithm": "grpo", "standardized": "no", "grouping": "id", "trajectories": "step-wise"}
    boundary = specimen(
        partial(_of_last_steps, chosen=chosen), reads="reward group mask last_step", outputs=ROWS, claims=claims
    )
    judgement = judged(LAW, boundary)
    assert judgement.tried > 0
    assert (judgement.found is not None) is found
