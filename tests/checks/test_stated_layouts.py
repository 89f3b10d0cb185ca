"""What names, docstrings and layouts leave open is asked for or tried, and never judged as a fault."""

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import torch
from torch import Tensor

import rl_sentinel
from rl_sentinel.adapters.kit.annotated_axes import documented_axes
from rl_sentinel.core.errors import InputError

#: Most tests try all laws on a function.
pytestmark = pytest.mark.slow

_LOSS: dict[str, Any] = {
    "stage": "policy-loss",
    "algorithm": "grpo",
    "claims": {"aggregation": "token-mean"},
    "budget": 2,
}
_ADVANTAGE: dict[str, Any] = {"stage": "advantage", "algorithm": "grpo", "budget": 2}


def _surrogate(ratio: Tensor, advantages: Tensor, clip: float = 0.2) -> Tensor:
    return -torch.min(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)


def two_names(log_probs: Tensor, action_log_probs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    loss = _surrogate((log_probs - action_log_probs).exp(), advantages)
    return (loss * mask).sum() / mask.sum()


def test_two_names_of_one_column_are_asked_for() -> None:
    with pytest.raises(InputError, match="log_probs and action_log_probs get the same column, logprob"):
        rl_sentinel.check(two_names, **_LOSS)
    assert rl_sentinel.check(two_names, bind={"action_log_probs": "old_logprob"}, laws=["REF001"], **_LOSS).ok


def documented(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """Advantages are not unsqueezed; ``advantages``: of shape (B,)."""
    loss = _surrogate((logps - old_logps).exp(), advantages)
    return (loss * mask).sum() / mask.sum()


def documented_by_prompt(rewards: Tensor) -> Tensor:
    """Center rewards [K, G]."""
    centered: Tensor = rewards - rewards.mean(0, keepdim=True)
    return centered


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (documented, _LOSS, r"accepts advantages as advantage\[B T\] and not with the axes in its docstring"),
        (documented_by_prompt, _ADVANTAGE, r"rewards has the axes \[K, G\] in its docstring, expected \[G, K\]"),
    ],
)
def test_the_axes_of_a_docstring_are_not_overruled(function: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        rl_sentinel.check(function, **options)


def documented_once(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """Log-probs, advantages and mask: [N], the tokens of a mini-batch."""
    loss = _surrogate((logps - old_logps).exp(), advantages)
    return loss[mask].sum() / mask.sum()


def test_columns_that_are_documented_once() -> None:
    assert rl_sentinel.check(documented_once, laws=["REF001"], **_LOSS).ok


def kl_of_responses(logps: Tensor, ref_logps: Tensor, mask: Tensor) -> Tensor:
    gap = ref_logps - logps
    return ((gap.exp() - gap - 1) * mask).sum(1)


def test_a_kl_of_whole_responses_is_not_compared_by_token() -> None:
    result = rl_sentinel.check(kl_of_responses, stage="kl", algorithm="k3", budget=2)
    assert not result.findings
    assert "kl of the result is one number per response, expected one number per token: " in result.errored[0]


def kl_of_trained_tokens(logps: Tensor, ref_logps: Tensor, mask: Tensor) -> Tensor:
    gap = ref_logps - logps
    return (gap.exp() - gap - 1)[mask.bool()]


def test_a_kl_of_trained_tokens_only() -> None:
    result = rl_sentinel.check(kl_of_trained_tokens, stage="kl", algorithm="k3", budget=2)
    assert not result.findings
    assert any("such as kl * mask, and not kl[mask] or a mean" in reason for reason in result.errored), result.errored


def token_mean(logps: list[Tensor], old_logps: list[Tensor], advantages: Any) -> Tensor:
    rows = [_surrogate((a - b).exp(), c) for a, b, c in zip(logps, old_logps, advantages, strict=True)]
    return torch.cat(rows).mean()


def mean_of_means(logps: list[Tensor], old_logps: list[Tensor], advantages: Any) -> Tensor:
    rows = [_surrogate((a - b).exp(), c) for a, b, c in zip(logps, old_logps, advantages, strict=True)]
    return torch.stack([row.mean() for row in rows]).mean()


def beside_lengths(
    logps: list[Tensor],
    old_logps: list[Tensor],
    advantages: Any,
    response_lengths: list[int],
) -> Tensor:
    assert [len(row) for row in logps] == response_lengths
    return token_mean(logps, old_logps, advantages)


def test_columns_beside_lists_are_lists() -> None:
    assert rl_sentinel.check(token_mean, laws=["REF001"], **_LOSS).ok
    assert rl_sentinel.check(beside_lengths, laws=["REF001"], **_LOSS).ok
    wrong = rl_sentinel.check(mean_of_means, laws=["REF001"], **_LOSS)
    assert [f.code for f in wrong.faults] == ["REF001"]
    assert any("no parameter says which tokens are trained" in note for note in wrong.notes)


def by_fours(rewards: list[float]) -> list[float]:
    centered = []
    for start in range(0, len(rewards), 4):
        own = torch.tensor(rewards[start : start + 4])
        centered += ((own - own.mean()) / (own.std() + 1e-6)).tolist()
    return centered


def by_the_first_of_four(rewards: list[float]) -> list[float]:
    return [r - rewards[n // 4 * 4] for n, r in enumerate(rewards)]


@pytest.mark.slow
def test_a_group_size_that_accepts_other_numbers_of_rows() -> None:
    result = rl_sentinel.check(by_fours, **_ADVANTAGE)
    assert result.ok, result
    assert any("every prompt has 4 adjacent responses" in note for note in result.notes)
    assert rl_sentinel.check(by_fours, numbers={"group_size": 4}, **_ADVANTAGE).ok
    assert rl_sentinel.check(by_the_first_of_four, **_ADVANTAGE).faults
    with pytest.raises(InputError, match=r"group_size is 2\.5, expected a whole number from 2 to 16: responses"):
        rl_sentinel.check(by_fours, numbers={"group_size": 2.5}, **_ADVANTAGE)


def of_prompt_ids(batch: dict[str, Tensor]) -> Tensor:
    same = (batch["prompt_ids"][:, None] == batch["prompt_ids"][None, :]).float()
    return batch["rewards"] - same @ batch["rewards"] / same.sum(1)


def test_prompt_ids_of_a_dict_are_labels_as_those_of_a_parameter() -> None:
    assert rl_sentinel.check(of_prompt_ids, **_ADVANTAGE).ok


def of_lists(rewards: Tensor, mask: Tensor) -> Tensor:
    """Rewards to go; rewards, mask: [T, B]."""
    return (rewards.flip(0).cumsum(0).flip(0) * mask).T.contiguous().T


def test_axes_behind_a_list_of_names_are_those_of_each() -> None:
    assert (documented_axes(of_lists, "rewards"), documented_axes(of_lists, "mask")) == ("TB", "TB")


def in_entries(rewards: Tensor, mask: Tensor, values: Tensor) -> None:
    """Take three columns.

    Args:
        rewards (Tensor): the outcome of each response, of shape (B,).
        mask: 1 where a token is trained,
            shape [B, T]
        values: one per token, of shape [B, T], or one per response, of shape [B].
    """


def test_axes_in_the_entry_of_a_parameter_are_read() -> None:
    assert [documented_axes(in_entries, name) for name in ("rewards", "mask", "values")] == ["B", "BT", ""]


def bounds(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor, low: float = 0.8) -> Tensor:
    ratio = (logps - old_logps).exp()
    loss = -torch.min(ratio * advantages, ratio.clamp(1 - low, 1.2) * advantages)
    return (loss * mask).sum() / mask.sum()


def test_a_clip_range_that_looks_like_a_bound_is_asked_for() -> None:
    result = rl_sentinel.check(bounds, **_LOSS)
    assert not result.ok
    assert 'state numbers={"clip_low": 0.8}' in " ".join(str(result).split())
    assert rl_sentinel.check(bounds, numbers={"clip_low": 0.8, "clip_high": 0.2}, **_LOSS).ok


@dataclass
class Weights:
    """Settings, whose defaults leave out the KL."""

    beta: float = 0.0
    clip: float = 0.2


def added_kl(batch: dict[str, Tensor], cfg: Weights, sign: float = 1.0) -> Tensor:
    gap = batch["ref_logps"] - batch["logps"]
    loss = _surrogate((batch["logps"] - batch["old_logps"]).exp(), batch["advantages"], cfg.clip)
    return ((loss + sign * cfg.beta * (gap.exp() - gap - 1)) * batch["mask"]).sum() / batch["mask"].sum()


def subtracted_kl(batch: dict[str, Tensor], cfg: Weights) -> Tensor:
    return added_kl(batch, cfg, -1.0)


def weighted(batch: dict[str, Tensor], beta: float = 0.0) -> Tensor:
    return added_kl(batch, Weights(beta), -1.0)


@pytest.mark.slow
def test_defaults_that_hide_a_term_are_replaced_beside_a_dict_of_columns() -> None:
    assert rl_sentinel.check(added_kl, **_LOSS).ok
    for function in (subtracted_kl, weighted):
        assert "REF001" in {finding.code for finding in rl_sentinel.check(function, **_LOSS).findings}


def squashed(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    loss = _surrogate((logps - old_logps).exp(), advantages.clamp(-5, 5))
    return (loss * mask).sum() / mask.sum()


def test_a_limit_on_the_advantages_of_a_loss_is_found() -> None:
    assert "REF001" in {finding.code for finding in rl_sentinel.check(squashed, **_LOSS).findings}


def optional(
    logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor, rollout_logps: Tensor | None = None
) -> Tensor:
    loss = _surrogate((logps - old_logps).exp(), advantages)
    return (loss * mask).sum() / mask.sum()


def test_an_optional_column_that_is_not_read_is_not_passed() -> None:
    assert rl_sentinel.check(optional, **_LOSS).ok


def fixed_range(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor, clip_eps: float = 0.2) -> Tensor:
    loss = _surrogate((logps - old_logps).exp(), advantages, 0.2)
    return (loss * mask).sum() / mask.sum()


def test_a_note_names_a_number_that_is_not_read() -> None:
    assert "the function does not read its parameter clip_eps" in rl_sentinel.check(fixed_range, **_LOSS).notes


class Guarded:
    """A loss that reads the reference only if its weight is not 0."""

    beta = 0.0

    def right(self, batch: dict[str, Tensor]) -> Tensor:
        return self._loss(batch, batch["ref_logps"] if self.beta else batch["logps"], 1.0)

    def wrong(self, batch: dict[str, Tensor]) -> Tensor:
        return self._loss(batch, batch["ref_logps"] if self.beta else batch["logps"], -1.0)

    def _loss(self, batch: dict[str, Tensor], other: Tensor, sign: float) -> Tensor:
        gap = sign * (other - batch["logps"])
        loss = _surrogate((batch["logps"] - batch["old_logps"]).exp(), batch["advantages"])
        return ((loss + self.beta * (gap.exp() - gap - 1)) * batch["mask"]).sum() / batch["mask"].sum()


@pytest.mark.slow
def test_keys_behind_a_weight_of_zero_are_found() -> None:
    options = {**_LOSS, "claims": {"aggregation": "token-mean", "kl": "k3"}}
    assert rl_sentinel.check(Guarded().right, **options).ok
    assert "REF001" in {finding.code for finding in rl_sentinel.check(Guarded().wrong, **options).findings}


class Tempered:
    """Two losses with a temperature: one divides the logits by it, and one multiplies them."""

    def __init__(self) -> None:
        self.temperature = 1.0

    def right(self, model: Any, inputs: dict[str, Tensor]) -> Tensor:
        return self._loss(model, inputs, 1 / self.temperature)

    def wrong(self, model: Any, inputs: dict[str, Tensor]) -> Tensor:
        return self._loss(model, inputs, self.temperature)

    def _loss(self, model: Any, inputs: dict[str, Tensor], factor: float) -> Tensor:
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        mask = inputs["completion_mask"]
        logits = model(input_ids=ids).logits[:, -mask.shape[1] - 1 : -1] * factor
        logps = logits.log_softmax(-1).gather(-1, inputs["completion_ids"].unsqueeze(-1)).squeeze(-1)
        loss = _surrogate((logps - inputs["old_logps"]).exp(), inputs["advantages"].unsqueeze(1))
        return (loss * mask).sum() / mask.sum()


@pytest.mark.slow
def test_a_temperature_of_one_that_the_code_holds_is_replaced() -> None:
    assert rl_sentinel.check(Tempered().right, **_LOSS).ok
    result = rl_sentinel.check(Tempered().wrong, **_LOSS)
    assert "ONP001" in {finding.code for finding in result.findings}
    assert any("temperature is set to 0.7" in note for note in result.notes)


@dataclass
class Stored:
    """A batch whose reference a loss without a KL does not read."""

    logps: Tensor
    old_logps: Tensor
    ref_logps: Tensor
    advantages: Tensor
    mask: Tensor


def of_stored(batch: Stored) -> Tensor:
    loss = _surrogate((batch.logps - batch.old_logps).exp(), batch.advantages)
    return (loss * batch.mask).sum() / batch.mask.sum()


def of_stored_unclipped(batch: Stored) -> Tensor:
    loss = -(batch.logps - batch.old_logps).exp() * batch.advantages
    return (loss * batch.mask).sum() / batch.mask.sum()


def test_a_reference_that_is_stored_and_not_read() -> None:
    assert rl_sentinel.check(of_stored, laws=["REF001"], **_LOSS).ok
    wrong = rl_sentinel.check(
        of_stored_unclipped, laws=["REF001"], numbers={"clip_low": 0.2, "clip_high": 0.2}, **_LOSS
    )
    assert [f.code for f in wrong.faults] == ["REF001"]


def unread_configuration(logps: Tensor, ref_logps: Tensor, mask: Tensor, settings: Any) -> Tensor:
    gap = ref_logps - logps
    return (gap.exp() - gap - 1) * mask


def read_configuration(logps: Tensor, ref_logps: Tensor, mask: Tensor, settings: Any) -> Tensor:
    gap: Tensor = settings(ref_logps - logps)
    return gap * mask


def test_a_parameter_that_is_not_read_needs_no_binding() -> None:
    assert rl_sentinel.check(unread_configuration, stage="kl", algorithm="k3", laws=["REF001"], budget=2).ok
    with pytest.raises(InputError, match="settings"):
        rl_sentinel.check(read_configuration, stage="kl", algorithm="k3", budget=2)


def limited(rewards: Tensor, group_ids: Tensor) -> Tensor:
    same = (group_ids.unsqueeze(1) == group_ids.unsqueeze(0)).float()
    mean = same @ rewards / same.sum(1)
    deviation = ((same * (rewards.unsqueeze(0) - mean.unsqueeze(1)) ** 2).sum(1) / same.sum(1)).sqrt()
    return ((rewards - mean) / (deviation + 1e-6)).clamp(-3, 3)


def test_a_limit_on_advantages_is_found() -> None:
    assert "REF001" in {f.code for f in rl_sentinel.check(limited, laws=["REF001"], **_ADVANTAGE).faults}


def unset_ranges(  # noqa: PLR0913 - columns and three numbers
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    mask: Tensor,
    cliprange: float | None = None,
    cliprange_low: float | None = None,
    cliprange_high: float | None = None,
) -> Tensor:
    low, high = cliprange_low or cliprange, cliprange_high or cliprange
    assert low is not None
    assert high is not None
    ratio = (logps - old_logps).exp()
    loss = -torch.min(ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages)
    return (loss * mask).sum() / mask.sum()


def test_clip_ranges_that_are_all_none_are_set() -> None:
    assert rl_sentinel.check(unset_ranges, laws=["REF001"], **_LOSS).ok


def without_upper_bound(
    logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor, clip_high: float = 0.2
) -> Tensor:
    ratio = (logps - old_logps).exp()
    loss = -torch.min(ratio * advantages, ratio.clamp(min=0.8) * advantages)
    return (loss * mask).sum() / mask.sum()


def test_a_bound_that_is_not_applied_is_found() -> None:
    result = rl_sentinel.check(without_upper_bound, numbers={"clip_low": 0.2}, **_LOSS)
    assert "REF001" in {finding.code for finding in result.findings}
    assert "the function does not read its parameter clip_high" in result.notes


def without_lower_bound(
    logps: Tensor, old_logps: Tensor, ref_logps: Tensor, advantages: Tensor, mask: Tensor
) -> Tensor:
    ratio, gap = (logps - old_logps).exp(), ref_logps - logps
    loss = -torch.min(ratio * advantages, ratio.clamp(max=1.25) * advantages) + 0.03 * (gap.exp() - gap - 1)
    return (loss * mask).sum() / mask.sum()


@pytest.mark.slow
def test_a_weight_is_not_taken_for_a_bound_of_the_clip_range() -> None:
    """A ratio is hardly ever below 0.03, so a lower bound of 1 - 0.97 fits a loss that has none."""
    options = {**_LOSS, "numbers": {"clip_high": 0.25}, "claims": {"aggregation": "token-mean", "kl": "k3"}}
    result = rl_sentinel.check(without_lower_bound, **options)
    assert "which needs clip_low: state" in " ".join(str(result).split())
    options["numbers"] |= {"clip_low": 0.2, "kl_loss_coef": 0.03}
    assert {f.code for f in rl_sentinel.check(without_lower_bound, **options).faults} == {"REF001"}


K = Annotated[Tensor, "K"]
KT = Annotated[Tensor, "K T"]


def of_one_prompt(logps: KT, old_logps: KT, advantages: K, mask: KT) -> Tensor:
    assert advantages.ndim == 1
    loss = _surrogate((logps - old_logps).exp(), advantages.unsqueeze(1))
    return (loss * mask).sum() / mask.sum()


def of_one_prompt_unmasked(logps: KT, old_logps: KT, advantages: K, mask: KT) -> Tensor:
    loss = _surrogate((logps - old_logps).exp(), advantages.unsqueeze(1))
    return loss.sum() / mask.sum()


def of_one_prompt_by_docstring(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """Loss of one prompt; logps, old_logps, mask: [K, T]; advantages: [K]."""
    return of_one_prompt(logps, old_logps, advantages, mask)


def of_one_prompt_plain(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    return of_one_prompt(logps, old_logps, advantages, mask)


@pytest.mark.parametrize(
    ("function", "bind", "sound"),
    [
        (of_one_prompt, {}, True),
        (of_one_prompt_unmasked, {}, False),
        (of_one_prompt_by_docstring, {}, True),
        (of_one_prompt_plain, {"advantages": "advantage[K]"}, True),
        (of_one_prompt_plain, {"advantages": "advantage[K list]"}, None),
    ],
)
def test_advantages_of_the_responses_of_one_prompt(function: Any, bind: dict[str, str], *, sound: bool | None) -> None:
    """A loss that is called once per prompt gets one number per response, as stated; a list has no ``ndim``."""
    result = rl_sentinel.check(function, bind=bind, **_LOSS)
    judged = {v.outcome for v in result.verdicts} & {"holds", "broken"}
    assert result.ok is (sound is True)
    assert bool(judged) is (sound is not None)
    assert not any("number of axes" in note for note in result.notes)


@dataclass
class Held:
    """Columns of which an advantage reads two."""

    rewards: Tensor
    group_ids: Tensor
    logprobs: Tensor
    ref_logprobs: Tensor


def of_floats(held: Held) -> Tensor:
    """It refuses float64, since the weights are float32."""
    same = (held.group_ids[:, None] == held.group_ids[None]).float()
    mean = same @ held.rewards / same.sum(dim=1)
    deviation = (same @ (held.rewards - mean).square() / same.sum(dim=1)).sqrt()
    return (held.rewards - mean) / (deviation + 1e-6)


def test_a_type_that_is_refused_inside_an_object_is_no_error() -> None:
    """As for plain parameters: the law on low precision does not apply."""
    result = rl_sentinel.check(of_floats, stage="advantage", algorithm="grpo", laws=["DTP001", "GRP001"], budget=4)
    assert result.ok
    assert {v.law: v.outcome for v in result.verdicts}["DTP001"] == "not-applicable"
    assert not any("KL" in note for note in result.notes)  # it ignores the reference that the object holds
