"""What is kept of a step that cannot be: the batch and the weights, so that it can be looked at and done again."""

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.signal.rollout import Laid, Rollout
from rl_sentinel.train.config.recipe import Recipe, made
from rl_sentinel.train.config.selection import Selection, selected
from rl_sentinel.train.model.policy import Policy, from_scratch
from rl_sentinel.train.model.pretrained import loaded
from rl_sentinel.train.run.checkpoint import stored
from rl_sentinel.train.run.training_state import optimized
from rl_sentinel.train.update.critic import UnfittedError, critic_of
from rl_sentinel.train.update.optimizer_step import RuinedError, stepped
from rl_sentinel.train.update.policy_update import Batch, NotFiniteError, gradient, require_sound

#: Counted up when what is kept changes.
EDITION = 2


class UnfitError(SentinelError):
    """The path refused what was sampled: a reward that is no number, say."""

    def __init__(self, message: str, laid: Laid) -> None:
        """With the rows as they were laid out."""
        super().__init__(message)
        self.laid = laid


def kept(
    place: Path, error: UnfitError | NotFiniteError, *, recipe: Recipe, weights: Mapping[str, Tensor], step: int
) -> None:
    """Write the evidence of a step that stopped a run, whole or not at all."""
    found: dict[str, Any] = {
        "edition": EDITION,
        "recipe": json.dumps(recipe.model_dump(mode="json")),  # with infinity, which pydantic's own makes null
        "step": step,
        "words": str(error),
        "weights": dict(weights),
    }
    if isinstance(error, UnfitError):
        found |= {"laid": _columns(error.laid)}
    else:
        batch = error.batch
        found |= {"laid": _columns(batch.laid), "rows": error.rows, "coefficient": error.coefficient}
        found |= error.more
        found["batch"] = {f.name: getattr(batch, f.name) for f in fields(Batch) if f.name != "laid"}
    aside = place.with_suffix(".aside")
    try:
        stored(found, aside)
        aside.replace(place)
    except OSError:
        aside.unlink(missing_ok=True)
        raise


def replayed(place: Path) -> tuple[str, str]:
    """Do the step of some evidence again.

    Returns:
        What was said then, and what is said now: the same words if it still happens, "" if it no longer does.

    Raises:
        SentinelError: if the file is not what a stopped run wrote.
    """
    try:
        found = torch.load(place, weights_only=True)
        recipe = made(_tupled(json.loads(found["recipe"])), where=f"evidence {place}")
        laid, edition = _laid(found["laid"]), found["edition"]
    except SentinelError:
        raise
    except Exception as error:  # a file of any content; what it raises is torch's affair
        words = str(error).partition("\n")[0]
        raise SentinelError(f"evidence {place} cannot be read ({words}), expected what a stopped run wrote") from error
    if edition != EDITION:
        raise SentinelError(
            f"evidence {place} is of edition {edition}, expected {EDITION}: do it again with the release that wrote it"
        )
    selection, shape = selected(recipe), recipe.policy
    policy = loaded(shape.load, precision=shape.precision) if shape.load else from_scratch(recipe)
    policy.model.load_state_dict(found["weights"])
    try:
        if "batch" in found:
            _again(policy, Batch(laid=laid, **found["batch"]), found, selection=selection, recipe=recipe)
        else:
            selection.path(laid.rollout, by=selection.choices)
    except (NotFiniteError, UnfittedError, RuinedError, ValueError) as error:
        return found["words"], str(error)
    return found["words"], ""


def _again(policy: Policy, batch: Batch, found: Mapping[str, Any], *, selection: Selection, recipe: Recipe) -> None:
    """The mini-batch that stopped the run: the critic's, the one behind it, or its own with the optimizer's step."""
    if "critic" in found:
        critic, known = critic_of(policy, recipe.critic), found["critic"]
        assert critic is not None  # noqa: S101 - it was fitted
        critic.model.load_state_dict(known["model"])
        critic.optimizer.load_state_dict(known["optimizer"])
        critic.turned(batch.laid, known["returns"], known["mask"], found["rows"], how=recipe.update)
        return
    if "after" in found:
        require_sound(policy, batch, recipe=recipe)
        return
    gradient(policy, batch, found["rows"], selection=selection, recipe=recipe, coefficient=found["coefficient"])
    if "rate" in found:
        optimizer = optimized(policy, recipe.update)
        if found["moments"] is not None:
            optimizer.load_state_dict(found["moments"])
        for group in optimizer.param_groups:
            group["lr"] = found["rate"]
        stepped(optimizer, key="update.rate")


def _columns(laid: Laid) -> dict[str, Any]:
    rollout = {f.name: getattr(laid.rollout, f.name) for f in fields(Rollout)}
    return {"token": laid.token, "prompt_length": laid.prompt_length, "length": laid.length, "rollout": rollout}


def _laid(columns: Mapping[str, Any]) -> Laid:
    known: dict[str, Tensor] = {name: columns[name] for name in ("token", "prompt_length", "length")}
    return Laid(**known, rollout=Rollout(**columns["rollout"]))


def _tupled(told: Any) -> Any:  # noqa: ANN401 - what JSON holds
    """Without what is None: a table that the recipe does not have."""
    return {k: _tupled(v) for k, v in told.items() if v is not None} if isinstance(told, dict) else told
