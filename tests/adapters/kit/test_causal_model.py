"""The fake causal model: its outputs show which tokens a call attended to, and at which positions."""

import torch

from rl_sentinel.adapters.kit.causal_model import (
    NEVER,
    CausalModel,
    model_of,
    prompt_tokens,
    starts_of_positions,
    with_prompt_tokens,
)

ANSWERS = [torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[4.0], [5.0]])]
MODEL = CausalModel([[10, 1, 2], [11, 3]], ANSWERS)


def test_packed_and_padded_calls_get_the_same_outputs() -> None:
    """Left padding does not count as context."""
    packed = MODEL.packed(torch.tensor([10, 1, 2, 11, 3]), torch.tensor([0, 1, 2, 0, 1]), [0, 3])
    assert packed.flatten().tolist() == [1, 2, 3, 4, 5]
    ids, places = torch.tensor([[10, 1, 2], [0, 11, 3]]), torch.tensor([[0, 1, 2], [0, 0, 1]])
    padded = MODEL.padded(ids, places, torch.tensor([[1, 1, 1], [0, 1, 1]]))
    assert padded.squeeze(-1).tolist() == [[1, 2, 3], [0, 4, 5]]


def test_a_wrong_position_changes_the_output() -> None:
    """Positions that go on over the border of two packed sequences."""
    packed = MODEL.packed(torch.tensor([10, 1, 2, 11, 3]), torch.arange(5), [0, 3])
    assert packed.flatten().tolist() == [1, 2, 3, 5, 6]


def test_a_wrong_context_changes_the_output() -> None:
    """Without borders, the second sequence attends to the first; a changed token changes what comes after it."""
    whole = MODEL.packed(torch.tensor([10, 1, 2, 11, 3]), torch.arange(5), [0])
    assert whole.flatten().tolist() == [1, 2, 3, 0, 0]  # longer than the known sequence
    changed = MODEL.packed(torch.tensor([10, 9, 2]), torch.arange(3), [0])
    assert changed.flatten().tolist() == [1, 3, 4]


def test_starts_are_found_from_positions() -> None:
    """A sequence starts at each position 0, and at index 0."""
    assert starts_of_positions(torch.tensor([0, 1, 0, 1, 2])) == [0, 2]
    assert starts_of_positions(torch.tensor([1, 2, 0])) == [0, 2]


def test_the_model_of_columns_returns_each_output_one_position_earlier() -> None:
    """Prompts of one and two tokens; the second response has one token."""
    ids, attended = torch.tensor([[0, 7, 1, 2], [8, 9, 3, 0]]), torch.tensor([[0, 1, 1, 1], [1, 1, 1, 0]])
    columns = torch.tensor([[[0.5], [0.75]], [[-1.0], [-2.0]]])
    model = model_of(ids, attended, 2, columns)
    assert model.sequences == [[7, 1, 2], [8, 9, 3]]
    assert [answer.flatten().tolist() for answer in model.answers] == [[0.5, 0.75, 0.25], [0.25, -1.0, 0.25]]


def test_the_first_token_of_a_prompt_is_unique_and_never_sampled() -> None:
    """It lies outside of the vocabulary, and its logits are low."""
    assert [prompt_tokens(row, 3, 4) for row in (0, 1)] == [[4, 1, 2], [5, 2, 3]]
    wide = with_prompt_tokens(torch.zeros(2, 1, 4))
    assert wide.shape == (2, 1, 6)
    assert set(wide[..., 4:].flatten().tolist()) == {NEVER}
