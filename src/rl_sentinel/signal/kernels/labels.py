"""Group numbers without sorting, for dense labels."""

import torch
from torch import Tensor


def places(group: Tensor) -> Tensor:
    """A number below the number of rows for each group, at each of its rows; ``torch.unique`` without its sort.

    The fast path reads two numbers, so it is for a CPU; on other devices that would wait for the device.
    """
    label = group.long()
    if len(label) and label.device.type == "cpu":
        low, high = torch.aminmax(label)
        if int(high) - int(low) < len(label):
            return label - low
    place: Tensor = torch.unique(label, return_inverse=True)[1]
    return place
