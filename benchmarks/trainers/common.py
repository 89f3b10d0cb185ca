"""Shared by both sides: the recipe, the policy after its warm start, and the exchange of turns."""

import json
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import torch

from rl_sentinel.audit.cache import kept
from rl_sentinel.train.config.recipe import Recipe, parse_recipe
from rl_sentinel.train.config.selection import select_components
from rl_sentinel.train.model.policy import Policy, init_policy
from rl_sentinel.train.run.warm_start import warm_start

RECIPE = Path(__file__).parents[2] / "recipes" / "sort.toml"

#: TRL adds this to a deviation, and has no setting for it.
EPSILON = 1e-4


def recipe(out: str, *, seed: int, steps: int, price: float) -> Recipe:
    """The sort recipe, without a reference, or with a k3 KL in the loss at a price; one checkpoint, at the end."""
    told = tomllib.loads(RECIPE.read_text(encoding="utf-8"))
    told |= {"out": out, "seed": seed, "steps": steps, "checkpoint": {"every": steps}}
    told["estimator"]["epsilon"] = EPSILON
    told["kl"] = {"estimator": "k3", "loss": price}
    if not price:
        del told["kl"]
    return parse_recipe(told, where=str(RECIPE))


def warmed(wanted: Recipe) -> Policy:
    """The policy after the warm start, which the cache keeps."""
    policy = init_policy(wanted)
    environment = select_components(wanted).environment
    warm_start(policy, environment, wanted, cache=kept, progress=lambda _done, _total: None)
    return policy


class Turns:
    """A step whenever a line comes in; what it took in processor time goes out."""

    def __init__(self) -> None:
        """Wait for the first line."""
        torch.set_num_threads(1)
        self._wait()

    def _wait(self) -> None:
        sys.stdin.readline()
        self._began = time.process_time()

    def done(self, seen: dict[str, Any]) -> None:
        """Tell of a step, and wait for the next turn."""
        told = {"seconds": time.process_time() - self._began, **seen}
        print(json.dumps(told), flush=True)  # noqa: T201 - read by the parent
        self._wait()
