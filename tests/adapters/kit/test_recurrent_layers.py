"""The fakes of the kernels of recurrent layers."""

import torch

from rl_sentinel.adapters.kit.recurrent_layers import ShortConvolution, as_rows, delta_rule, embedded


def test_delta_rule_by_hand() -> None:
    """A state that does not decay keeps the values of its sequence, and is corrected where a key comes back."""
    key = torch.full((1, 3, 1, 1), 1.0)
    value = torch.tensor([1.0, 2.0, 4.0]).reshape(1, 3, 1, 1)
    zero, k = torch.zeros(1, 3, 1), torch.tensor(1.0).tanh()
    whole, _ = delta_rule(key, key, value, g=zero, beta=zero + 1)
    parts, _ = delta_rule(key, key, value, g=zero, beta=zero + 1, cu_seqlens=torch.tensor([0, 2, 3]))
    first = k * 1
    second = first + k * (2 - first * k)
    assert torch.allclose(whole.flatten()[:2], torch.stack([first, second]))
    assert torch.equal(parts.flatten()[:2], whole.flatten()[:2])
    assert torch.allclose(parts.flatten()[2], k * 4)
    assert not torch.allclose(whole.flatten()[2], k * 4)


def test_convolution_by_hand() -> None:
    x = torch.tensor([1.0, 2.0, 4.0]).reshape(1, 3, 1)
    assert ShortConvolution()(x)[0].flatten().tolist() == [1.0, 2.5, 5.0]
    assert ShortConvolution()(x, cu_seqlens=torch.tensor([0, 1, 3]))[0].flatten().tolist() == [1.0, 2.0, 5.0]


def test_rows() -> None:
    """Packed tokens come back as padded rows."""
    hidden, boundaries = embedded(torch.tensor([[1, 2], [3, 0]]), [2, 1])
    assert (tuple(hidden.shape), boundaries.tolist()) == ((3, 4), [0, 2, 3])
    rows = as_rows(hidden, boundaries, 2)
    assert rows[1, 1] == 0
    assert torch.allclose(rows[0, 1], hidden[1] @ torch.arange(1.0, 5))
