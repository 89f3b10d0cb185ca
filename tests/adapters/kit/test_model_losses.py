"""Losses that call a model: attention to padding, and the entropy of its logits."""

from typing import Any

import pytest
import torch

import rl_sentinel
from quick import slow_after
from rl_sentinel.adapters.kit.model_losses import entropy_weights
from rl_sentinel.adapters.kit.sequence_model import logits_of

#: Most tests try all laws on a function.
pytestmark = pytest.mark.slow

CLIP = 0.2


def ppo(logprob: Any, inputs: Any, extra: Any = 0.0) -> Any:
    ratio = (logprob - inputs["old_per_token_logps"]).exp()
    advantage = inputs["advantages"][:, None]
    policy = -torch.min(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
    mask = inputs["completion_mask"]
    return ((policy - extra) * mask).sum() / mask.sum().clamp(min=1)


def response_logits(model: Any, inputs: Any, attention: str = "masks") -> Any:
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    width = inputs["completion_ids"].shape[1]
    if attention == "ones":
        mask = torch.ones_like(ids)
    given = {} if attention == "none" else {"attention_mask": mask}
    return model(input_ids=ids, **given).logits[:, -width - 1 : -1].log_softmax(-1)


def of_sampled(logprobs: Any, inputs: Any) -> Any:
    return logprobs.gather(-1, inputs["completion_ids"].unsqueeze(-1)).squeeze(-1)


def entropy_of(logprobs: Any) -> Any:
    return -(logprobs.exp() * logprobs).sum(-1)


@pytest.mark.parametrize("attention", slow_after(1, [("masks",), ("ones",), ("none",)]))
def test_attention_to_padding_in_front_of_the_prompt_is_a_fault(attention: str) -> None:
    def compute_loss(model: Any, inputs: Any) -> Any:
        return ppo(of_sampled(response_logits(model, inputs, attention), inputs), inputs)

    result = rl_sentinel.check(compute_loss, stage="policy-loss", algorithm="ppo")
    assert result.ok == (attention == "masks")
    assert any(finding.code == "REF001" for finding in result.findings) == (attention != "masks")


class Trainer:
    """Holds the weight of an entropy."""

    def __init__(self) -> None:
        self.ent_coef = 0.01

    def loss(self, model: Any, inputs: Any) -> Any:
        logprobs = response_logits(model, inputs)
        return ppo(of_sampled(logprobs, inputs), inputs, self.ent_coef * entropy_of(logprobs))

    def loss_of_column(self, logprobs: Any, old_logprobs: Any, advantages: Any, mask: Any, entropy: Any) -> Any:
        columns = {"old_per_token_logps": old_logprobs, "advantages": advantages[:, 0], "completion_mask": mask}
        del entropy
        return ppo(logprobs, columns)


@pytest.mark.slow
def test_a_weight_of_the_models_entropy_is_set_to_0_with_a_note() -> None:
    result = rl_sentinel.check(Trainer().loss, stage="policy-loss", algorithm="ppo")
    assert result.ok, str(result)
    assert "ent_coef is set to 0 in the check" in str(result)


@pytest.mark.slow
def test_so_is_one_that_is_a_parameter() -> None:
    def loss(model: Any, inputs: Any, entropy_coef: float = 0.01) -> Any:
        logprobs = response_logits(model, inputs)
        return ppo(of_sampled(logprobs, inputs), inputs, entropy_coef * entropy_of(logprobs))

    result = rl_sentinel.check(loss, stage="policy-loss", algorithm="ppo")
    assert result.ok, str(result)
    assert "entropy_coef is set to 0 in the check" in str(result)


@pytest.mark.slow
def test_an_entropy_without_a_known_weight_is_not_compared() -> None:
    def loss(model: Any, inputs: Any) -> Any:
        logprobs = response_logits(model, inputs)
        return ppo(of_sampled(logprobs, inputs), inputs, 0.01 * entropy_of(logprobs))

    result = rl_sentinel.check(loss, stage="policy-loss", algorithm="ppo")
    assert not result.findings
    assert not result.ok
    assert "the loss depends on the probabilities of tokens that were not sampled" in " ".join(str(result).split())


@pytest.mark.parametrize("beta", slow_after(1, [(0.0,), (0.1,)]))
def test_a_wrong_scale_of_logits_is_a_fault_and_no_entropy(beta: float) -> None:
    def loss(model: Any, inputs: Any) -> Any:
        logprob = of_sampled((response_logits(model, inputs) * 0.5).log_softmax(-1), inputs)
        gap = inputs["ref_per_token_logps"] - logprob
        return ppo(logprob, inputs, -beta * (gap.exp() - gap - 1))

    numbers = {"kl_loss_coef": beta, "clip_low": CLIP, "clip_high": CLIP}
    result = rl_sentinel.check(loss, stage="policy-loss", algorithm="ppo", numbers=numbers)
    assert "ONP001" in {finding.code for finding in result.findings}, str(result)


def test_a_weight_that_an_object_holds_beside_an_entropy_that_is_not_read_is_a_fault() -> None:
    result = rl_sentinel.check(
        Trainer().loss_of_column, stage="policy-loss", algorithm="ppo", bind={"advantages": "advantage[B 1]"}
    )
    assert [(finding.code, finding.level) for finding in result.findings] == [("REF001", "fault")]


def test_the_weight_that_a_user_states_is_kept() -> None:
    assert entropy_weights({"entropy_coef": 0.01}, {"entropy_coef": 0.0}) == {}
    assert entropy_weights({"entropy_coef": 0.01}, {"entropy_coeff": 0.02}) == {}
    assert entropy_weights({"entropy_coef": 0.01, "beta": 0.1}, {"beta": 0.2}) == {"entropy_coef": 0.0}


def test_other_tokens_change_and_the_sampled_one_does_not() -> None:
    logprob, ids = torch.tensor([[-1.0, -0.5]]), torch.tensor([[1, 2]])
    even, uneven = logits_of(logprob, ids), logits_of(logprob, ids, uneven=True)
    for logits in (even, uneven):
        torch.testing.assert_close(logits.exp().sum(-1), torch.ones(1, 2))
        torch.testing.assert_close(logits.gather(-1, ids.unsqueeze(-1)).squeeze(-1), logprob)
    assert (even - uneven).abs().amax() > 0.5


def test_a_weight_of_zero_needs_no_note() -> None:
    assert entropy_weights({"entropy_coef": 0.0, "ent_coef": None}, {}) == {}


def loss_of_ids(ids_of: Any) -> Any:
    def compute_loss(model: Any, inputs: Any) -> Any:
        prompt, completion = inputs["prompt_ids"], inputs["completion_ids"]
        mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
        logits = model(input_ids=ids_of(prompt, completion), attention_mask=mask).logits
        return ppo(of_sampled(logits[:, -completion.shape[1] - 1 : -1].log_softmax(-1), inputs), inputs)

    return compute_loss


@pytest.mark.parametrize(
    "ids_of",
    [
        lambda prompt, completion: torch.cat([completion, prompt], 1),
        lambda prompt, completion: torch.cat([prompt, torch.zeros_like(completion)], 1),
        lambda prompt, completion: torch.cat([prompt.flip(0), completion], 1),
        lambda prompt, completion: torch.cat([prompt, completion.roll(1, 1)], 1),
    ],
)
def test_other_tokens_than_those_of_the_sequence_are_a_fault(ids_of: Any) -> None:
    result = rl_sentinel.check(loss_of_ids(ids_of), stage="policy-loss", algorithm="ppo", laws=["REF001"])
    assert [finding.code for finding in result.findings] == ["REF001"]


def test_the_tokens_of_the_sequence_are_sound_in_parts_of_the_rows_and_with_other_ids_in_padding() -> None:
    def compute_loss(model: Any, inputs: Any) -> Any:
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        ids = torch.where(ids == 0, 3, ids)
        mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
        width = inputs["completion_ids"].shape[1]
        parts = [
            model(input_ids=ids[row : row + 1], attention_mask=mask[row : row + 1], logits_to_keep=width + 1).logits
            for row in range(len(ids))
        ]
        return ppo(of_sampled(torch.cat(parts)[:, :-1].log_softmax(-1), inputs), inputs)

    result = rl_sentinel.check(compute_loss, stage="policy-loss", algorithm="ppo")
    assert result.ok, str(result)
    assert not result.findings


def test_without_an_old_policy_a_wrong_token_changes_the_gradient() -> None:
    def compute_loss(model: Any, inputs: Any) -> Any:
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"].roll(1, 1)], 1)
        logits = model(ids, torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)).logits
        ours = of_sampled(logits[:, -inputs["completion_ids"].shape[1] - 1 : -1].log_softmax(-1), inputs)
        names = ("advantages", "completion_mask")
        return ppo(ours, {name: inputs[name] for name in names} | {"old_per_token_logps": ours.detach()})

    result = rl_sentinel.check(compute_loss, stage="policy-loss", algorithm="ppo")
    assert "ONP001" in {finding.code for finding in result.findings}, str(result)


def test_tokens_of_all_sequences_end_to_end_are_not_judged() -> None:
    def compute_loss(model: Any, inputs: Any) -> Any:
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1).reshape(1, -1)
        logits = model(input_ids=ids).logits.reshape(len(inputs["prompt_ids"]), -1, 4)
        return ppo(of_sampled(logits[:, :-1].log_softmax(-1), inputs), inputs)

    result = rl_sentinel.check(compute_loss, stage="policy-loss", algorithm="ppo")
    assert not any(finding.code == "REF001" for finding in result.findings)
    assert any(": pack no rows" in reason for reason in result.errored)
