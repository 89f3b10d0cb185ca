"""Losses that take logits: aligned with the response, or of whole sequences, with labels of -100 or a mask."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import rl_sentinel
from quick import slow_after
from rl_sentinel.core.errors import SentinelError

#: Most tests try all laws on a function.
pytestmark = pytest.mark.slow

IGNORED = -100
CLIP = 0.2


def logprob_of(logits: Any, ids: Any) -> Any:
    return logits.log_softmax(-1).gather(-1, ids.clamp(min=0).unsqueeze(-1)).squeeze(-1)


def ppo(logprob: Any, old: Any, advantage: Any, mask: Any) -> Any:
    ratio = torch.where(mask, logprob - old, 0.0).exp()
    losses = -torch.min(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
    return torch.where(mask, losses, 0.0).sum() / mask.sum().clamp(min=1)


def shifted_labels(logits: Any, labels: Any, old_logps: Any, advantages: Any) -> Any:
    labels = labels[:, 1:]
    return ppo(logprob_of(logits[:, :-1], labels), old_logps, advantages[:, None], labels != IGNORED)


def shifted_labels_without_shift_of_logits(logits: Any, labels: Any, old_logps: Any, advantages: Any) -> Any:
    labels = labels[:, 1:]
    return ppo(logprob_of(logits[:, 1:], labels), old_logps, advantages[:, None], labels != IGNORED)


def masks_of_sequences(logits: Any, input_ids: Any, response_mask: Any, old_logps: Any, advantages: Any) -> Any:
    mask = response_mask[:, 1:].bool()
    return ppo(logprob_of(logits[:, :-1], input_ids[:, 1:]), old_logps, advantages[:, None], mask)


def columns_of_sequences(logits: Any, input_ids: Any, response_mask: Any, old_logps: Any, advantages: Any) -> Any:
    mask = response_mask[:, 1:].bool()
    return ppo(logprob_of(logits[:, :-1], input_ids[:, 1:]), old_logps[:, 1:], advantages[:, None], mask)


def advantages_of_sequences(logits: Any, input_ids: Any, response_mask: Any, old_logps: Any, advantages: Any) -> Any:
    mask = response_mask[:, 1:].bool()
    return ppo(logprob_of(logits[:, :-1], input_ids[:, 1:]), old_logps[:, 1:], advantages[:, 1:], mask)


def whole_tokens(logits: Any, tokens: Any, response_mask: Any, old_logps: Any, advantages: Any) -> Any:
    return ppo(logprob_of(logits[:, :-1], tokens[:, 1:]), old_logps, advantages, response_mask.bool())


def aligned_actions(logits: Any, actions: Any, mask: Any, old_logps: Any, advantages: Any) -> Any:
    return ppo(logprob_of(logits, actions), old_logps, advantages, mask.bool())


def aligned_shift_labels(shift_logits: Any, shift_labels: Any, old_logps: Any, advantages: Any) -> Any:
    return ppo(logprob_of(shift_logits, shift_labels), old_logps, advantages, shift_labels != IGNORED)


def aligned_labels(logits: Any, labels: Any, old_logps: Any, advantages: Any) -> Any:
    return ppo(logprob_of(logits, labels), old_logps, advantages, labels != IGNORED)


def ascent(logits: Any, actions: Any, mask: Any, old_logps: Any, advantages: Any) -> Any:
    return -aligned_actions(logits, actions, mask, old_logps, advantages)


def raw_logits(logits: Any, actions: Any, mask: Any, old_logps: Any, advantages: Any) -> Any:
    return ppo(logits.gather(-1, actions.unsqueeze(-1)).squeeze(-1), old_logps, advantages, mask.bool())


def mean_over_prompt_too(logits: Any, labels: Any, old_logps: Any, advantages: Any) -> Any:
    mask = labels[:, 1:] != IGNORED
    return shifted_labels(logits, labels, old_logps, advantages) * mask.sum() / mask.numel()


@pytest.mark.parametrize(
    "function",
    slow_after(
        2,
        [
            (shifted_labels,),
            (aligned_actions,),
            (masks_of_sequences,),
            (columns_of_sequences,),
            (advantages_of_sequences,),
            (whole_tokens,),
            (aligned_shift_labels,),
        ],
    ),
)
def test_a_sound_loss_of_logits_is_compared_with_its_formula_in_the_layout_that_it_reads(
    function: Callable[..., Any],
) -> None:
    result = rl_sentinel.check(function, stage="policy-loss", algorithm="ppo")
    assert result.ok
    assert not result.findings
    assert {v.law for v in result.verdicts if v.outcome == "holds"} >= {"REF001", "MSK002", "ONP001"}


def mean_of_the_width(logits: Any, labels: Any, advantages: Any) -> Any:
    labels = labels[:, 1:]
    losses = -logprob_of(logits[:, :-1], labels) * advantages[:, None]
    return torch.where(labels != IGNORED, losses, 0.0).mean()


def test_padding_is_varied_where_only_logits_and_labels_have_it() -> None:
    result = rl_sentinel.check(mean_of_the_width, stage="policy-loss", algorithm="reinforce")
    assert "PAD001" in {finding.code for finding in result.findings if finding.level == "fault"}


@pytest.mark.parametrize(
    "function",
    slow_after(1, [(shifted_labels_without_shift_of_logits,), (ascent,), (raw_logits,), (mean_over_prompt_too,)]),
)
def test_a_fault_in_a_loss_of_logits_is_found(function: Callable[..., Any]) -> None:
    result = rl_sentinel.check(function, stage="policy-loss", algorithm="ppo", claims={"aggregation": "token-mean"})
    assert "REF001" in {finding.code for finding in result.findings if finding.level == "fault"}


def test_labels_that_are_not_shifted_are_asked_for_and_can_be_stated() -> None:
    with pytest.raises(SentinelError, match="logits and labels are aligned by position"):
        rl_sentinel.check(aligned_labels, stage="policy-loss", algorithm="ppo")
    stated = {"logits": "response_logits", "labels": "response_labels"}
    assert rl_sentinel.check(aligned_labels, stage="policy-loss", algorithm="ppo", bind=stated).ok


def test_whole_sequences_under_another_name_are_noted() -> None:
    result = rl_sentinel.check(whole_tokens, stage="policy-loss", algorithm="ppo")
    assert '"logits": "sequence_logits", "tokens": "input_ids"' in " ".join(str(result).split())


def test_without_an_algorithm_the_layout_is_that_of_the_trained_tokens() -> None:
    result = rl_sentinel.check(whole_tokens, stage="policy-loss")
    assert result.ok
    assert not result.findings


def test_logits_beside_log_probs_are_those_of_an_entropy_and_stay_a_column() -> None:
    def loss(logits: Any, logprobs: Any, old_logps: Any, advantages: Any, mask: Any) -> Any:
        logp = logits.log_softmax(-1)
        entropy = -(logp.exp() * logp).sum(-1)
        mask = mask.bool()
        return ppo(logprobs, old_logps, advantages, mask) - 0.01 * torch.where(mask, entropy, 0.0).mean()

    result = rl_sentinel.check(loss, stage="policy-loss", algorithm="ppo")
    assert "reads no logits, but the loss reads them" in " ".join(str(result).split())


def flattened_by_view(logits: Any, actions: Any, mask: Any, old_logps: Any, advantages: Any) -> Any:
    flat = torch.nn.functional.cross_entropy(logits.view(-1, logits.size(-1)), actions.view(-1), reduction="none")
    return ppo(-flat.view(actions.shape), old_logps, advantages[:, None], mask.bool())


def test_logits_of_the_response_can_be_flattened_by_view() -> None:
    result = rl_sentinel.check(flattened_by_view, stage="policy-loss", algorithm="ppo")
    assert result.ok
    assert not result.findings


def without_a_layout(logits: Any, actions: Any, old_logps: Any, advantages: Any) -> Any:
    if old_logps.dim() == 1 or logits.shape[1] == old_logps.shape[1]:
        raise RuntimeError("this layout is not for me")
    return logprob_of(logits, actions)[:, 1].sum() * advantages.mean()


def test_the_failure_in_the_usual_layout_is_reported_where_the_loss_is_right_in_no_other() -> None:
    result = rl_sentinel.check(without_a_layout, stage="policy-loss", algorithm="ppo")
    assert not result.findings
    assert any("this layout is not for me" in reason for reason in result.errored)


def reinforce_without_mask(logits: Any, tokens: Any, advantages: Any) -> Any:
    return -(logprob_of(logits, tokens) * advantages[:, None]).mean()


def reinforce_over_rows(logits: Any, tokens: Any, advantages: Any) -> Any:
    return -(logprob_of(logits, tokens) * advantages[:, None]).sum() / len(tokens)


def reinforce_of_attended(logits: Any, input_ids: Any, attention_mask: Any, advantages: Any) -> Any:
    mask = attention_mask[:, 1:]
    return -(logprob_of(logits[:, :-1], input_ids[:, 1:]) * advantages[:, None] * mask).sum() / mask.sum()


@pytest.mark.parametrize("function", [reinforce_without_mask, reinforce_of_attended])
def test_a_loss_of_logits_without_a_mask_is_asked_where_every_token_of_the_response_trains(
    function: Callable[..., Any],
) -> None:
    claims = {"aggregation": "token-mean"}
    result = rl_sentinel.check(function, stage="policy-loss", algorithm="reinforce", claims=claims)
    assert result.ok
    assert not result.findings
    assert "REF001" in {verdict.law for verdict in result.verdicts if verdict.outcome == "holds"}


def test_a_fault_is_found_in_a_loss_of_logits_without_a_mask() -> None:
    claims = {"aggregation": "token-mean"}
    result = rl_sentinel.check(reinforce_over_rows, stage="policy-loss", algorithm="reinforce", claims=claims)
    assert [finding.code for finding in result.findings] == ["REF001"]
