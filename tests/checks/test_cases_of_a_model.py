"""The smallest case of a loss that calls a model is one that a model can answer."""

from typing import Any

import pytest
from torch import Tensor

import rl_sentinel
from rl_sentinel.adapters.kit.sequence_model import uncertain
from rl_sentinel.core.batch import with_columns
from rl_sentinel.search.filled_batch import filled


def _loss(model: Any, inputs: Any, sign: float) -> Any:
    ids, mask = inputs["input_ids"], inputs["completion_mask"]
    logits = model(input_ids=ids, attention_mask=inputs["attention_mask"]).logits[:, :-1]
    every = logits.log_softmax(-1).gather(2, ids[:, 1:].unsqueeze(2)).squeeze(2)
    ours = every[:, -mask.shape[1] :]
    ratio, gap = (ours - inputs["old_logps"]).exp(), inputs["ref_logps"] - ours
    advantages = inputs["advantages"].unsqueeze(1)
    clipped = -sign * Tensor.min(ratio * advantages, ratio.clamp(0.8, 1.28) * advantages)
    return ((clipped + 0.04 * (gap.exp() - gap - 1)) * mask).sum() / mask.sum()


def sound(model: Any, inputs: Any) -> Any:
    """The loss of GRPO."""
    return _loss(model, inputs, 1.0)


def with_wrong_sign(model: Any, inputs: Any) -> Any:
    """Its policy term raised, and not lowered, where the advantage is above 0."""
    return _loss(model, inputs, -1.0)


@pytest.mark.slow
def test_the_case_of_a_fault_is_one_of_a_model() -> None:
    """A log-prob of 0 would need infinite logits: the difference there is the model's own."""
    options: dict[str, Any] = {
        "stage": "policy-loss",
        "algorithm": "grpo",
        "claims": {"aggregation": "token-mean"},
        "numbers": {"clip_low": 0.2, "clip_high": 0.28, "kl_loss_coef": 0.04},
        "laws": ["REF001"],
    }
    assert rl_sentinel.check(sound, **options).ok
    (found,) = rl_sentinel.check(with_wrong_sign, **options).findings
    assert bool((found.case.batch.logprob <= -1e-3).all())
    assert bool((found.case.batch.advantage != 0).any())


def test_certain_tokens_are_lowered() -> None:
    """Other batches are unchanged."""
    batch = filled([[1, 1]], reward=[1], group=[0])
    assert uncertain(batch) is batch
    assert float(uncertain(with_columns(batch, logprob=batch.logprob * 0)).logprob.max()) < 0
