"""A fake data-parallel wrapper of TRL's models: ranks share a gradient only if the wrapper's forward pass runs."""

from typing import Any

from torch import Tensor

from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims

#: Setting: whether the model is wrapped; a law also runs the step with a wrapper.
WRAPPED: Settings = {"wrapped": False}

#: The claim about this setting.
SHARES: Claims = claims(
    "torch, DistributedDataParallel.forward: it prepares the reducer that averages gradients over the ranks in "
    "backward; accelerate's prepare wraps the model that training_step passes on",
    inert={"wrapped": (False, True)},
)

REACH = "more than one rank"


class ModelWrapper:
    """A fake DistributedDataParallel: it stores the model in ``module`` and counts forward passes."""

    training = True

    def __init__(self, module: Any) -> None:  # noqa: ANN401 - a fake model
        """Wrap the model."""
        self.module = module
        self.passes = 0

    def __call__(self, *arguments: Any, **inputs: Any) -> Any:  # noqa: ANN401 - as a module
        """The model's forward pass."""
        self.passes += 1
        return self.module.forward(*arguments, **inputs)

    def train(self) -> None:
        """Do nothing: the wrapper is always in training mode."""

    def shared(self, loss: Tensor) -> Tensor:
        """The part of the loss whose gradient reaches other ranks: all of it after a wrapped forward pass, else 0."""
        return loss if self.passes else 0 * loss


def unwrapped(model: Any, **_options: object) -> Any:  # noqa: ANN401 - as accelerate's
    """The model in the wrapper, or the model itself."""
    return getattr(model, "module", model)
