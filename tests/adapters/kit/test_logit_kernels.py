"""Adapters for functions of logits, on torch's own log-softmax."""

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.logit_kernels import (
    CustomLayer,
    OneRank,
    gradient_at_token,
    no_compile,
    with_flat_logits,
    with_full_sequence,
)

LOGITS = torch.tensor([[[0.0, 1.0, 2.0], [1.0, -1.0, 0.5]], [[3.0, 0.0, 0.0], [0.0, 0.0, 0.0]]])
TOKENS = torch.tensor([[2, 0], [1, 1]])


def entropy(logits: Tensor) -> Tensor:
    logprobs = logits.log_softmax(-1)
    return -(logprobs.exp() * logprobs).sum(-1)


def logprob(logits: Tensor, tokens: Tensor) -> Tensor:
    return logits.log_softmax(-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


def of_flat_logits(logits: Tensor) -> Tensor:
    assert logits.dim() == 2
    return entropy(logits)


def shifted_logprob(logits: Tensor, tokens: Tensor) -> Tensor:
    return logprob(logits[:, :-1], tokens[:, 1:])


def test_flat_logits_give_the_numbers_of_each_row() -> None:
    torch.testing.assert_close(with_flat_logits(of_flat_logits, LOGITS), entropy(LOGITS))


def test_a_function_that_shifts_sees_a_prompt_of_one_token() -> None:
    sequence = torch.cat([torch.tensor([[0], [0]]), TOKENS], 1)
    torch.testing.assert_close(with_full_sequence(shifted_logprob, LOGITS, sequence), logprob(LOGITS, TOKENS))


def test_gradient_is_that_of_the_tokens_logit() -> None:
    seen = gradient_at_token(lambda logits: logprob(logits, TOKENS), LOGITS, TOKENS)
    torch.testing.assert_close(seen, 1 - logprob(LOGITS, TOKENS).exp())
    assert LOGITS.grad is None


def test_a_function_that_changes_its_logits_in_place_changes_a_copy() -> None:
    before = LOGITS.clone()
    gradient_at_token(lambda logits: entropy(logits.div_(2.0)), LOGITS, TOKENS)
    assert torch.equal(LOGITS, before)


def test_logits_without_an_effect_have_no_gradient() -> None:
    seen = gradient_at_token(lambda logits: logits * 0.0, LOGITS, TOKENS)
    assert torch.equal(seen, torch.zeros(2, 2))
    detached = gradient_at_token(lambda logits: logits.detach().requires_grad_(), LOGITS, TOKENS)
    assert torch.equal(detached, torch.zeros(2, 2))


def test_the_custom_layer_is_the_identity() -> None:
    states = LOGITS.clone().requires_grad_()
    out = CustomLayer.apply(states)  # type: ignore[no-untyped-call]  # torch's
    assert torch.equal(out, LOGITS)
    (gradient,) = torch.autograd.grad((out * LOGITS).sum(), states)
    assert torch.equal(gradient, LOGITS)
    assert out._is_view()


def test_compiling_does_nothing() -> None:
    assert no_compile(dynamic=True)(entropy) is entropy


def test_the_tensor_parallel_group_is_this_process() -> None:
    group = OneRank.get_tensor_model_parallel_group()
    assert (group.size(), group.rank()) == (1, 0)
