"""TRL's BCO on single responses, labeled desirable or undesirable: its loss, summed over micro-batches."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.kto import labeled_step
from rl_sentinel.adapters.trl.preference_families import Family
from rl_sentinel.adapters.trl.preference_trainers import train_on_logprobs
from rl_sentinel.adapters.trl.preferences import SCALED, families_of, trainer_path
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.claims import claims

BCO = "trl.trainer.bco_trainer.BCOTrainer"
BCO_EXPERIMENTAL = "trl.experimental.bco.bco_trainer.BCOTrainer"

BCO_FAMILIES: Mapping[str, Family] = {
    "default": Family({"beta": 0.5}, claims("bco_trainer.py, bco_loss: binary classification of the implicit rewards")),
}

_PRODUCER = "bco_trainer.py: prompts, completions and labels of the tokenized data set; the trainer's own collator"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the training step of BCO."""
    for found in families_of(target, trainer_path(target, BCO, BCO_EXPERIMENTAL), BCO_FAMILIES):
        if isinstance(found, Unbound):
            yield found
        else:
            step = labeled_step(*found, learn_at_a_fixed_point, _PRODUCER)
            yield from bindable(target, replace(step, claims=step.claims | SCALED))


def learn_at_a_fixed_point(
    entry: Callable[..., Any],
    learner: Any,  # noqa: ANN401 - a trainer
    features: list[dict[str, Any]],
    logprobs: Tensor,
    ref_logprobs: Tensor,
) -> Tensor:
    """Train on one micro-batch with the running mean of the rewards fixed at 0, and return the loss."""
    learner.running = SimpleNamespace(mean=0.0, update=_nothing)
    return train_on_logprobs(entry, learner, features, logprobs, ref_logprobs)


def _nothing(*_arguments: object, **_more: object) -> None:
    """Accept any update of the running mean and ignore it."""
