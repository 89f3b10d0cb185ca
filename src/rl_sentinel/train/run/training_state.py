"""What a run is at a step: everything that a checkpoint holds, and what goes on from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.signal.controller import Adaptive, Fixed
from rl_sentinel.train.config.recipe import Divergence, Recipe, Update
from rl_sentinel.train.model.policy import Policy
from rl_sentinel.train.update.critic import Critic


@dataclass(slots=True)
class State:
    """The policy, its optimizer, how many steps were done, the price of the KL, and the critic, if any.

    Random numbers need no place here: they depend on the step alone (``chance``), and so do the tasks.
    """

    policy: Policy
    optimizer: torch.optim.Optimizer
    step: int
    controller: Adaptive | Fixed
    critic: Critic | None = None

    @classmethod
    def first(cls, recipe: Recipe, policy: Policy, critic: Critic | None = None) -> Self:
        """Before the first step."""
        return cls(policy, optimized(policy, recipe.update), 0, priced(recipe.kl), critic)

    def told(self, mark: Mapping[str, Any]) -> dict[str, Any]:
        """For a checkpoint, in one piece on the first rank, however many there are; all must ask.

        ``mark`` says where the metrics stand.
        """
        from torch.distributed.checkpoint import state_dict as gathering  # noqa: PLC0415 - slow to import

        whole = gathering.StateDictOptions(full_state_dict=True, cpu_offload=True)
        weights, moments = gathering.get_state_dict(self.policy.model, self.optimizer, options=whole)
        critic = None
        if self.critic is not None:
            critic = [self.critic.model.state_dict(), self.critic.optimizer.state_dict()]
        return {
            "step": self.step,
            "critic": critic,
            "coefficient": self.controller.coefficient,
            "weights": weights,
            "optimizer": moments,
            "mark": dict(mark),
        }

    def restore(self, recipe: Recipe, found: Mapping[str, Any]) -> None:
        """Go on from a checkpoint.

        Raises:
            SentinelError: if it is another model's.
        """
        from torch.distributed.checkpoint import state_dict as gathering  # noqa: PLC0415 - slow to import

        try:
            parts = {"model_state_dict": found["weights"], "optim_state_dict": found["optimizer"]}
            whole = gathering.StateDictOptions(full_state_dict=True)
            gathering.set_state_dict(self.policy.model, self.optimizer, options=whole, **parts)
            if self.critic is not None:
                self.critic.model.load_state_dict(found["critic"][0])
                self.critic.optimizer.load_state_dict(found["critic"][1])
            self.step = int(found["step"])
            self.controller = priced(recipe.kl, coefficient=float(found["coefficient"]))
        except (KeyError, ValueError, RuntimeError, TypeError) as error:
            words = str(error).partition("\n")[0]
            raise SentinelError(
                f"checkpoint does not fit the recipe ({words}): name another folder with out=DIR"
            ) from error


def optimized(policy: Policy, how: Update) -> torch.optim.Optimizer:
    """The optimizer of a policy's weights."""
    return torch.optim.AdamW(policy.model.parameters(), lr=how.rate, betas=how.betas, weight_decay=how.decay)


def priced(kl: Divergence | None, *, coefficient: float | None = None) -> Adaptive | Fixed:
    """What sets the price of the KL: fixed, or steered where the recipe has a target.

    Example:
        >>> from rl_sentinel.train.config.recipe import Divergence
        >>> from rl_sentinel.train.run.training_state import priced
        >>> priced(Divergence(reward=0.1)), priced(None)
        (Fixed(coefficient=0.1), Fixed(coefficient=0.0))
    """
    if kl is None:
        return Fixed(0.0)
    start = (kl.reward or kl.loss) if coefficient is None else coefficient
    if kl.target is None or kl.horizon is None:
        return Fixed(start)
    return Adaptive(start, target=kl.target, horizon=kl.horizon)
