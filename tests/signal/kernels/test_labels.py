"""Numbers of groups, dense labels or not."""

import pytest
import torch

from rl_sentinel.signal.kernels import labels


@pytest.mark.parametrize("group", [[7, 5, 7, 6], [2**40, -3, 2**40], [9, 1, 500], []])
def test_places_of_groups(group: list[int]) -> None:
    found = labels.places(torch.tensor(group, dtype=torch.long)).tolist()
    assert [[a == b for a in group] for b in group] == [[a == b for a in found] for b in found]
    assert all(0 <= n < len(group) for n in found)
