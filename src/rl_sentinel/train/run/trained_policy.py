"""Build the policy of a recipe, load the policy of a run, and export it for transformers."""

import json
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.config.recipe import Recipe, parse_recipe
from rl_sentinel.train.model.as_transformers import as_transformers
from rl_sentinel.train.model.device import resolve_device
from rl_sentinel.train.model.lora import apply_lora, merged_weights, save_adapter
from rl_sentinel.train.model.policy import Policy, init_policy
from rl_sentinel.train.model.pretrained import load_policy, require_transformers
from rl_sentinel.train.run.checkpoint import load_newest


def is_run(path: str) -> bool:
    """Whether a value of ``policy.load`` is the folder of a run, or the ``best`` folder in it."""
    return bool(path) and any((folder / "recipe.json").is_file() for folder in _run_folders(path))


def build_policy(recipe: Recipe) -> Policy:
    """The policy of a recipe before training, without LoRA: from a run, by transformers, or a tiny Llama from scratch.

    Raises:
        SentinelError: if it cannot be loaded.
    """
    shape = recipe.policy
    if is_run(shape.load):
        policy = load_run(shape.load)[1]
        policy.precision = shape.precision
        policy.model.to(resolve_device(shape.device))
        return policy
    if shape.load:
        return load_policy(shape.load, precision=shape.precision, device=resolve_device(shape.device))
    return init_policy(recipe)


def read_run_recipe(path: str) -> Recipe:
    """Read ``recipe.json`` in a run's folder, or beside its ``best`` folder.

    Raises:
        SentinelError: if the folder has no run, or its recipe is damaged.
    """
    run = next((f for f in _run_folders(path) if (f / "recipe.json").is_file()), None)
    if run is None:
        raise SentinelError(f"{path} has no recipe.json, expected the folder of a run, or the `best` folder in it")
    try:
        tables = dict(json.loads((run / "recipe.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        reason = getattr(error, "strerror", None) or error
        message = (
            f"{run / 'recipe.json'} cannot be read ({reason}), expected a run's recipe: name the folder of another run"
        )
        raise SentinelError(message) from error
    return parse_recipe({**tables, "out": str(run)}, where=str(run / "recipe.json"))


def load_run(path: str) -> tuple[Recipe, Policy]:
    """The recipe and the policy of a run's newest or best checkpoint; LoRA is merged.

    Raises:
        SentinelError: if the folder has no run, or no intact checkpoint that fits the recipe.
    """
    recipe, policy, folder = _load_trained(path)
    if recipe.policy.lora is not None:
        merged, policy = merged_weights(policy.model), build_policy(recipe)
        _load_weights(policy, merged, folder)
    return recipe, policy


def _load_trained(path: str) -> tuple[Recipe, Policy, Path]:
    """The recipe, the policy with LoRA beside its weights, and the folder of the checkpoint."""
    recipe = read_run_recipe(path)
    run = Path(recipe.out)
    folder = run / "checkpoints" if run == Path(path).expanduser() else run / "best"
    loaded = load_newest(folder)
    saved = loaded.state
    if saved is None and loaded.damaged:
        raise SentinelError(f"{loaded.damaged[0]}: train again, or name another run")
    if saved is None and folder.name == "best":
        best = recipe.evaluation.best if recipe.evaluation is not None else ""
        until = f"train until {best} (evaluation.best) is larger than before the first step"
        fix = until if best else "train with [evaluation], which keeps the best checkpoint"
        raise SentinelError(f"{folder} has no checkpoint, expected the checkpoint of the best evaluation: {fix}")
    if saved is None:
        fix = f"train until step {recipe.checkpoint.every} (checkpoint.every) or the last step"
        raise SentinelError(f"{folder} has no checkpoint, expected the checkpoint of a step: {fix}")
    policy = build_policy(recipe)
    apply_lora(policy, recipe.policy.lora, seed=recipe.seed)
    _load_weights(policy, saved["weights"], folder)
    return recipe, policy, folder


def export_run(path: str, folder: Path, *, adapter: bool = False) -> None:
    """Write the policy of a run, with its tokenizer, as a folder that transformers loads.

    With ``adapter``, only the low-rank matrices of LoRA are written, as a folder that peft loads.

    Raises:
        SentinelError: if transformers is not installed, the run cannot be loaded or has no adapter, or the folder is
            not empty.
    """
    require_transformers("export")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        what = "has files" if folder.is_dir() else "is a file"
        raise SentinelError(f"{folder} {what}, expected a new or empty folder: name another folder")
    recipe, policy, _ = _load_trained(path) if adapter else (*load_run(path), None)
    inner = getattr(policy.model, "inner", None)
    if adapter:
        if recipe.policy.lora is None or inner is None:
            fix = "export without --adapter, or train with policy.lora and policy.load"
            raise SentinelError(f"{path} has no adapter of a pretrained model, expected a run with LoRA: {fix}")
        save_adapter(policy, recipe.policy.lora, recipe.policy.load, folder)
        policy.tokenizer._tokenizer.save_pretrained(folder)  # type: ignore[attr-defined]  # noqa: SLF001 - of transformers
        return
    if inner is None:
        model, tokenizer = as_transformers(policy)
    else:
        model, tokenizer = inner, policy.tokenizer._tokenizer  # type: ignore[attr-defined]  # noqa: SLF001 - of transformers
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _run_folders(path: str) -> tuple[Path, ...]:
    folder = Path(path).expanduser()
    return (folder, folder.parent) if folder.name == "best" else (folder,)


def _load_weights(policy: Policy, weights: Mapping[str, Tensor], folder: Path) -> None:
    try:
        policy.model.load_state_dict(weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:120]
        raise SentinelError(
            f"checkpoint in {folder} does not fit recipe.json ({reason}), expected weights of the same names and "
            "shapes: recipe.json or the model of policy.load has changed since the run; restore it, or name another run"
        ) from error
