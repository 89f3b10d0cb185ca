"""The state of a run that a checkpoint saves and restores."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Self

import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.phrasing import reason_of
from rl_sentinel.signal.controller import Adaptive, Fixed
from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.config.settings import KLSettings
from rl_sentinel.train.model.policy import Policy
from rl_sentinel.train.run.sharded_state import collect_shards, load_shards
from rl_sentinel.train.update.critic import Critic
from rl_sentinel.train.update.optimizer_step import build_optimizer


@dataclass(slots=True)
class TrainingState:
    """The policy, its optimizer, the number of steps done, the KL controller, the critic, and the best evaluation.

    ``critic`` is None if the recipe has no critic; ``best`` is None before the first evaluation. Random numbers and
    tasks depend on the step only (``rng``), so they are not stored.
    """

    policy: Policy
    optimizer: torch.optim.Optimizer
    step: int
    controller: Adaptive | Fixed
    critic: Critic | None = None
    best: float | None = None

    @classmethod
    def initial(cls, recipe: Recipe, policy: Policy, critic: Critic | None = None) -> Self:
        """The state before the first step."""
        return cls(policy, build_optimizer(policy, recipe.update), 0, build_kl_controller(recipe.kl), critic)

    def for_checkpoint(
        self, position: Mapping[str, Any], *, sharded: bool = False, copy: bool = False
    ) -> dict[str, Any]:
        """The state for any number of ranks; with ``sharded`` without the policy's weights and moments.

        ``position`` is the position of the journal. With ``copy``, no tensor shares memory with tensors that training
        changes.
        """
        critic = None
        if self.critic is not None:
            critic = [self.critic.model.state_dict(), self.critic.optimizer.state_dict()]
        state = {
            "step": self.step,
            "best": self.best,
            "critic": critic,
            "coefficient": self.controller.coefficient,
            "mark": dict(position),
        }
        state = deepcopy(state) if copy else state
        if sharded:
            return state
        from torch.distributed.checkpoint import state_dict as dcp  # noqa: PLC0415 - slow to import

        full = dcp.StateDictOptions(full_state_dict=True, cpu_offload=True)
        weights, moments = dcp.get_state_dict(self.policy.model, self.optimizer, options=full)
        whole = {"weights": weights, "optimizer": moments}
        return state | (deepcopy(whole) if copy else whole)

    def restore(self, recipe: Recipe, saved: Mapping[str, Any]) -> None:
        """Restore a checkpoint; if it has shards, each rank reads a part of them. Call it on all ranks.

        Raises:
            SentinelError: if the checkpoint belongs to another model.
        """
        from torch.distributed.checkpoint import state_dict as dcp  # noqa: PLC0415 - slow to import

        try:
            if "shards" in saved:
                load_shards(saved["shards"], collect_shards(self.policy.model, self.optimizer))
            else:
                parts = {"model_state_dict": saved["weights"], "optim_state_dict": saved["optimizer"]}
                full = dcp.StateDictOptions(full_state_dict=True)
                dcp.set_state_dict(self.policy.model, self.optimizer, options=full, **parts)
            for group in self.optimizer.param_groups:  # torch's restore makes a list of it
                group["betas"] = tuple(group["betas"])
            if self.critic is not None:
                self.critic.model.load_state_dict(saved["critic"][0])
                self.critic.optimizer.load_state_dict(saved["critic"][1])
            self.step, self.best = int(saved["step"]), saved.get("best")
            self.controller = build_kl_controller(recipe.kl, coefficient=float(saved["coefficient"]))
        except (KeyError, ValueError, RuntimeError, TypeError) as error:
            raise SentinelError(
                f"checkpoint in {recipe.out} cannot be restored ({reason_of(error)}), expected weights and "
                "moments of the recipe's model: name another folder with out=DIR"
            ) from error


def build_kl_controller(kl: KLSettings | None, *, coefficient: float | None = None) -> Adaptive | Fixed:
    """The controller of the KL coefficient: fixed, or adaptive if the recipe has a target."""
    if kl is None:
        return Fixed(0.0)
    start = (kl.reward or kl.loss) if coefficient is None else coefficient
    if kl.target is None or kl.horizon is None:
        return Fixed(start)
    return Adaptive(start, target=kl.target, horizon=kl.horizon)
