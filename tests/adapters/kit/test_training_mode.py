"""The outputs of fake models in training mode."""

import pytest
import torch

from rl_sentinel.adapters.kit.training_mode import outputs_in_mode


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_only_training_mode_without_gradients_changes_outputs(gradients: bool, training: bool) -> None:
    """The outputs change if the model is in training mode in a pass without gradients, and else they do not."""
    outputs = torch.tensor([[0.5, 1.0]])
    with torch.set_grad_enabled(gradients):
        seen = outputs_in_mode(outputs, training=training)
    assert torch.equal(seen, outputs) is (gradients or not training)
    assert not torch.equal(seen.softmax(-1), outputs.softmax(-1)) or gradients or not training
