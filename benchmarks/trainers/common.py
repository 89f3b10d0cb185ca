"""Shared by both sides: the recipe, the policy after its warm start, and the exchange of turns."""

import argparse
import json
import sys
import time
import tomllib
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch

from rl_sentinel.audit.source.cache import cached_folder
from rl_sentinel.train.config.recipe import Recipe, parse_recipe
from rl_sentinel.train.config.selection import select_components
from rl_sentinel.train.model.policy import Policy
from rl_sentinel.train.run.trained_policy import build_policy
from rl_sentinel.train.run.warm_start import warm_start

RECIPES = Path(__file__).parents[2] / "recipes"

#: TRL adds this to a deviation and has no setting for it.
EPSILON = 1e-4

#: With LoRA on a pretrained model, whose recipe's rate is for all weights.
LORA_RATE = 2e-4

#: Tables that TRL has no counterpart for.
_OWN = ("kl", "evaluation")


class Comparison(NamedTuple):
    """What both sides train: a recipe of ``recipes/``, the device, the coefficient of the KL, and whether with LoRA."""

    recipe: str
    device: str
    seed: int
    steps: int
    kl: float
    lora: bool

    @classmethod
    def of_arguments(cls) -> Self:
        """The comparison of a side's command line."""
        return cls.from_json(sys.argv[1])

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The comparison of a JSON object."""
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """The same as text."""
        return json.dumps(self._asdict())

    def load_recipe(self, out: str) -> Recipe:
        """The recipe with the coefficient of a k3 KL in the loss (0: no reference).

        It has one step more than are measured, whose end writes our checkpoint, and writes no completions: TRL writes
        neither.
        """
        path = RECIPES / f"{self.recipe}.toml"
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        tables = {key: value for key, value in tables.items() if key not in _OWN}
        tables |= {"out": out, "seed": self.seed, "steps": self.steps + 1}
        tables["checkpoint"] = {"every": self.steps + 1}
        tables["completions"] = {"every": 0}
        tables["estimator"]["epsilon"] = EPSILON
        tables["policy"] |= {"device": self.device} | ({"lora": {}} if self.lora else {})
        if self.lora and "load" in tables["policy"]:
            tables["update"]["rate"] = LORA_RATE
        if self.kl:
            tables["kl"] = {"estimator": "k3", "loss": self.kl}
        return parse_recipe(tables, where=str(path))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The choices of a comparison on the command line."""
    parser.add_argument("--recipe", default="sort", help="sort, or smollm2 (prepare its model as the recipe says)")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--kl", type=float, nargs="+", default=(0.0, 0.04), help="coefficients of the KL; 0 for none")
    parser.add_argument("--lora", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=120)


def warm_started_policy(wanted: Recipe) -> Policy:
    """The policy after its cached warm start."""
    policy = build_policy(wanted)
    environment = select_components(wanted).environment
    warm_start(policy, environment, wanted, cache=cached_folder, progress=lambda _done, _total: None)
    return policy


class Turns:
    """Does a step for each line on stdin, and prints its time: of the processor, or on a GPU of the clock."""

    def __init__(self, device: str) -> None:
        """Wait for the first line."""
        self._on_gpu = device != "cpu"
        torch.set_num_threads(1)
        self._wait()

    def _now(self) -> float:
        if not self._on_gpu:
            return time.process_time()
        torch.cuda.synchronize()
        return time.perf_counter()

    def _wait(self) -> None:
        sys.stdin.readline()
        self._start = self._now()

    def end_step(self, metrics: dict[str, Any]) -> None:
        """Print a step's time and metrics, and wait for the next turn."""
        result = {"seconds": self._now() - self._start, **metrics}
        print(json.dumps(result), flush=True)  # noqa: T201 - read by the parent
        self._wait()
