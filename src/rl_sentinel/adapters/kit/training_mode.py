"""The outputs of fake models in training mode, in which dropout changes the numbers of a pass without gradients."""

import torch
from torch import Tensor


def outputs_in_mode(outputs: Tensor, *, training: bool) -> Tensor:
    """Outputs ``[..., K]`` of a fake model; in a pass without gradients in training mode, other numbers.

    A pass with gradients returns the outputs in both modes, because an update may use dropout.

    Example:
        >>> import torch
        >>> from rl_sentinel.adapters.kit.training_mode import outputs_in_mode
        >>> with torch.no_grad():
        ...     outputs_in_mode(torch.zeros(2), training=False), outputs_in_mode(torch.zeros(2), training=True)
        (tensor([0., 0.]), tensor([1., 2.]))
    """
    if torch.is_grad_enabled() or not training:
        return outputs
    return outputs + torch.arange(1.0, outputs.shape[-1] + 1, dtype=outputs.dtype)
