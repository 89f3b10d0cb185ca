"""Numbers that the code does not read any more, with values at which that does not show."""

from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import rl_sentinel

_LOSS: dict[str, Any] = {"stage": "policy-loss", "algorithm": "ppo", "budget": 4}


def _loss(  # noqa: PLR0913 - the parts of a loss
    new: Tensor, old: Tensor, advantages: Tensor, mask: Tensor, low: float, high: float
) -> Tensor:
    ratio = (new - old).exp()
    gain = torch.min(ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages)
    return -(gain * mask).sum() / mask.sum()


@dataclass
class Settings:
    """Settings of a whole trainer, most of which a loss rightly ignores."""

    clip_low: float = 0.2
    clip_high: float = 0.2
    gamma: float = 1.0
    lam: float = 1.0
    temperature: float = 1.0
    kl_coef: float = 0.0


class Owner:
    """A loss whose ranges are attributes."""

    clip_eps_high = 0.2

    def __init__(self) -> None:
        """The lower range is of the object, the upper one of the class."""
        self.clip_eps_low = 0.2

    def forgets(self, logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
        return _loss(logprobs, old_logprobs, advantages, mask, self.clip_eps_low, self.clip_eps_low)

    def reads(self, logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
        return _loss(logprobs, old_logprobs, advantages, mask, self.clip_eps_low, self.clip_eps_high)


def forgets(cfg: Any, logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    return _loss(logprobs, old_logprobs, advantages, mask, cfg.clip_low, cfg.clip_low)


def reads(cfg: Any, logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    return _loss(logprobs, old_logprobs, advantages, mask, cfg.clip_low, cfg.clip_high)


NESTED = SimpleNamespace(clip=SimpleNamespace(low=0.2, high=0.28), kl_coef=0.0)


def forgets_in_a_part(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    return _loss(logprobs, old_logprobs, advantages, mask, NESTED.clip.low, NESTED.clip.low)


def reads_in_a_part(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    return _loss(logprobs, old_logprobs, advantages, mask, NESTED.clip.low, NESTED.clip.high)


def forgets_in_a_dict(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    hp: dict[str, float] = {"eps_low": 0.2, "eps_high": 0.2},  # noqa: B006 - as users write it
) -> Tensor:
    return _loss(logprobs, old_logprobs, advantages, mask, hp["eps_low"], hp["eps_low"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "bind"),
    [
        (Owner().forgets, {}),
        (forgets, {"cfg": Settings()}),
        (forgets, {"cfg": SimpleNamespace(clip_low=0.2, clip_high=0.2)}),
        (forgets_in_a_dict, {}),
        (forgets_in_a_part, {}),
    ],
)
def test_an_upper_range_that_is_held_and_forgotten_is_a_fault(function: Any, bind: dict[str, Any]) -> None:
    assert "REF001" in {one.code for one in rl_sentinel.check(function, bind=bind, **_LOSS).faults}


@pytest.mark.parametrize(
    ("function", "bind"), [(Owner().reads, {}), (reads, {"cfg": Settings()}), (reads_in_a_part, {})]
)
def test_other_settings_of_an_object_are_quiet(function: Any, bind: dict[str, Any]) -> None:
    result = rl_sentinel.check(function, bind=bind, **_LOSS)
    assert (result.ok, result.findings) == (True, ())
    assert all("set to 0.28" in note for note in result.notes)


def rewards_to_go(cfg: Any, token_rewards: Tensor, mask: Tensor) -> Tensor:
    """Discounted rewards from each token on; no lambda belongs to them."""
    out, later = torch.zeros_like(token_rewards), torch.zeros(len(token_rewards))
    for place in reversed(range(token_rewards.shape[1])):
        later = token_rewards[:, place] + cfg.gamma * later
        out[:, place] = later
    return out * mask


def test_a_discount_that_belongs_to_another_estimator_is_quiet() -> None:
    bind = {"cfg": SimpleNamespace(gamma=0.99, lam=1.0)}
    result = rl_sentinel.check(
        rewards_to_go, stage="advantage", claims={"credit": "temporal"}, bind=bind, laws=["PLC005", "CFG001"], budget=4
    )
    assert (result.ok, [*result.notes]) == (True, [])


def _log_probs(logits: Tensor, tokens: Tensor) -> Tensor:
    chosen: Tensor = logits.log_softmax(-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    return chosen


def warm(  # noqa: PLR0913 - as users write it
    logits: Tensor,
    tokens: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    clip: float = 0.2,
    temperature: float = 1.0,
) -> Tensor:
    """Log-probs at the temperature of sampling."""
    return _loss(_log_probs(logits / temperature, tokens), old_logprobs, advantages, mask, clip, clip)


def cold(  # noqa: PLR0913 - as users write it
    logits: Tensor,
    tokens: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    clip: float = 0.2,
    temperature: float = 1.0,
) -> Tensor:
    """A fault: the temperature of sampling is not read."""
    return _loss(_log_probs(logits, tokens), old_logprobs, advantages, mask, clip, clip)


def of_model(  # noqa: PLR0913 - as users write it
    model: Any,
    input_ids: Tensor,
    attention_mask: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    clip: float = 0.2,
    temperature: float = 1.0,
) -> Tensor:
    """The same of a model."""
    width = response_mask.shape[1]
    logits = model(input_ids=input_ids, attention_mask=attention_mask).logits[:, :-1][:, -width:]
    return warm(logits, input_ids[:, -width:], old_logprobs, advantages, response_mask, clip, temperature)


def cold_of_model(  # noqa: PLR0913 - as users write it
    model: Any,
    input_ids: Tensor,
    attention_mask: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    clip: float = 0.2,
    temperature: float = 1.0,
) -> Tensor:
    """The fault of a model."""
    return of_model(model, input_ids, attention_mask, old_logprobs, advantages, response_mask, clip)


@pytest.mark.parametrize("function", [warm, of_model])
def test_a_temperature_of_one_is_replaced(function: Any) -> None:
    result = rl_sentinel.check(function, laws=["REF001"], **_LOSS)
    assert (result.ok, result.findings) == (True, ()), result


@pytest.mark.slow
@pytest.mark.parametrize("function", [cold, cold_of_model])
def test_a_temperature_of_one_that_is_not_read_is_a_fault(function: Any) -> None:
    result = rl_sentinel.check(function, laws=["REF001"], **_LOSS)
    assert [one.code for one in result.faults] == ["REF001"], result


def plain(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, temperature: float = 1.0) -> Tensor:
    """Log-probs have their temperature already."""
    return _loss(logprobs, old_logprobs, advantages, mask, 0.2, 0.2)


def test_a_temperature_of_log_probs_may_be_ignored() -> None:
    result = rl_sentinel.check(plain, **_LOSS)
    assert (result.ok, result.findings) == (True, ())


def of_ranges(  # noqa: PLR0913 - as users write it
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, low: float, high: float
) -> Tensor:
    """A loss that forgets its upper range, under a name that is not known."""
    return _loss(logprobs, old_logprobs, advantages, mask, low, low)


def test_a_bound_argument_that_is_not_read_is_named() -> None:
    result = rl_sentinel.check(partial(of_ranges, low=0.2, high=0.28), **_LOSS)
    assert "the function does not read its parameter high" in result.notes
    assert not any("does not read its parameter low" in note for note in result.notes)
