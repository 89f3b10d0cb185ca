"""Losses that know untrained tokens by a negative id: -100 or -1 in the place of the token."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import rl_sentinel
from rl_sentinel.adapters.kit.ignored_ids import ignored_ids

#: Most tests try all laws on a function.
pytestmark = pytest.mark.slow

_LOSS: dict[str, Any] = {
    "stage": "policy-loss",
    "algorithm": "reinforce",
    "budget": 5,
    "laws": ["REF001", "MSK002", "PAD001"],
}

IGNORE = -100


def _log_probs(logits: Tensor, tokens: Tensor, ignored: int) -> Tensor:
    """0 at ignored tokens."""
    flat = cross_entropy(logits.flatten(0, 1), tokens.flatten(), ignore_index=ignored, reduction="none")
    return -flat.view_as(tokens)


def by_argument(logits: Tensor, targets: Tensor, advantages: Tensor) -> Tensor:
    kept = targets >= 0
    losses = cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1, reduction="none")
    return (losses.view_as(targets) * advantages).sum() / kept.sum().clamp(min=1)


def by_argument_over_all(logits: Tensor, targets: Tensor, advantages: Tensor) -> Tensor:
    losses = cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1, reduction="none")
    return (losses.view_as(targets) * advantages).sum() / targets.numel()


def by_comparison(logits: Tensor, tokens: Tensor, advantages: Tensor) -> Tensor:
    kept = tokens != -100
    chosen = logits.log_softmax(-1).gather(-1, tokens.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return -(chosen * advantages * kept).sum() / kept.sum().clamp(min=1)


def by_comparison_over_all(logits: Tensor, tokens: Tensor, advantages: Tensor) -> Tensor:
    kept = tokens != -100
    chosen = logits.log_softmax(-1).gather(-1, tokens.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return -(chosen * advantages * kept).mean()


def of_dict(batch: dict[str, Tensor]) -> Tensor:
    logits, own, targets = batch["logits"], batch["advantages"], batch["targets"]
    return -(_log_probs(logits, targets, IGNORE) * own).sum() / targets.ne(IGNORE).sum().clamp(min=1)


def of_dict_over_all(batch: dict[str, Tensor]) -> Tensor:
    logits, own, targets = batch["logits"], batch["advantages"], batch["targets"]
    kept = batch["targets"].ne(IGNORE)
    return -(_log_probs(logits, targets, IGNORE) * own).sum() / kept.numel()


class OfModule(nn.Module):
    """A loss whose ignored id is an attribute."""

    def __init__(self, *, over_all: bool) -> None:
        super().__init__()
        self.over_all, self.ignored = over_all, -1

    def forward(self, logits: Tensor, target_ids: Tensor, advantages: Tensor) -> Tensor:
        kept = target_ids != self.ignored
        lp = _log_probs(logits, target_ids, self.ignored)
        return -(lp * advantages).sum() / (kept.numel() if self.over_all else kept.sum().clamp(min=1))


def shifted(logits: Tensor, targets: Tensor, advantages: Tensor) -> Tensor:
    """Logits and targets of whole sequences."""
    logits, following = logits[:, :-1], targets[:, 1:]
    kept = following != -100
    return -(_log_probs(logits, following, -100) * advantages * kept).sum() / kept.sum().clamp(min=1)


SOUND = [by_argument, by_comparison, of_dict, OfModule(over_all=False), shifted]
FAULTY = [by_argument_over_all, by_comparison_over_all, of_dict_over_all, OfModule(over_all=True)]


@pytest.mark.parametrize("function", SOUND)
def test_untrained_tokens_have_the_id_that_the_loss_ignores(function: Any) -> None:
    result = rl_sentinel.check(function, **_LOSS)
    assert (result.ok, result.findings) == (True, ()), result
    assert not any("no parameter says which tokens are trained" in note for note in result.notes)


@pytest.mark.parametrize("function", FAULTY)
def test_a_mean_over_ignored_tokens_is_a_fault(function: Any) -> None:
    assert rl_sentinel.check(function, **_LOSS).faults


def unmasked(logits: Tensor, targets: Tensor, advantages: Tensor) -> Tensor:
    """Tokens of which all train."""
    chosen = logits.log_softmax(-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    return -(chosen * advantages).mean()


def masked(logits: Tensor, targets: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """A mask, and -1 for something else."""
    chosen = logits.log_softmax(dim=-1).gather(dim=-1, index=targets.unsqueeze(-1)).squeeze(-1)
    signs = torch.where(advantages == -1, -1.0, advantages)
    return -(chosen * signs * mask).sum() / mask.sum()


def of_log_probs(logprobs: Tensor, target_ids: Tensor, advantages: Tensor) -> Tensor:
    kept = target_ids.ne(-1)
    return -torch.where(kept, logprobs * advantages, 0.0).sum() / kept.sum().clamp(min=1)


def of_log_probs_over_all(logprobs: Tensor, target_ids: Tensor, advantages: Tensor) -> Tensor:
    return -torch.where(target_ids.ne(-1), logprobs * advantages, 0.0).sum() / target_ids.numel()


def test_tokens_beside_log_probs_say_which_train_too() -> None:
    assert rl_sentinel.check(of_log_probs, claims={"aggregation": "token-mean"}, **_LOSS).ok
    found = rl_sentinel.check(of_log_probs_over_all, claims={"aggregation": "token-mean"}, **_LOSS)
    assert "REF001" in [one.code for one in found.faults]


def of_a_model(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    logits = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits[:, :-1]
    labels = inputs["labels"][:, 1:]
    kept, log_probs = labels != -100, _log_probs(logits, labels, -100)
    return -torch.where(kept, log_probs * inputs["advantages"].unsqueeze(1), 0.0).sum() / kept.sum().clamp(min=1)


def test_labels_beside_a_model_are_those_of_whole_sequences() -> None:
    assert rl_sentinel.check(of_a_model, claims={"aggregation": "token-mean"}, **_LOSS).ok


def test_other_losses_are_passed_all_tokens() -> None:
    result = rl_sentinel.check(unmasked, **_LOSS)
    assert any("no parameter says which tokens are trained" in note for note in result.notes)
    assert rl_sentinel.check(masked, **_LOSS).ok


def test_the_id_of_a_default_a_global_and_an_attribute() -> None:
    def of_default(targets: Tensor, ignored: int = -7) -> Any:
        return targets[:, 1:] == ignored

    def of_global(batch: Any) -> Any:
        shift = batch.targets[:, 1:].contiguous()
        return shift.ne(IGNORE)

    def of_sign(targets: Tensor) -> Any:
        return targets.flatten() >= 0

    def of_others(targets: Tensor, advantages: Tensor) -> Any:
        return targets * (advantages > 0)

    functions: list[Any] = [of_default, of_global, of_sign, of_others]
    assert [ignored_ids(one, ["targets"]) for one in functions] == [{"targets": x} for x in (-7, -100, -100)] + [{}]
    assert ignored_ids(OfModule(over_all=True).forward, ["target_ids"]) == {"target_ids": -1}
    assert ignored_ids(SimpleNamespace(a=1).__eq__, ["targets"]) == {}
