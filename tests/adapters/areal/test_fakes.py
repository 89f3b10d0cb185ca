"""Fakes of AReaL's engine: what the fake model returns, and the losses that are recorded."""

import torch

from rl_sentinel.adapters.areal import fakes
from rl_sentinel.adapters.kit.rank_threads import run_on_ranks


def test_log_probs_of_other_tokens_are_lower() -> None:
    """A label that is not the next token, as after a shift in the wrong direction, changes the log-prob by 1."""
    outputs = torch.tensor([[[-0.5, 0.1, 3.0], [-0.25, 0.2, 4.0], [-1.0, 0.3, 0.0]]])
    log_probs, entropies = fakes.read_outputs(outputs, torch.tensor([[3, 5, 9]]))
    assert log_probs.tolist() == [[-0.5, -1.25, -1.0]]
    assert torch.equal(entropies, outputs[..., 1])


def test_a_recorded_loss_is_the_scaled_one() -> None:
    weight, losses = torch.ones(()).requires_grad_(), list[torch.Tensor]()
    (fakes.RecordedLoss(3 * weight, losses) * 0.5 * torch.tensor(4.0)).backward()
    assert (losses[0].item(), weight.grad) == (6.0, torch.tensor(6.0))
    assert not losses[0].requires_grad


def test_the_model_looks_up_its_outputs_by_position() -> None:
    model = fakes.PlacedModel()
    data = {
        fakes.LOGPROBS: torch.tensor([[-1.0, -2.0], [-3.0, -4.0]]),
        fakes.ENTROPY: torch.zeros(2, 2),
        fakes.LABELS: torch.tensor([[5, 6], [7, 8]]),
        "input_ids": torch.ones(2, 2, dtype=torch.long),
    }
    passed = model.take_columns(data)
    assert set(passed) == {"input_ids", fakes.PLACES}
    packed = {fakes.PLACES: torch.tensor([2, 0]), "input_ids": torch.ones(2)}
    found: list[torch.Tensor] = []
    run_on_ranks(1, lambda _rank: found.append(model(**packed).logits))
    assert found[0].tolist() == [[[-3.0, 0.0, 7.0], [-1.0, 0.0, 5.0]]]


def test_ranks_have_equal_parts_of_a_sequence() -> None:
    """Five positions on two ranks with three each: the last is filled with zero."""
    found: dict[int, list[int]] = {}
    run_on_ranks(2, lambda rank: found.update({rank: fakes.own_part(torch.arange(5) + 1, 3).tolist()}))
    assert found == {0: [1, 2, 3], 1: [4, 5, 0]}
