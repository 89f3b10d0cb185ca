"""The memory of a process that trains, alone and as one of several: ``python -m benchmarks.costs.ranks SIZE``.

The parent starts SIZE processes; each prints its peak above what it held before the run, when it had imported
everything and joined the others. Three steps with a checkpoint, on a Llama of 57 M parameters.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.costs.memory import peak_above
from rl_sentinel.train.config.recipe import parse_recipe
from rl_sentinel.train.run.distributed import Ranks
from rl_sentinel.train.run.loop import train

#: The model's sizes, and a batch whose activations are small beside its weights.
SIZES = {"hidden": 768, "layers": 8, "heads": 12, "inner": 2048, "positions": 32}
TINY = {"hidden": 16, "layers": 1, "heads": 2, "inner": 16, "positions": 32}


def tables(folder: Path, sizes: dict[str, int], *, kl: bool) -> dict[str, Any]:
    """The tables of the recipe."""
    return {
        "out": str(folder),
        "steps": 3,
        "policy": sizes | {"device": "cpu"},
        "environment": {"name": "sort", "digits": 3},
        "rollout": {"prompts": 4, "responses": 4, "tokens": 6},
        "estimator": {"name": "grpo", "standardize": False, "epsilon": 0.0},
        "loss": {"name": "ppo", "clip_low": 0.2, "clip_high": 0.2, "aggregation": "token-mean"},
        "update": {"prompts": 4, "rows": 4, "rate": 1e-4},
        "checkpoint": {"every": 3},
        **({"kl": {"estimator": "k3"}} if kl else {}),
    }


def _no_cache(_kind: str, _key: str, _fill: Callable[[Path], None]) -> Path:
    raise AssertionError  # there is no warm start


def child(folder: str, kl: str) -> None:
    """Train as one of the processes, and print a JSON line."""
    torch.set_num_threads(1)
    ranks, place = Ranks.join(), Path(folder)
    # Everything that is imported late, and the buffers of torch's operations.
    train(parse_recipe(tables(place / "tiny", TINY, kl=kl == "kl"), where="recipe"), cache=_no_cache, ranks=ranks)
    recipe = parse_recipe(tables(place / "run", SIZES, kl=kl == "kl"), where="recipe")
    peak = peak_above(lambda: train(recipe, cache=_no_cache, ranks=ranks))
    print(json.dumps({"rank": ranks.rank, "peak": peak}), flush=True)  # noqa: T201 - read by the parent
    ranks.close()


def run(size: int, *, kl: bool) -> list[dict[str, Any]]:
    """What the processes of one run print."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    base = os.environ | {"OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", __spec__.name, "child", folder, "kl" if kl else ""]
        each = [base | {"RANK": str(n), "WORLD_SIZE": str(size)} for n in range(size)]
        started = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for env in each]
        printed = [process.communicate()[0] for process in started]
        if any(process.returncode for process in started):
            sys.exit("a process failed: see its output above")
    return [json.loads(text.splitlines()[-1]) for text in printed]


def main() -> None:
    """Print a JSON line per process of a run without a KL, and of one with it."""
    for kl in (False, True):
        for row in run(int(sys.argv[1]), kl=kl):
            print(json.dumps({"processes": int(sys.argv[1]), "kl": kl, **row}), flush=True)  # noqa: T201 - read by the parent


if __name__ == "__main__":
    child(*sys.argv[2:]) if sys.argv[1] == "child" else main()
