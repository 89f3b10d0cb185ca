"""A double of the data-parallel wrapper of TRL's models: ranks share a gradient only if its forward pass runs."""

from typing import Any

from torch import Tensor

from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims

#: Setting: whether the model is wrapped; the law also asks with a wrapper.
WRAPPED: Settings = {"wrapped": False}

#: What holds for it.
SHARES: Claims = claims(
    "torch, DistributedDataParallel.forward: it prepares the reducer that averages gradients over the ranks in "
    "backward; accelerate's prepare wraps the model that training_step passes on",
    inert={"wrapped": (False, True)},
)

REACH = "more than one rank"


class ModelWrapper:
    """A double of DistributedDataParallel: it has the model in ``module``, and counts its forward passes."""

    training = True

    def __init__(self, module: Any) -> None:  # noqa: ANN401 - a double of a model
        """Wrap a model."""
        self.module = module
        self.passes = 0

    def __call__(self, *arguments: Any, **inputs: Any) -> Any:  # noqa: ANN401 - as a module
        """The model's forward pass."""
        self.passes += 1
        return self.module.forward(*arguments, **inputs)

    def train(self) -> None:
        """Do nothing: it is always in training mode."""

    def shared(self, loss: Tensor) -> Tensor:
        """The loss as other ranks see it: the loss itself after a forward pass of the wrapper, else 0."""
        return loss if self.passes else 0 * loss


def unwrapped(model: Any, **_options: object) -> Any:  # noqa: ANN401 - as accelerate's
    """The model in the wrapper, or the model itself."""
    return getattr(model, "module", model)
