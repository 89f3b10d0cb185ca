"""Log-probs and entropy, by formula and by kernel, against torch's softmax in float64."""

import pytest
import torch
from torch import Tensor

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.kernels import sizes
from rl_sentinel.signal.logprob import logprobs, logprobs_and_entropy, logprobs_from_hidden

MASK = torch.tensor([[True, False, True], [True, True, True]])


@pytest.fixture(autouse=True, params=["formula", "kernel"])
def _version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test runs on the formula, and on the kernel in blocks of two rows of seven logits."""
    monkeypatch.setattr(sizes, "LOGITS", 0 if request.param == "kernel" else 2**14)
    monkeypatch.setattr(sizes, "LOGITS_CPU", 14)


def _drawn(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(5)
    logits = (3 * torch.randn(2, 3, 7, generator=source, dtype=torch.float64)).to(dtype)
    return logits, torch.randint(7, (2, 3), generator=source)


@pytest.mark.parametrize("mask", [MASK, torch.ones(2, 3).bool(), torch.zeros(2, 3).bool()])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_equals_softmax(mask: Tensor, temperature: float) -> None:
    """Both numbers are those of the softmax on the mask and 0 elsewhere, where logits may be anything."""
    logits, token = _drawn()
    dirty = torch.where(mask.unsqueeze(2), logits, torch.nan)
    chosen, entropy = logprobs_and_entropy(dirty, token, mask=mask, temperature=temperature)
    plain = torch.log_softmax(logits / temperature, dim=2)
    zero = torch.zeros(2, 3, dtype=torch.float64)
    torch.testing.assert_close(chosen, torch.where(mask, plain.gather(2, token.unsqueeze(2)).squeeze(2), zero))
    torch.testing.assert_close(entropy, torch.where(mask, -(plain.exp() * plain).sum(2), zero))
    assert torch.equal(chosen, logprobs(dirty, token, mask=mask, temperature=temperature))


def test_gradients() -> None:
    """Both gradients agree with differences, and are 0 at logits that are not wanted."""
    logits, token = _drawn()
    logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: logprobs_and_entropy(x, token, mask=MASK, temperature=0.7), logits)
    assert torch.autograd.gradcheck(lambda x: logprobs(x, token, mask=MASK, temperature=0.7), logits)
    (found,) = torch.autograd.grad(logprobs(logits, token, mask=MASK, temperature=1.0).sum(), logits)
    assert found[0, 1].tolist() == [0.0] * 7


def test_excluded_token() -> None:
    logits = torch.tensor([[0.0, 0.0, -torch.inf]], requires_grad=True)
    one = torch.tensor([True])
    chosen, entropy = logprobs_and_entropy(logits, torch.tensor([1]), mask=one, temperature=1.0)
    torch.testing.assert_close(entropy, torch.tensor([2.0]).log())
    (found,) = torch.autograd.grad((chosen + entropy).sum(), logits)
    torch.testing.assert_close(found, torch.tensor([[-0.5, 0.5, 0.0]]))


def test_low_precision_is_summed_wide() -> None:
    """Logits in bfloat16 give log-probs in float32, those of the same logits made wide."""
    logits, token = _drawn(torch.bfloat16)
    narrow = logprobs(logits, token, mask=MASK, temperature=1.0)
    assert narrow.dtype == torch.float32
    torch.testing.assert_close(narrow, logprobs(logits.float(), token, mask=MASK, temperature=1.0))


def test_bad_input_is_named() -> None:
    """A temperature of 0, a token outside the vocabulary, shapes that disagree."""
    logits, token = _drawn()
    with pytest.raises(ValueError, match=r"temperature is 0, expected a number above 0"):
        logprobs(logits, token, mask=MASK, temperature=0)
    outside = token.clone()
    outside[1, 2] = 7
    with pytest.raises(ValueError, match=r"token\[1, 2\] is 7, expected 0 to 6: an index into the vocabulary"):
        logprobs(logits, outside, mask=MASK, temperature=1.0)
    outside[1, 2], outside[0, 1] = 0, -100
    assert logprobs(logits, outside, mask=MASK, temperature=1.0).isfinite().all()
    with pytest.raises(ValueError, match=r"^weight has shape \[10, 9\], expected \[V, D\] with D = 7, as in hidden$"):
        logprobs_from_hidden(logits, torch.zeros(10, 9).double(), token, mask=MASK, temperature=1.0)


def test_second_derivatives() -> None:
    logits, token = _drawn()
    leaf = logits.clone().requires_grad_()

    def both(x: Tensor) -> Tensor:
        chosen, spread = logprobs_and_entropy(x, token, mask=MASK, temperature=0.7)
        return chosen.square().sum() + spread.square().sum()

    assert torch.autograd.gradgradcheck(both, leaf)
    torch.testing.assert_close(torch.func.grad(both)(logits), torch.autograd.grad(both(leaf), leaf)[0])


def test_no_vocabulary_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^logits have shape \[2, 0\], expected \[\.\., V\] with V of 1 or more"):
        logprobs(torch.zeros(2, 0), torch.zeros(2).long(), mask=torch.zeros(2).bool(), temperature=1.0)


def test_a_vocabulary_of_one_token_has_probability_1() -> None:
    hidden, mask = torch.ones(1, 2, 3), torch.ones(1, 2).bool()
    found = logprobs_from_hidden(hidden, torch.ones(1, 3), torch.zeros(1, 2).long(), mask=mask, temperature=1.0)
    assert found.tolist() == [[0, 0]]
    with pytest.raises(InputError, match=r"expected \[V, D\] with V of 1 or more"):
        logprobs_from_hidden(hidden, torch.ones(0, 3), torch.zeros(1, 2).long(), mask=mask, temperature=1.0)
