"""Sound arguments for every public function of ``signal``, by the names of its parameters."""

import ast
import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import rl_sentinel.signal
from rl_sentinel.signal.advantage import rloo
from rl_sentinel.signal.normalisation import Normalisation
from rl_sentinel.signal.reduce import Aggregation

ROOT = Path(rl_sentinel.signal.__path__[0])

MASK = torch.tensor([[True, True, False], [True, True, True]])
WIDE = torch.tensor([[-0.5, -1.0, -1.5], [-0.7, -0.2, -0.1]])
ROW = torch.tensor([0.5, 1.0])

#: Parameters of tensors -> what is sound; others hold a column of numbers per token.
SOUND: dict[str, Tensor] = {
    **dict.fromkeys(("reward", "reward_baseline", "row"), ROW),
    **dict.fromkeys(("live", "scored", "keep", "last"), torch.tensor([True, True])),
    **dict.fromkeys(("group", "trajectory"), torch.tensor([3, 4])),
    **dict.fromkeys(("length", "prompt_length", "tokens"), torch.tensor([1, 2])),
    **dict.fromkeys(("mask", "chosen", "fact"), MASK),
    "reward_parts": torch.ones(2, 2),
    "logits": torch.zeros(2, 3, 5),
    "token": torch.zeros(2, 3, dtype=torch.long),
    "pi_squared": WIDE.exp(),
    "version": torch.zeros(2, 3, dtype=torch.long),
    "turn": torch.tensor([[0, 0, 9], [2, 2, 3]]),
}

#: What else is given.
GIVEN: dict[str, Any] = {
    "aggregation": Aggregation("token-mean", 3.0),
    "by": Normalisation(mean="batch", deviation="none", leave_one_out=False, biased=False, epsilon=0.0),
    "generator": None,
    "estimator": "k1",
    "over": "sum",
    "mode": "token-mean",
    "predicts_next": False,
    "standardise": True,
    "biased": False,
    "width": 3,
    "denominator": 2.0,
    "prompts": 1,
    "share": 0.5,
    "ceiling": 3.0,
    "limit": 5,
    "buffer": 2,
    "low": 0.1,
    "high": 2.0,
    "least": -1.0,
    "most": 1.0,
    "current": 3,
}

#: Function -> parameters that hold another thing there.
OWN: dict[str, dict[str, Any]] = {
    **{f"groups.{n}": {"values": ROW} for n in ("group_sums", "group_maxima", "deviations", "moments")},
    "groups.centred": {"values": ROW, "weight": ROW},
    "groups.require_finite": {"values": ROW},
    "advantage.gdpo.advantages": {"weight": ROW},
    **{f"correction.bounds.{n}": {"weight": WIDE.exp()} for n in ("truncated", "clipped", "masked", "self_normalised")},
    "metrics.effective_sample_size": {"weight": WIDE.exp()},
    "minibatches.aggregation": {"length": None, "group": None},
    "steps.over_trajectories": {"estimator": rloo.advantages},
    "align.response_aligned": {"values": torch.zeros(2, 4)},
}

#: Functions of no tensors or of records, whose refusals are tested beside them; those that are refusals themselves.
APART = {"path.is_outcome", "path.loss_ready", "ready.prompts_apart", "ready.trusted", "rollout.laid_out"}
APART |= {f"merging.{n}" for n in ("merge", "counts")}
APART |= {
    f"segments.{n}" for n in ("packed", "padded", "trained", "narrowed", "rows_of", "rows_taken", "turns", "lengths")
}
#: What refuses.
REFUSING = ("answered", "checked", "finite", "instance", "kinds", "ordered", "possible", "probabilities", "within")
APART |= {f"checks.{n}" for n in REFUSING}
APART |= {"blocks.summed", "blocks.by_rows", "scan.lined_up", "scan.put_back"}  # parts of others, which have checked
APART |= {f"ratios.{n}" for n in ("weighed", "exponential", "traced")}

#: Parts that a NaN passes through, to be refused by whatever is made of them.
PARTS = {f"reduce.{n}" for n in ("selected", "row_sums", "row_means", "row_maxima", "aggregate")}
PARTS |= {"align.spread", "align.at_last", "align.response_aligned", "scan.discounted_suffix_sums"}
PARTS |= {"groups.group_sums", "groups.group_maxima"}


def _public() -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                module = importlib.import_module(f"rl_sentinel.signal.{name}")
                found[f"{name}.{node.name}"] = getattr(module, node.name)
    return {name: function for name, function in found.items() if name not in APART}


PUBLIC = _public()


def arguments(name: str) -> dict[str, Any]:
    """Arguments that are taken: by their names, and 0.5 for any other number."""
    found: dict[str, Any] = {}
    for one, about in inspect.signature(PUBLIC[name]).parameters.items():
        column = "Tensor" in str(about.annotation) or "Float[" in str(about.annotation) or one in SOUND
        found[one] = SOUND.get(one, GIVEN.get(one, WIDE if column else 0.5))
    return found | OWN.get(name, {})
