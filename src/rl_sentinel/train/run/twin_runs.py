"""Twin runs: one recipe trained twice, with and without outliers where nothing may look."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.paths import expanded
from rl_sentinel.signal.path import Choices, loss_ready
from rl_sentinel.signal.ready import Ready
from rl_sentinel.signal.rollout import Rollout
from rl_sentinel.train.config.recipe import Recipe, nearest
from rl_sentinel.train.run import rng, warm_start
from rl_sentinel.train.run.checkpoint import newest
from rl_sentinel.train.run.journal import lines
from rl_sentinel.train.run.loop import Watch, train

#: Size of the outliers, in reward units or nats.
OUTLIER = 1000.0


def rejected_rewards(rollout: Rollout, by: Choices) -> tuple[Rollout, int]:
    """Outliers for rewards of rows that do not train, rejected by the recipe or on the path; parts, baselines too."""
    honest = loss_ready(rollout, by=by)
    baseline = rollout.reward_baseline
    if baseline is not None:
        rollout = replace(rollout, reward_baseline=_moved(baseline, ~honest.kept, "baseline"))
    return _rewards(rollout, ~honest.kept)


def suppressed_rewards(rollout: Rollout, by: Choices) -> tuple[Rollout, int]:  # noqa: ARG001 - called as the others
    """Outliers for rewards that are void, of rows that train."""
    void = torch.zeros(len(rollout.reward)).bool() if rollout.scored is None else ~rollout.scored
    return _rewards(rollout, void)


def untrained_logprobs(rollout: Rollout, by: Choices) -> tuple[Rollout, int]:  # noqa: ARG001 - called as the others
    """Outliers for all log-probs and squares of tokens that do not train: a tool's, padding, those of rejected rows."""
    assert isinstance(rollout.mask, Tensor)  # noqa: S101 - laid out padded
    known = {n: getattr(rollout, n) for n in ("old_logprob", "rollout_logprob", "ref_logprob", "pi_squared")}
    moved = {n: _moved(c, ~rollout.mask, "untrained", n) for n, c in known.items() if c is not None}
    return replace(rollout, **moved), int((~rollout.mask).sum())


#: What may be perturbed, by the name on the command line.
PERTURBATIONS: dict[str, Callable[[Rollout, Choices], tuple[Rollout, int]]] = {
    f.__name__.replace("_", "-"): f for f in (rejected_rewards, suppressed_rewards, untrained_logprobs)
}


@dataclass(frozen=True, slots=True)
class Twins:
    """What came of it: numbers that were moved, and the first step at which the runs part, with what differs."""

    steps: int
    moved: int
    parted: int | None
    differs: str

    def told(self) -> str:
        """In a line."""
        if self.parted is None:
            return f"equal to the last bit over {self.steps} steps, weights too; {self.moved} numbers were moved"
        return f"parted at step {self.parted} of {self.steps}: {self.differs}; {self.moved} numbers were moved"


def twins(recipe: Recipe, *, perturb: str, kept: warm_start.Kept, watch: Watch | None = None) -> Twins:
    """Train a recipe twice, in ``out/plain`` and ``out/perturbed``, and compare metrics and weights bit by bit.

    Raises:
        SentinelError: if there is no such perturbation, or nothing was there to perturb.
    """
    if perturb not in PERTURBATIONS:
        raise SentinelError(f"--perturb {perturb!r} is unknown{nearest(perturb, list(PERTURBATIONS))}")
    moved = 0

    def around(path: Callable[..., Ready]) -> Callable[..., Ready]:
        def called(rollout: Rollout, *, by: Choices) -> Ready:
            nonlocal moved
            other, count = PERTURBATIONS[perturb](rollout, by)
            moved += count
            return path(other, by=by)

        return called

    plain, perturbed = (expanded(recipe.out, "out") / name for name in ("plain", "perturbed"))
    if plain.exists() or perturbed.exists():
        raise SentinelError(f"out[{recipe.out}] holds twins already: name another with out=DIR")
    train(recipe.model_copy(update={"out": str(plain)}), kept=kept, watch=watch)
    train(recipe.model_copy(update={"out": str(perturbed)}), kept=kept, watch=watch, around=around)
    found = compared(plain, perturbed, moved)
    if not moved and found.parted is None:
        raise SentinelError(f"--perturb {perturb} found nothing to move in {found.steps} steps: {_WAYS[perturb]}")
    return found


def compared(one: Path, two: Path, moved: int = 0) -> Twins:
    """Two runs, metrics first, then the weights of their last checkpoints."""
    first, second = (lines(place / "metrics.jsonl") for place in (one, two))
    for a, b in zip(first, second, strict=True):
        apart = [f"{key} {a[key]!r} and {b.get(key)!r}" for key in a if a[key] != b.get(key)]
        if apart:
            return Twins(len(first), moved, int(a["step"]), ", ".join(apart))
    weights = [_weights(place) for place in (one, two)]
    same = all(torch.equal(w, weights[1][name]) for name, w in weights[0].items())
    return Twins(len(first), moved, None if same else len(first), "" if same else "the weights")


_WAYS = {
    "rejected-rewards": "let the recipe reject rows, as with rollout.unended=reject or a correction",
    "suppressed-rewards": "let the recipe void rewards, as with rollout.unended=suppress",
    "untrained-logprobs": "responses all have one length, and no token of a tool",
}


def _weights(place: Path) -> Any:  # noqa: ANN401 - a dictionary of tensors
    found = newest(place / "checkpoints").state
    if found is None:
        raise SentinelError(f"{place} has no checkpoint, expected that of its last step")
    return found["weights"]


def _rewards(rollout: Rollout, where: Tensor) -> tuple[Rollout, int]:
    parts = rollout.reward_parts
    moved = None if parts is None else _moved(parts, where.unsqueeze(1).expand_as(parts), "parts")
    return replace(rollout, reward=_moved(rollout.reward, where, "reward"), reward_parts=moved), int(where.sum())


def _moved(values: Tensor, where: Tensor, *words: str) -> Tensor:
    """Outliers of either sign; anything may stand where nothing may look."""
    sign = torch.rand(values.shape, generator=rng.generator(*words)) < 0.5
    return torch.where(where, torch.where(sign, -OUTLIER, OUTLIER).to(values.dtype), values)
