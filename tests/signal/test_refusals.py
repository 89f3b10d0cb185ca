"""Bad input to any public function: one line that names it, what it is, and what was expected."""

import ast
import importlib
import inspect
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

import rl_sentinel.signal
from rl_sentinel.core.errors import InputError
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
    "minibatches.aggregation": {"length": None, "group": None},
    "steps.over_trajectories": {"estimator": rloo.advantages},
    "align.response_aligned": {"values": torch.zeros(2, 4)},
}

#: Functions of no tensors or of records, whose refusals are tested beside them; those that are refusals themselves.
APART = {"path.is_outcome", "path.loss_ready", "ready.prompts_apart", "ready.trusted", "rollout.laid_out"}
APART |= {"merging.merge", "merging.counts"}
APART |= {f"segments.{n}" for n in ("packed", "padded", "trained", "narrowed", "rows_taken", "turns", "lengths")}
APART |= {f"checks.{n}" for n in ("answered", "checked", "finite", "instance", "kinds", "ordered", "within")}
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


def _is_whole(dtype: torch.dtype) -> bool:
    """Whether numbers of that type are whole, and can be made: torch has types by name alone."""
    return re.fullmatch(r"torch\.u?int(8|16|32|64)", str(dtype)) is not None


def _sound(name: str) -> dict[str, Any]:
    """Arguments that are taken: by their names, and 0.5 for any other number."""
    found: dict[str, Any] = {}
    for one, about in inspect.signature(PUBLIC[name]).parameters.items():
        column = "Tensor" in str(about.annotation) or "Float[" in str(about.annotation) or one in SOUND
        found[one] = SOUND.get(one, GIVEN.get(one, WIDE if column else 0.5))
    return found | OWN.get(name, {})


def _refused(name: str, changed: dict[str, Any]) -> str:
    with pytest.raises(InputError) as refused:
        PUBLIC[name](**{**_sound(name), **changed})
    return str(refused.value)


@pytest.mark.parametrize("name", PUBLIC)
def test_sound_input_is_taken(name: str) -> None:
    """So that each refusal below is of what was changed."""
    PUBLIC[name](**_sound(name))


@pytest.mark.parametrize("name", PUBLIC)
def test_bad_input_is_refused_in_one_line(name: str) -> None:
    """Other kinds (a mask of numbers among them), another axis, another row beside the others, and no number."""
    tensors = {n: v for n, v in _sound(name).items() if isinstance(v, Tensor)}
    told = []
    for one, sound in tensors.items():
        other = sound.float() if not sound.is_floating_point() else sound > 0
        told.append((one, _refused(name, {one: other})))
        told.append((one, _refused(name, {one: sound.unsqueeze(-1)})))
        if len(tensors) > 1:
            told.append((one, _refused(name, {one: torch.cat([sound, sound[:1]])})))
        if sound.is_floating_point() and name not in PARTS:
            wrong = sound.clone()
            wrong.view(-1)[0] = torch.nan
            told.append((one, _refused(name, {one: wrong})))
        if "length" in one or one == "tokens":
            told.append((one, _refused(name, {one: sound - 9})))
    for one, message in told:
        assert "\n" not in message, (one, message)
        assert ", expected " in message, (one, message)


@pytest.mark.parametrize("name", PUBLIC)
def test_what_is_no_tensor_or_no_number_is_refused_in_one_line(name: str) -> None:
    """None, a list, an array in the place of each tensor; words, None, NaN and halves in the place of each number."""
    told = []
    for one, value in _sound(name).items():
        kind = inspect.signature(PUBLIC[name]).parameters[one].annotation
        strange: tuple[Any, ...] = (None, value.tolist(), value.numpy()) if isinstance(value, Tensor) else ()
        if isinstance(value, Tensor) and one == "weight" and type(None) in get_args(kind):
            strange = strange[1:]
        if kind in (float, int):
            strange = ("0.5", None, torch.nan, *[0.5] * (kind is int))
        told += [(one, _refused(name, {one: wrong})) for wrong in strange]
    for one, message in told:
        assert "\n" not in message, (one, message)
        assert ", expected " in message, (one, message)


WHOLE_NUMBERS = {d for d in vars(torch).values() if isinstance(d, torch.dtype) and _is_whole(d)}
LABELLED = [n for n in PUBLIC if any(isinstance(v, Tensor) and _is_whole(v.dtype) for v in _sound(n).values())]


@pytest.mark.parametrize("dtype", sorted(WHOLE_NUMBERS, key=str), ids=str)
@pytest.mark.parametrize("name", LABELLED)
def test_whole_numbers_of_every_width_are_taken(name: str, dtype: torch.dtype) -> None:
    """Labels, lengths, tokens and versions: what comes of them does not depend on the width, and nothing wraps."""
    sound = _sound(name)
    whole = {n: v.to(dtype) for n, v in sound.items() if isinstance(v, Tensor) and _is_whole(v.dtype)}
    expected, found = (_numbers(PUBLIC[name](**{**sound, **more})) for more in ({}, whole))
    torch.testing.assert_close(found, expected, equal_nan=True)


def _numbers(answer: Any) -> Any:
    """Of a record its tensors and numbers."""
    if not is_dataclass(answer):
        return answer
    return [getattr(answer, f.name) for f in fields(answer) if not isinstance(getattr(answer, f.name), str | None)]


def test_numbers_outside_their_range_are_refused() -> None:
    """An example of each; the audit of the library tries more."""
    for name, changed in (
        ("advantage.gae.advantages", {"decay": 1.5}),
        ("advantage.turn_level_gae.advantages", {"turn": torch.tensor([[1, 0, 9], [2, 2, 3]])}),
        ("advantage.grpo.advantages", {"epsilon": -1.0}),
        ("scan.discounted_suffix_sums", {"discount": 2.0}),
        ("covariance.largest", {"share": 0.0}),
        ("metrics.clip_fraction", {"clip_low": -0.1}),
        ("minibatches.prompt_minibatches", {"prompts": 0}),
        ("logprob.logprobs", {"temperature": 0.0}),
        ("logprob.logprobs", {"token": torch.full((2, 3), 5)}),
    ):
        assert ", expected " in _refused(name, changed)
