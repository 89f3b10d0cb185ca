"""Sound arguments for every public function of ``signal``, by the names of its parameters."""

import ast
import importlib
import inspect
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import torch
from torch import Tensor

import rl_sentinel.signal
from rl_sentinel.signal.advantage import rloo
from rl_sentinel.signal.normalization import Normalization
from rl_sentinel.signal.reduce import Aggregation

ROOT = Path(rl_sentinel.signal.__path__[0])

MASK = torch.tensor([[True, True, False], [True, True, True]])
WIDE = torch.tensor([[-0.5, -1.0, -1.5], [-0.7, -0.2, -0.1]])
ROW = torch.tensor([0.5, 1.0])


def columns(mask: Tensor) -> dict[str, Tensor]:
    """Sound tensors beside a padded mask, by parameter; every other parameter is a column of :func:`wide`."""
    rows, width = mask.shape
    length, of_rows = torch.arange(rows) % 2 + 1, torch.ones(rows, 1)
    return {
        **dict.fromkeys(("reward", "reward_baseline", "row"), torch.tensor([0.5, 1.0, 0.25])[:rows]),
        **dict.fromkeys(("scored", "keep", "last"), torch.ones(rows).bool()),
        "group": torch.tensor([3, 4, 4])[:rows],
        "trajectory": torch.tensor([3, 4, 5])[:rows],
        **dict.fromkeys(("length", "prompt_length", "tokens"), length),
        **dict.fromkeys(("mask", "chosen", "fact"), mask),
        "live": mask.any(dim=1),
        "reward_parts": of_rows * torch.tensor([1.0, 2.0]),
        "logits": torch.stack([wide(mask), wide(mask) * 2, -wide(mask), torch.full(mask.shape, -torch.inf)], dim=2),
        **dict.fromkeys(("token", "version"), torch.arange(rows * width).reshape(rows, width) % 3),
        "pi_squared": wide(mask).exp(),
        "turn": (torch.arange(width) // 2).expand(rows, width),
    }


def wide(mask: Tensor) -> Tensor:
    """A column of log-probs, all different, in the shape of a mask."""
    return WIDE if mask is MASK else -(torch.arange(float(mask.numel())) % 11 + 1).reshape(mask.shape) / 16


#: What else is given.
GIVEN: dict[str, Any] = {
    "aggregation": Aggregation("token-mean", 3.0),
    "by": Normalization(mean="batch", deviation="none", leave_one_out=False, biased=False, epsilon=0.0),
    "generator": None,
    "estimator": "k1",
    "over": "sum",
    "mode": "token-mean",
    "predicts_next": False,
    "standardize": True,
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

#: Function -> parameters with other arguments than their names say, made for a mask.
OWN: dict[str, Callable[[Tensor], dict[str, Any]]] = {
    **{
        f"groups.{n}": lambda mask: {"values": columns(mask)["reward"]}
        for n in ("group_sums", "group_maxima", "deviations", "moments")
    },
    "groups.centered": lambda mask: dict.fromkeys(("values", "weight"), columns(mask)["reward"]),
    "advantage.gdpo.advantages": lambda _: {"weight": ROW},
    **{
        name: lambda mask: {"weight": wide(mask).exp()}
        for name in (
            *(f"correction.bounds.{n}" for n in ("truncated", "clipped", "masked", "self_normalized")),
            "metrics.effective_sample_size",
        )
    },
    **{
        f"logprob.{n}_from_hidden": lambda mask: {
            "hidden": torch.stack([wide(mask), -wide(mask)], dim=2),
            "weight": torch.tensor([[0.5, 0.0], [1.0, -1.0], [0.0, 0.0], [-0.5, 2.0]]),
        }
        for n in ("logprobs", "logprobs_and_entropy", "squared_probabilities")
    },
    "minibatches.aggregation": lambda _: {"length": None, "group": None},
    "steps.over_trajectories": lambda _: {"estimator": rloo.advantages},
    "align.response_aligned": lambda mask: {"values": torch.zeros(len(mask), 4)},
    "covariance.drawn_between": lambda _: {"low": -9.0, "high": 9.0, "share": 1.0},
}

#: Functions of no tensors or of records, whose refusals are tested beside them; those that are refusals themselves.
APART = {"choices.is_outcome", "path.loss_ready", "ready.prompts_apart", "ready.trusted", "rollout.laid_out"}
APART |= {f"merging.{n}" for n in ("merge", "counts")}
APART |= {f"segments.{n}" for n in ("packed", "padded", "trained", "narrowed", "rows_taken", "turns", "lengths")}
APART |= {"scan.lined_up", "scan.put_back", "ratios.weighed", "ratios.exponential"}  # parts of functions that check

#: Tensors whose first axis is their own: a head may have more words.
FREE = {f"logprob.{n}_from_hidden weight" for n in ("logprobs", "logprobs_and_entropy", "squared_probabilities")}

#: Parts that a NaN passes through, to be refused by whatever is made of them.
PARTS = {f"reduce.{n}" for n in ("selected", "row_sums", "row_means", "row_maxima", "aggregate")}
PARTS |= {"align.spread", "align.at_last", "align.response_aligned", "scan.discounted_suffix_sums"}
PARTS |= {"groups.group_sums", "groups.group_maxima"}


def _public() -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        if path.stem in {"requirements", "validation"} or path.parent.name == "kernels":
            continue
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                module = importlib.import_module(f"rl_sentinel.signal.{name}")
                found[f"{name}.{node.name}"] = getattr(module, node.name)
    return {name: function for name, function in found.items() if name not in APART}


PUBLIC = _public()


def arguments(name: str, mask: Tensor = MASK) -> dict[str, Any]:
    """Valid arguments of a public function beside a padded mask; 0.5 for a number that no table has."""
    tensors, made = columns(mask), dict[str, Any]()
    for one, about in inspect.signature(PUBLIC[name]).parameters.items():
        column = "Tensor" in str(about.annotation) or "Float[" in str(about.annotation)
        made[one] = tensors.get(one, GIVEN.get(one, wide(mask) + (len(one) % 5) / 64 if column else 0.5))
    return made | (OWN[name](mask) if name in OWN else {})


def words(name: str) -> list[dict[str, Any]]:
    """Every combination of the words and flags that a function may be called with."""
    kinds = {n: p.annotation for n, p in inspect.signature(PUBLIC[name]).parameters.items()}
    values: dict[str, tuple[Any, ...]] = {n: get_args(k) for n, k in kinds.items() if get_origin(k) is Literal}
    values |= {n: (True, False) for n, k in kinds.items() if k is bool}
    values.pop("mode", None)  # the other modes want another argument
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]
