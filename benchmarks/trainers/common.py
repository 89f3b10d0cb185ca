"""Shared by both sides: the recipe, the policy after its warm start, and the exchange of turns."""

import json
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import torch

from rl_sentinel.audit.source.cache import cached_folder
from rl_sentinel.train.config.recipe import Recipe, parse_recipe
from rl_sentinel.train.config.selection import select_components
from rl_sentinel.train.model.policy import Policy, init_policy
from rl_sentinel.train.run.warm_start import warm_start

RECIPE = Path(__file__).parents[2] / "recipes" / "sort.toml"

#: TRL adds this to a deviation and has no setting for it.
EPSILON = 1e-4


def recipe(out: str, *, seed: int, steps: int, kl: float) -> Recipe:
    """The sort recipe with the coefficient of a k3 KL in the loss (0: no reference), and one checkpoint at the end."""
    tables = tomllib.loads(RECIPE.read_text(encoding="utf-8"))
    tables |= {"out": out, "seed": seed, "steps": steps, "checkpoint": {"every": steps}}
    tables["estimator"]["epsilon"] = EPSILON
    tables["kl"] = {"estimator": "k3", "loss": kl}
    if not kl:
        del tables["kl"]
    return parse_recipe(tables, where=str(RECIPE))


def warm_started_policy(wanted: Recipe) -> Policy:
    """The policy after its cached warm start."""
    policy = init_policy(wanted)
    environment = select_components(wanted).environment
    warm_start(policy, environment, wanted, cache=cached_folder, progress=lambda _done, _total: None)
    return policy


class Turns:
    """Does a step for each line on stdin, and prints its processor time."""

    def __init__(self) -> None:
        """Wait for the first line."""
        torch.set_num_threads(1)
        self._wait()

    def _wait(self) -> None:
        sys.stdin.readline()
        self._start = time.process_time()

    def end_step(self, metrics: dict[str, Any]) -> None:
        """Print a step's time and metrics, and wait for the next turn."""
        result = {"seconds": time.process_time() - self._start, **metrics}
        print(json.dumps(result), flush=True)  # noqa: T201 - read by the parent
        self._wait()
