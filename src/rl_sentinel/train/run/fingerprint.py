"""The fingerprint of a recipe: the keys that change a run's numbers, so that a run is resumed by the same recipe."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from rl_sentinel.train.config.recipe import Recipe

#: Keys and tables that may change on resume: where and for how long a run is computed, and its other logs.
FREE = frozenset({"out", "rollout.url", "checkpoint", "steps", "evaluation", "completions", "policy.device"})


def fingerprint_keys(recipe: Recipe) -> dict[str, Any]:
    """The keys, with their values, that must not change when a run is resumed; keys at their defaults are left out.

    ``steps`` is included if the learning rate decays towards the last step. ``threads`` is included, since sums over
    several threads round differently. ``policy.device`` may change, although another device rounds differently too.
    """
    free = FREE if recipe.update.schedule == "constant" else FREE - {"steps"}
    keys = _flatten(recipe.model_dump(mode="json", exclude_defaults=True))
    return {key: value for key, value in keys.items() if key not in free and key.partition(".")[0] not in free}


def differing_keys(one: Recipe, two: Recipe) -> list[str]:
    """The keys in which the fingerprints of two recipes differ, sorted."""
    first, second = fingerprint_keys(one), fingerprint_keys(two)
    return sorted(key for key in {*first, *second} if first.get(key) != second.get(key))


def fingerprint(recipe: Recipe) -> str:
    """The digest of :func:`fingerprint_keys`."""
    return hashlib.sha256(json.dumps(fingerprint_keys(recipe), sort_keys=True).encode()).hexdigest()


def weights_digest(model: nn.Module) -> str:
    """The SHA-256 of a model's weights and their names."""
    digest = hashlib.sha256()
    for name, weight in model.state_dict().items():
        digest.update(name.encode())
        digest.update(weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    keys: dict[str, Any] = {}
    for key, value in table.items():
        keys |= _flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return keys
