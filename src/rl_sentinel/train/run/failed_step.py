"""Dump a failed step, its batch and weights, to a file; and repeat the step from such a file."""

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.phrasing import reason_of
from rl_sentinel.signal.rollout import Laid, Rollout
from rl_sentinel.train.config.recipe import Recipe, parse_recipe
from rl_sentinel.train.config.selection import Selection, select_components
from rl_sentinel.train.model.lora import apply_lora
from rl_sentinel.train.model.policy import Policy
from rl_sentinel.train.run.checkpoint import save_tensors
from rl_sentinel.train.run.trained_policy import build_policy
from rl_sentinel.train.update.critic import Critic, CriticStepError, build_critic
from rl_sentinel.train.update.minibatch_gradient import NotFiniteError, compute_gradient
from rl_sentinel.train.update.optimizer_step import NonFiniteStepError, build_optimizer, take_optimizer_step
from rl_sentinel.train.update.policy_update import require_finite_logprobs
from rl_sentinel.train.update.training_batch import PathError, TrainingBatch

#: The version of the format; increased when the contents of a dump change.
FORMAT = 2

#: Keys of each dump.
_KEYS = ("edition", "recipe", "laid", "weights", "words")

#: Why ``torch.load`` rejects a file that exists.
_FOREIGN = "torch.save did not write it, or it holds more than tensors and plain values"


def dump_failed_step(
    path: Path, error: PathError | NotFiniteError, *, recipe: Recipe, weights: Mapping[str, Tensor], step: int
) -> None:
    """Write the dump of a step that stopped a run, atomically.

    Raises:
        OSError: if it cannot be written.
    """
    dump: dict[str, Any] = {
        "edition": FORMAT,
        "recipe": json.dumps(recipe.model_dump(mode="json")),  # pydantic's own JSON turns infinity into null
        "step": step,
        "words": str(error),
        "weights": dict(weights),
    }
    if isinstance(error, PathError):
        dump |= {"laid": _to_columns(error.laid)}
    else:
        batch = error.batch
        dump |= {"laid": _to_columns(batch.laid), "rows": error.rows, "coefficient": error.coefficient}
        dump |= error.state
        dump["batch"] = {f.name: getattr(batch, f.name) for f in fields(TrainingBatch) if f.name != "laid"}
    partial = path.with_suffix(".aside")
    try:
        save_tensors(dump, partial)
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def replay_failed_step(path: Path) -> tuple[str, str]:
    """Repeat the step of a dump.

    Returns:
        The message of the failed step, and the message now, which is empty if the step does not fail.

    Raises:
        SentinelError: if the file is not a dump, has another format version, or its recipe cannot be run.
    """
    expected = "expected a file RUN/stopped-*.pt of a stopped run"
    try:
        dump = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises errors of many types for other files
        why = reason_of(error) if isinstance(error, OSError) else _FOREIGN  # torch's text tells to load it unsafely
        raise SentinelError(f"dump {path} cannot be read ({why}), {expected}") from error
    if missing := [key for key in _KEYS if not isinstance(dump, dict) or key not in dump]:
        raise SentinelError(f"dump {path} cannot be read (it has no {missing[0]}), {expected}")
    if dump["edition"] != FORMAT:
        raise SentinelError(
            f"format version of dump {path} is {dump['edition']}, expected {FORMAT}: replay it with the release that "
            "wrote it"
        )
    try:
        recipe = parse_recipe(json.loads(dump["recipe"]), where=f"dump {path}")
        laid = _from_columns(dump["laid"])
    except SentinelError:
        raise
    except Exception as error:  # the contents may be those of another program
        raise SentinelError(f"dump {path} cannot be read ({reason_of(error)}), {expected}") from error
    selection, policy = select_components(recipe), build_policy(recipe)
    critic = build_critic(policy, recipe.critic) if "critic" in dump else None  # before LoRA, as in a run
    apply_lora(policy, recipe.policy.lora, seed=recipe.seed)
    policy.model.load_state_dict(dump["weights"])
    try:
        if "batch" in dump:
            batch = TrainingBatch(laid=laid, **dump["batch"])
            _repeat_minibatch(policy, critic, batch, dump, selection=selection, recipe=recipe)
        else:
            selection.path(laid.rollout, by=selection.choices)
    except (NotFiniteError, CriticStepError, NonFiniteStepError, ValueError) as error:
        return dump["words"], str(error)
    return dump["words"], ""


def _repeat_minibatch(  # noqa: PLR0913 - the parts of a step
    policy: Policy,
    critic: Critic | None,
    batch: TrainingBatch,
    dump: Mapping[str, Any],
    *,
    selection: Selection,
    recipe: Recipe,
) -> None:
    """Repeat the part that failed: the critic's mini-batch, the check after the update, or the policy's mini-batch."""
    if critic is not None:
        saved = dump["critic"]
        critic.model.load_state_dict(saved["model"])
        critic.optimizer.load_state_dict(saved["optimizer"])
        critic.fit_minibatch(batch.laid, saved["returns"], saved["mask"], dump["rows"], update=recipe.update)
        return
    if "after" in dump:
        require_finite_logprobs(policy, batch, recipe=recipe)
        return
    rows, coefficient = dump["rows"], dump["coefficient"]
    compute_gradient(policy, batch, rows, selection=selection, recipe=recipe, coefficient=coefficient)
    if "rate" in dump:
        optimizer = build_optimizer(policy, recipe.update)
        if dump["moments"] is not None:
            optimizer.load_state_dict(dump["moments"])
        for group in optimizer.param_groups:
            group["lr"] = dump["rate"]
        take_optimizer_step(optimizer, key="update.rate")


def _to_columns(laid: Laid) -> dict[str, Any]:
    rollout = {f.name: getattr(laid.rollout, f.name) for f in fields(Rollout)}
    return {"token": laid.token, "prompt_length": laid.prompt_length, "length": laid.length, "rollout": rollout}


def _from_columns(columns: Mapping[str, Any]) -> Laid:
    rows: dict[str, Tensor] = {name: columns[name] for name in ("token", "prompt_length", "length")}
    return Laid(**rows, rollout=Rollout(**columns["rollout"]))
