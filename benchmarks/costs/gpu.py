"""A GPU's memory and the seconds of a step with a random Llama of 1.1 B parameters: ``python -m benchmarks.costs.gpu``.

Each recipe runs in a process of its own, prints one JSON line, and compares the peak of the device's memory with what
``rl-sentinel train --plan`` says. Needs transformers and tokenizers, and nothing from the network.
"""

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rl_sentinel.train.config.recipe import parse_recipe
from rl_sentinel.train.rollout.interfaces import Outcome, Task
from rl_sentinel.train.run.loop import train
from rl_sentinel.train.run.memory_plan import plan_memory

#: TinyLlama's sizes: 22 layers, 32 query heads that share 4 heads of keys and values, 1.1 B parameters.
SIZES = {
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 22,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "vocab_size": 32_000,
    "max_position_embeddings": 2048,
}
TINY = SIZES | {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 512}

END = "</s>"

#: 64 responses of 256 tokens after prompts of at most 256; a random model never ends one.
ROLLOUT = {"prompts": 8, "responses": 8, "tokens": 256}

#: Name and what differs from the first recipe.
RECIPES: dict[str, dict[str, Any]] = {
    "float32": {},
    "bf16": {"policy": {"precision": "bf16"}},
    "bf16, parts of 8192 tokens": {"policy": {"precision": "bf16"}, "update": {"tokens": 8192}},
    "bf16, recomputed": {"policy": {"precision": "bf16", "recompute": True}},
    "bf16, KL": {"policy": {"precision": "bf16"}, "update": {"tokens": 8192}, "kl": {"loss": 0.05}},
    "bf16, LoRA, KL": {"policy": {"precision": "bf16", "lora": {}}, "update": {"tokens": 8192}, "kl": {"loss": 0.05}},
}


@dataclass(frozen=True, slots=True)
class Noise:
    """Random letters as prompts; the reward is the share of even bytes, which any text has."""

    longest: int = 256

    def numbered_task(self, number: int, seed: int) -> Task:
        """The prompt of a number."""
        draw = random.Random(f"{seed} {number}")
        return Task("".join(draw.choices("abcdefgh", k=draw.randint(self.longest // 2, self.longest))), "")

    def reply(self, _task: Task, responses: Sequence[str], *, ended: bool) -> str | Outcome:  # noqa: ARG002 - the interface
        """The reward of a response."""
        content = responses[-1].encode()
        return Outcome(sum(byte % 2 == 0 for byte in content) / max(1, len(content)), correct=False)


def save_model(folder: Path, sizes: dict[str, int]) -> None:
    """Save a Llama with random weights, and a tokenizer that maps bytes to the first 256 of its tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # noqa: PLC0415 - an extra
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast  # noqa: PLC0415 - an extra

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    more = [f"<{number}>" for number in range(sizes["vocab_size"] - len(letters) - 1)]
    vocabulary = {text: number for number, text in enumerate([*letters, *more, END])}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END).save_pretrained(folder)
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**sizes, eos_token_id=len(vocabulary) - 1)).save_pretrained(folder)


def tables(folder: Path, more: dict[str, Any], *, steps: int) -> dict[str, Any]:
    """The tables of a recipe."""
    recipe: dict[str, Any] = {
        "out": str(folder / "run"),
        "steps": steps,
        "policy": {"load": str(folder / "model")},
        "environment": {"name": f"{__file__}:Noise"},
        "rollout": ROLLOUT,
        "estimator": {"name": "grpo", "standardize": True, "epsilon": 1e-6},
        "loss": {"name": "ppo", "clip_low": 0.2, "clip_high": 0.2, "aggregation": "token-mean"},
        "update": {"prompts": ROLLOUT["prompts"], "rows": 16, "rate": 1e-6},
        "checkpoint": {"every": steps},
        "completions": {"every": 0},
    }
    return recipe | {name: recipe.get(name, {}) | table for name, table in more.items()}


def _no_cache(_kind: str, _key: str, _fill: Callable[[Path], None]) -> Path:
    raise AssertionError  # there is no warm start


def child(folder: Path, name: str, steps: int) -> None:
    """Plan and train one recipe, and print a JSON line."""
    recipe = parse_recipe(tables(folder, RECIPES[name], steps=steps), where="recipe")
    plan = plan_memory(recipe)
    train(recipe, cache=_no_cache)
    lines = [json.loads(line) for line in (folder / "run" / "timing.jsonl").read_text(encoding="utf-8").splitlines()]
    # The first step has what is done once; the last has the checkpoint.
    times = {key: round(statistics.median(line[key] for line in lines[1:]), 3) for key in lines[0] if key != "step"}
    on_gpu = torch.cuda.is_available()
    peaks = {"peak": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()} if on_gpu else {}
    row = {"recipe": name, "planned": plan.total, **peaks, "needs": plan.needs, **times}
    print(json.dumps(row), flush=True)  # noqa: T201 - read by the parent


def main() -> None:
    """Print a JSON line per recipe."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--tiny", action="store_true", help="a model of a few thousand parameters, to try the benchmark"
    )
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--only", nargs="*", choices=list(RECIPES), default=list(RECIPES), help="recipes by name")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(Path(options.child[0]), options.child[1], options.steps)
        return
    with tempfile.TemporaryDirectory() as folder:
        save_model(Path(folder) / "model", TINY if options.tiny else SIZES)
        for name in options.only:
            command = [sys.executable, "-m", "benchmarks.costs.gpu", "--steps", str(options.steps)]
            subprocess.run([*command, "--child", folder, name], check=False)
            shutil.rmtree(Path(folder) / "run", ignore_errors=True)


if __name__ == "__main__":
    main()
