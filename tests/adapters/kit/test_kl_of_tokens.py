"""A KL per token among the parameters of a user's function."""

from typing import Any

import pytest
import torch

import rl_sentinel
from rl_sentinel.adapters.kit.kl_of_tokens import KlOfTokens
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.codec import Inputs

CLIP, BETA = 0.2, 0.04
K1 = {"kl": "k1"}


def shaped(reward: Any, kl_coef: Any, kl: Any, action_mask: Any) -> Any:
    mask = action_mask.bool()
    last = mask.long().cumsum(1).argmax(1)
    out = torch.where(mask, -kl_coef * kl, 0.0)
    return out.index_put((torch.arange(len(reward)), last), reward, accumulate=True)


def with_the_other_sign(reward: Any, kl_coef: Any, kl: Any, action_mask: Any) -> Any:
    return shaped(reward, -kl_coef, kl, action_mask)


def loss(logprobs: Any, old_logprobs: Any, advantages: Any, per_token_kl: Any, mask: Any) -> Any:
    ratio = (logprobs - old_logprobs).exp()
    losses = -torch.min(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages) + BETA * per_token_kl
    return (losses * mask).sum() / mask.sum().clamp(min=1)


def loss_with_the_other_sign(logprobs: Any, old_logprobs: Any, advantages: Any, per_token_kl: Any, mask: Any) -> Any:
    return loss(logprobs, old_logprobs, advantages, -per_token_kl, mask)


def test_rewards_less_a_kl_that_is_passed_are_compared_with_their_formula() -> None:
    sound = rl_sentinel.check(shaped, stage="reward", claims=K1)
    assert sound.ok
    assert "REF001" in {v.law for v in sound.verdicts if v.outcome == "holds"}
    broken = rl_sentinel.check(with_the_other_sign, stage="reward", claims=K1)
    assert "REF001" in {finding.code for finding in broken.findings}


@pytest.mark.slow
def test_a_loss_gets_k3_with_its_gradient() -> None:
    sound = rl_sentinel.check(loss, stage="policy-loss", algorithm="grpo")
    assert sound.ok
    assert "REF001" in {v.law for v in sound.verdicts if v.outcome == "holds"}
    broken = rl_sentinel.check(loss_with_the_other_sign, stage="policy-loss", algorithm="grpo")
    assert "REF001" in {finding.code for finding in broken.findings}


def test_a_default_under_the_name_of_a_kl_is_an_option_and_kept() -> None:
    def of_kind(logprob: Any, ref_logprob: Any, kl: str = "k3") -> Any:
        difference = ref_logprob - logprob
        return {"k1": -difference, "k3": difference.exp() - difference - 1}[kl]

    assert rl_sentinel.check(of_kind, stage="kl", algorithm="k3").ok


def test_estimates_are_those_of_the_reference() -> None:
    logprob = torch.tensor([[-1.0, -2.0]])
    batch = batch_of(torch.tensor([[True, True]]), logprob=logprob, ref_logprob=torch.tensor([[-1.0, -1.0]]))
    values = {kind: KlOfTokens(kind).put(Inputs(batch)) for kind in ("k1", "k2", "k3")}
    assert values["k1"].tolist() == [[0.0, -1.0]]
    assert values["k2"].tolist() == [[0.0, 0.5]]
    assert torch.allclose(values["k3"], torch.tensor([[0.0, torch.e - 2]]))
