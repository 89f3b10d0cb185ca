"""Fakes for SkyRL's policy worker: its model, entropy function, strategy and progress bar; the loss is SkyRL's own."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.replacement import bare_instance


def cpu(*_args: object) -> str:
    """The CPU as the current device."""
    return "cpu"


def stored_entropy(logits: Tensor, **_options: object) -> Tensor:
    """A fake entropy function: the fake model returns the entropy as its logits."""
    return logits[..., 0]


class Strategy:
    """A fake distributed strategy: one rank, and a list of the losses instead of a backward pass."""

    def __init__(self) -> None:
        """Start with no loss."""
        self.losses: list[Tensor] = []

    def backward(self, loss: Tensor, *_args: object, **_options: object) -> None:
        """Record the loss; the audit differentiates the sum."""
        self.losses.append(loss)

    def all_reduce(self, values: Any, *_args: object, **_options: object) -> Any:  # noqa: ANN401 - numbers by name
        """The values, unchanged: there is one rank."""
        return values

    def optimizer_step(self, *_args: object, **_options: object) -> Tensor | float:
        """The norm of the gradient, 1."""
        return torch.ones(())

    def is_rank_0(self) -> bool:
        """True: there is one rank."""
        return True


class Model:
    """A fake model that looks up the columns of a row by the row index, which is the first token."""

    def __init__(self, columns: dict[str, Tensor]) -> None:
        """Store the columns of all rows, in the trainer's layout."""
        self.columns = columns

    def __call__(self, sequences: Tensor, num_actions: int, **_options: object) -> tuple[Tensor, dict[str, Tensor]]:
        """Log-probs of the response, and the entropy at every position; position t predicts token t + 1."""
        rows = sequences[:, 0]
        entropy = self.columns["entropy"][rows]
        before = entropy.new_full((len(rows), sequences.shape[1] - num_actions - 1), 9.0)
        whole = torch.cat([before, entropy, entropy.new_full((len(rows), 1), 9.0)], dim=1)
        return self.columns["logprob"][rows], {"entropy": whole, "logits": whole.unsqueeze(-1)}

    def train(self) -> None:
        """Do nothing."""


class Bar(list[Any]):
    """A fake progress bar over micro-batches."""

    def __init__(self, batches: Any, **_options: object) -> None:  # noqa: ANN401 - the target's iterator
        """Store the micro-batches."""
        super().__init__(batches)

    def set_postfix(self, _numbers: object) -> None:
        """Show nothing."""


def _loss_of(losses: Any, section: Any) -> Any:  # noqa: ANN401 - the target's classes
    """The policy loss of the configuration, from the registry or, in the first releases, built as their workers do."""
    if hasattr(losses, "get"):
        return losses.get(section.policy_loss_type)
    numbers = (section.eps_clip_low, section.eps_clip_high, section.clip_ratio_c)
    return losses(*numbers, loss_type=section.ppo_loss_type, loss_reduction=section.loss_reduction)


def worker_of(  # noqa: PLR0913 - the attributes of a worker
    worker: Any,  # noqa: ANN401 - the target's class
    losses: Any,  # noqa: ANN401 - the target's registry
    own_cfg: Any,  # noqa: ANN401 - what the worker reads: the target's configuration, or its section
    cfg: Any,  # noqa: ANN401 - the target's class
    model: Callable[..., Any],
    *,
    ranks: int,
) -> Any:  # noqa: ANN401 - the target's class
    """A worker on one of ``ranks`` ranks, with a fake model and a fake strategy."""
    return bare_instance(
        worker,
        cfg=own_cfg,
        model=model,
        strategy=Strategy(),
        optimizer=None,
        scheduler=SimpleNamespace(get_last_lr=lambda: [0.0]),
        device_mesh=SimpleNamespace(get_group=lambda _name: None),
        mesh_rank=SimpleNamespace(dp_size=ranks),
        record_memory=False,
        **dict.fromkeys(("policy_loss_fn", "actor_loss_fn"), _loss_of(losses, cfg.trainer.algorithm)),
        _micro_batches_accumulated=0,
    )
