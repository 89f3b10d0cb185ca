"""Twin runs: train a recipe twice, once with outliers in values that must have no effect, and compare."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.paths import expanded
from rl_sentinel.core.phrasing import nearest
from rl_sentinel.signal.choices import Choices
from rl_sentinel.signal.path import loss_ready
from rl_sentinel.signal.ready import Ready
from rl_sentinel.signal.rollout import Rollout
from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.model.device import CPU
from rl_sentinel.train.run import rng
from rl_sentinel.train.run.checkpoint import load_newest
from rl_sentinel.train.run.journal import read_metrics
from rl_sentinel.train.run.loop import train
from rl_sentinel.train.run.run_context import Callbacks
from rl_sentinel.train.run.warm_start import Cache

#: Size of the outliers, in reward units or nats.
OUTLIER = 1000.0


def rejected_rewards(rollout: Rollout, by: Choices) -> tuple[Rollout, int]:
    """Perturb rewards, reward parts and baselines of rows that the recipe or the path rejects.

    Returns:
        The perturbed rollout, and the number of these rows.
    """
    accepted = loss_ready(rollout, by=by).kept
    baseline = rollout.reward_baseline
    if baseline is not None:
        rollout = replace(rollout, reward_baseline=_perturbed(baseline, ~accepted, "baseline"))
    return _perturb_rewards(rollout, ~accepted)


def suppressed_rewards(rollout: Rollout, by: Choices) -> tuple[Rollout, int]:  # noqa: ARG001 - one signature for all
    """Perturb the rewards of rows that are not scored: these are suppressed.

    Returns:
        The perturbed rollout, and the number of these rows.
    """
    suppressed = torch.zeros_like(rollout.reward).bool() if rollout.scored is None else ~rollout.scored
    return _perturb_rewards(rollout, suppressed)


def untrained_logprobs(rollout: Rollout, by: Choices) -> tuple[Rollout, int]:  # noqa: ARG001 - one signature for all
    """Perturb log-probs and squared probabilities of untrained tokens: tool output, padding, and rejected rows.

    Returns:
        The perturbed rollout, and the number of these tokens.
    """
    assert isinstance(rollout.mask, Tensor)  # noqa: S101 - laid out padded
    columns = {n: getattr(rollout, n) for n in ("old_logprob", "rollout_logprob", "ref_logprob", "pi_squared")}
    perturbed = {n: _perturbed(c, ~rollout.mask, "untrained", n) for n, c in columns.items() if c is not None}
    return replace(rollout, **perturbed), int((~rollout.mask).sum())


#: The perturbations, by their names on the command line.
PERTURBATIONS: dict[str, Callable[[Rollout, Choices], tuple[Rollout, int]]] = {
    f.__name__.replace("_", "-"): f for f in (rejected_rewards, suppressed_rewards, untrained_logprobs)
}

#: How a recipe gets values to perturb, or why it has none.
_FIXES = {
    "rejected-rewards": "let the recipe reject rows, as with rollout.unended=reject or a correction",
    "suppressed-rewards": "let the recipe suppress rewards, as with rollout.unended=suppress",
    "untrained-logprobs": "let the recipe sample responses of different lengths, or several turns",
}


@dataclass(frozen=True, slots=True)
class TwinResult:
    """The number of perturbed values, and the first step at which the runs differ, with the difference.

    ``differs_at`` is None, and ``difference`` empty, if the runs are equal.
    """

    steps: int
    perturbed: int
    differs_at: int | None
    difference: str

    def summary(self) -> str:
        """The result in one line."""
        if self.differs_at is None:
            return f"metrics and weights are bitwise equal over {self.steps} steps; {self.perturbed} values perturbed"
        difference_place = f"the runs differ at step {self.differs_at} of {self.steps}"
        return f"{difference_place}: {self.difference}; {self.perturbed} values perturbed"


def run_twins(recipe: Recipe, *, perturb: str, cache: Cache, callbacks: Callbacks | None = None) -> TwinResult:
    """Train a recipe in ``out/plain`` and ``out/perturbed``, and compare metrics and weights bitwise.

    Raises:
        SentinelError: if the perturbation is unknown, the folder has twin runs, or nothing was perturbed.
    """
    if perturb not in PERTURBATIONS:
        raise SentinelError(f"--perturb {perturb!r} is unknown, {nearest(perturb, list(PERTURBATIONS))}")
    perturbed = 0

    def wrap_path(path: Callable[..., Ready]) -> Callable[..., Ready]:
        def perturbed_path(rollout: Rollout, *, by: Choices) -> Ready:
            nonlocal perturbed
            rollout, count = PERTURBATIONS[perturb](rollout, by)
            perturbed += count
            return path(rollout, by=by)

        return perturbed_path

    plain, perturbed_out = (expanded(recipe.out, "out") / name for name in ("plain", "perturbed"))
    if plain.exists() or perturbed_out.exists():
        raise SentinelError(f"out[{recipe.out}] has twin runs already: name another folder with out=DIR")
    train(recipe.model_copy(update={"out": str(plain)}), cache=cache, callbacks=callbacks)
    train(recipe.model_copy(update={"out": str(perturbed_out)}), cache=cache, callbacks=callbacks, wrap_path=wrap_path)
    result = compare_runs(plain, perturbed_out, perturbed)
    if not perturbed and result.differs_at is None:
        steps = f"{result.steps} step{'s' * (result.steps != 1)}"
        raise SentinelError(f"--perturb {perturb} had no values to perturb in {steps}: {_FIXES[perturb]}")
    return result


def compare_runs(plain: Path, other: Path, perturbed: int = 0) -> TwinResult:
    """Compare the metrics of two runs, then the weights of their last checkpoints."""
    first, second = (read_metrics(place / "metrics.jsonl") for place in (plain, other))
    for a, b in zip(first, second, strict=True):
        different = [f"{key} {a[key]!r} and {b.get(key)!r}" for key in a if a[key] != b.get(key)]
        if different:
            return TwinResult(len(first), perturbed, int(a["step"]), ", ".join(different))
    weights = [_last_weights(place) for place in (plain, other)]
    equal = all(torch.equal(w, weights[1][name]) for name, w in weights[0].items())
    return TwinResult(len(first), perturbed, None if equal else len(first), "" if equal else "the weights")


def _last_weights(folder: Path) -> Any:  # noqa: ANN401 - a dictionary of tensors
    loaded = load_newest(folder / "checkpoints")
    if loaded.state is None:
        missing = f"{folder} has no checkpoint, expected a checkpoint of its last step"
        reason = loaded.damaged[0] if loaded.damaged else missing
        raise SentinelError(f"{reason}: run the twins again with another folder, out=DIR")
    return loaded.state["weights"]


def _perturb_rewards(rollout: Rollout, rows: Tensor) -> tuple[Rollout, int]:
    parts = rollout.reward_parts
    if parts is not None:
        parts = _perturbed(parts, rows.unsqueeze(1).expand_as(parts), "parts")
    reward = _perturbed(rollout.reward, rows, "reward")
    return replace(rollout, reward=reward, reward_parts=parts), int(rows.sum())


def _perturbed(values: Tensor, cells: Tensor, *names: str) -> Tensor:
    """The values with outliers of random sign where ``cells`` is True; ``names`` seed the signs."""
    negative = torch.rand(values.shape, generator=rng.torch_generator(*names), device=CPU) < 0.5
    return torch.where(cells, torch.where(negative, -OUTLIER, OUTLIER).to(values.dtype), values)
