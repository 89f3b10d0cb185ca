"""Values that are 0 at untrained tokens."""

import torch

from rl_sentinel.adapters.kit.bind_text import codec_of
from rl_sentinel.adapters.kit.masked_value import MaskedValue, is_zero_off_mask, zero_off_mask
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.codec import Inputs
from rl_sentinel.search.filled_batch import filled


def _batch(mask: list[int], value: list[float]) -> Batch:
    return filled([mask], reward=[0], group=[0], value=torch.tensor([value]))


def test_values_of_untrained_tokens_are_set_to_zero_once() -> None:
    batch = _batch([1, 0, 1], [1.0, 2.0, 3.0])
    assert is_zero_off_mask(Inputs(batch)) == "an untrained token has a value other than 0"
    zeroed = zero_off_mask(batch)
    assert zeroed.value.tolist() == [[1, 0, 3]]
    assert is_zero_off_mask(Inputs(zeroed)) == ""
    assert zero_off_mask(zeroed) is zeroed


def test_a_value_that_is_not_finite_off_the_mask_is_replaced() -> None:
    batch = _batch([1, 0], [1.0, float("nan")])
    assert zero_off_mask(batch).value.tolist() == [[1, 0]]


def test_the_word_binds_the_column() -> None:
    codec = codec_of("masked_value")
    assert codec == MaskedValue()
    batch = _batch([1, 1], [1.0, 2.0])
    assert torch.equal(codec.put(Inputs(batch)), batch.value)
