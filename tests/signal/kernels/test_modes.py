"""The modes that follow plain operations only."""

import pytest
import torch

from rl_sentinel.signal.kernels.modes import traced


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own forward mode uses it
def test_functions_of_torch_func_are_traced() -> None:
    one = torch.ones(2)
    assert not traced(one.requires_grad_())
    assert torch.func.grad(lambda x: x.sum() * traced(x))(one.detach()).tolist() == [1.0, 1.0]
    assert torch.func.jvp(lambda x: x * traced(x), (one.detach(),), (one.detach(),))[1].tolist() == [1.0, 1.0]
