"""Log-probs from hidden states in blocks are those of the logits, in value and gradient, for any size of the blocks."""

import pytest
import torch
from torch import Tensor

from rl_sentinel.signal.kernels import projection, sizes
from rl_sentinel.signal.logprob import (
    logprobs_and_entropy,
    logprobs_and_entropy_from_hidden,
    logprobs_from_hidden,
    squared_probabilities_from_hidden,
)

MASK = torch.tensor([[True, False, True], [True, True, True]])


@pytest.fixture(autouse=True, params=[(14, 2), (1, 1), (20, 100), (10**6, 4)])
def _blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few words and rows, of one logit, of one row of words, and a single block of words."""
    monkeypatch.setattr(sizes, "PROJECTED", 0)
    monkeypatch.setattr(sizes, "LOGITS_CPU", request.param[0])
    monkeypatch.setattr(sizes, "PROJECTED_ROWS", request.param[1])


def _drawn(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    source = torch.Generator().manual_seed(5)
    hidden, weight = (
        (2 * torch.randn(*shape, generator=source, dtype=torch.float64)).to(dtype).requires_grad_()
        for shape in ((2, 3, 4), (7, 4))
    )
    return hidden, weight, torch.randint(7, (2, 3), generator=source)


@pytest.mark.parametrize("mask", [MASK, torch.ones(2, 3).bool(), torch.zeros(2, 3).bool()])
@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_equal_to_the_version_with_logits(mask: Tensor, temperature: float) -> None:
    hidden, weight, token = _drawn()
    found = logprobs_and_entropy_from_hidden(hidden, weight, token, mask=mask, temperature=temperature)
    expected = logprobs_and_entropy(hidden @ weight.t(), token, mask=mask, temperature=temperature)
    share = torch.randn(2, 2, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    slopes = [
        torch.autograd.grad((torch.stack(both) * share).sum(), (hidden, weight), retain_graph=True)
        for both in (found, expected)
    ]
    torch.testing.assert_close((found, slopes[0]), (expected, slopes[1]), atol=1e-10, rtol=1e-10)
    alone = logprobs_from_hidden(hidden, weight, token, mask=mask, temperature=temperature)
    torch.testing.assert_close(alone, found[0], atol=1e-12, rtol=1e-12)
    squares = squared_probabilities_from_hidden(hidden, weight, mask=mask, temperature=temperature)
    plain = torch.softmax(hidden @ weight.t() / temperature, dim=2).square().sum(2) * mask
    torch.testing.assert_close(squares, plain.detach(), atol=1e-12, rtol=1e-12)


@pytest.mark.slow
def test_first_and_second_derivatives() -> None:
    hidden, weight, token = _drawn()

    def both(hidden: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        return logprobs_and_entropy_from_hidden(hidden, weight, token, mask=MASK, temperature=0.7)

    assert torch.autograd.gradcheck(both, (hidden, weight))
    assert torch.autograd.gradgradcheck(both, (hidden, weight))


def test_only_the_wanted_gradient_is_computed() -> None:
    """A frozen head, as with LoRA, and a frozen model below a head that trains."""
    hidden, weight, token = _drawn()
    both = [
        logprobs_from_hidden(h, w, token, mask=MASK, temperature=1.0).sum()
        for h, w in ((hidden, weight), (hidden, weight.detach()), (hidden.detach(), weight))
    ]
    whole = torch.autograd.grad(both[0], (hidden, weight))
    torch.testing.assert_close(torch.autograd.grad(both[1], hidden, retain_graph=True)[0], whole[0])
    torch.testing.assert_close(torch.autograd.grad(both[2], weight, retain_graph=True)[0], whole[1])
    # The backward pass of a second derivative is a computation of its own.
    torch.testing.assert_close(torch.autograd.grad(both[1], hidden, create_graph=True)[0], whole[0])
    torch.testing.assert_close(torch.autograd.grad(both[2], weight, create_graph=True)[0], whole[1])


def test_large_logits_stay_finite() -> None:
    """Sums are taken below the running maximum: logits of thousands, rising from block to block."""
    hidden, weight = torch.tensor([[1e4]], requires_grad=True), torch.arange(7.0).unsqueeze(1)
    one = torch.tensor([True])
    both = logprobs_and_entropy_from_hidden(hidden, weight, torch.tensor([6]), mask=one, temperature=1.0)
    assert [x.item() for x in both] == [0.0, 0.0]
    assert torch.autograd.grad(sum(both), hidden)[0].item() == 0.0  # type: ignore[arg-type]  # two tensors


def test_low_precision_is_summed_wide() -> None:
    hidden, weight, token = _drawn(torch.bfloat16)
    found = logprobs_from_hidden(hidden, weight, token, mask=MASK, temperature=1.0)
    assert found.dtype == torch.float32
    narrow = logprobs_and_entropy(hidden @ weight.t(), token, mask=MASK, temperature=1.0)[0]
    torch.testing.assert_close(found, narrow)
    slopes = torch.autograd.grad(found.sum(), (hidden, weight))
    assert [s.dtype for s in slopes] == [torch.bfloat16] * 2
    wide = logprobs_from_hidden(hidden.double(), weight.double(), token, mask=MASK, temperature=1.0)
    expected = torch.autograd.grad(wide.sum(), (hidden, weight))
    torch.testing.assert_close(slopes, expected, atol=0.05, rtol=0.05)


def test_autocast_multiplies_in_its_dtype() -> None:
    hidden, weight, token = _drawn(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found = logprobs_from_hidden(hidden, weight, token, mask=MASK, temperature=1.0)
    narrow = (hidden.bfloat16() @ weight.bfloat16().t()).float()
    torch.testing.assert_close(found, logprobs_and_entropy(narrow, token, mask=MASK, temperature=1.0)[0])
    assert torch.autograd.grad(found.sum(), weight)[0].dtype == torch.float32


def test_autocast_leaves_float64() -> None:
    """As torch's product does."""
    hidden, weight, token = _drawn(torch.float64)
    with torch.autocast("cpu", torch.bfloat16):
        assert (hidden @ weight.t()).dtype == torch.float64
        found = logprobs_from_hidden(hidden, weight, token, mask=MASK, temperature=1.0)
    torch.testing.assert_close(found, logprobs_from_hidden(hidden, weight, token, mask=MASK, temperature=1.0))


def test_all_is_made_on_the_device_of_the_columns() -> None:
    """Elementwise operations refuse to mix the CPU with the meta device."""
    hidden, weight, token = (x.detach().to("meta") for x in _drawn())
    columns = projection.Columns(hidden.reshape(6, 4), weight, token.reshape(6), 1.0)

    def unused(*_: object) -> tuple[Tensor, Tensor]:
        raise AssertionError

    for found in (*projection.from_hidden(columns, unused, entropy=True), projection.squares(columns)):
        assert found.device.type == "meta"
