"""Packed and padded storage: every function with a token axis gives the same, in value and in gradient."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch
from batch_formula_pairs import WHOLE
from draws import Draw, cases
from formula_pairs import APART
from loss_formulas import LOSSES, fitting, loss_of
from torch import Tensor

import rl_sentinel.signal
from rl_sentinel.core.errors import InputError
from rl_sentinel.signal import logprob, minibatches, reduce
from rl_sentinel.signal.covariance import drawn_between
from rl_sentinel.signal.segments import Segments, narrowed, packed, padded, rows_taken

#: Number of random cases for each function.
CASES = 120

#: Columns of a draw with a token axis, besides the mask.
WIDE = ("logprob", "old", "ref", "rollout", "advantage", "value", "token_reward")

#: Functions that read no token, or take sequences or logits, whose rows are positions already.
_OTHERWISE = ("groups.", "reward.", "normalization.", "controller.", "scan.", "correction.trust.rejected_fraction")
_OUTCOME = [f"advantage.{n}." for n in ("grpo", "rloo", "opo", "passk", "remax", "maxrl", "gpg", "gdpo", "reinforce")]
_OUTCOME += ["advantage.reinforce_plus_plus_baseline."]

Call = Callable[[Draw], Tensor]

CALLS: dict[str, Call] = {
    name: pair.call for name, pair in (APART | WHOLE).items() if not name.startswith((*_OTHERWISE, *_OUTCOME))
}


def _loss(name: str) -> Call:
    return lambda x: loss_of(name, x, x.logprob, reduce.Aggregation("sequence-mean-token-mean", 3.0))


CALLS |= {f"loss.{name}.loss": _loss(name) for name in LOSSES}
CALLS["minibatches.aggregation"] = lambda x: torch.tensor(
    [
        minibatches.aggregation(m, mask=x.mask, group=x.group).denominator
        for m in ("token-mean", "sequence-mean-token-mean", "prompt-mean")
    ]
)


def _stored(x: Draw, *, rows_without: bool) -> tuple[Draw, Tensor]:
    """The draw packed; rows that train nothing have no token at all, if wanted."""
    length = torch.where(x.live, x.length, 0) if rows_without else x.length
    wide = {name: packed(getattr(x, name), length=length) for name in WIDE}
    wide["turn"] = packed(x.turn, length=length)
    mask: object = Segments(packed(x.mask, length=length), length)
    return replace(x, **wide, mask=mask), length  # type: ignore[arg-type]  # segments stand in the place of a mask


def _columns(name: str) -> tuple[str, ...]:
    """Those that a gradient is taken to: of a loss the policy's alone, of an advantage none, since it is a number."""
    return {"loss": ("logprob",), "advantage": ()}.get(name.partition(".")[0], WIDE)


def _leaves(x: Draw, columns: tuple[str, ...]) -> tuple[Draw, list[Tensor]]:
    found = {name: getattr(x, name).clone().requires_grad_() for name in columns}
    return replace(x, **found), list(found.values())


def _slopes(name: str, x: Draw) -> tuple[Tensor, list[Tensor | None]]:
    call = CALLS[name]
    wide, leaves = _leaves(x, _columns(name))
    found = call(wide)
    if not found.requires_grad:
        return found, [None] * len(leaves)
    total = found.sum() + found.square().sum() / 2
    return found.detach(), list(torch.autograd.grad(total, leaves, allow_unused=True))


def _alike(one: Tensor, other: Tensor, length: Tensor) -> bool:
    """Where padded columns hold tokens; what is not per token as it is."""
    mine = packed(one, length=length) if one.dim() == 2 else one
    kind = torch.float64
    return mine.shape == other.shape and torch.allclose(mine.to(kind), other.to(kind), rtol=1e-10, atol=1e-12)


@pytest.fixture(scope="module")
def drawn() -> list[Draw]:
    return list(cases(CASES, seed=5))


@pytest.mark.parametrize("name", CALLS)
def test_packed_equals_padded(name: str, drawn: list[Draw]) -> None:
    slopes = 0
    for i, one in enumerate(drawn):
        x = fitting(name.split(".")[1], one) if name.startswith("loss.") else one
        flat, length = _stored(x, rows_without=i % 2 == 0)
        (wide, up), (narrow, down) = _slopes(name, x), _slopes(name, flat)
        assert _alike(wide, narrow, length), (i, wide, narrow)
        for mine, theirs in zip(up, down, strict=True):
            assert (mine is None) == (theirs is None)
            if mine is not None and theirs is not None:
                slopes += 1
                assert _alike(mine, theirs, length), (i, mine, theirs)
    assert slopes > 0 or not name.startswith(("loss.", "kl.", "value.", "penalty.as_loss", "reduce.aggregate"))


def test_every_function_of_a_mask_is_compared() -> None:
    compared = {name.split(",")[0] for name in CALLS}
    apart = {"reduce.row_counts", "reduce.live_rows", "reduce.row_maxima", "scan.trained_first", "scan.lined_up"}
    apart |= {"scan.put_back"} | {f"segments.{n}" for n in ("trained", "narrowed", "rows_taken", "turns")}
    apart |= {"covariance.drawn_between"}  # by chance
    apart |= {f"logprob.{n}" for n in ("logprobs", "logprobs_and_entropy")}  # positions are rows of any shape
    apart |= {f"logprob.{n}_from_hidden" for n in ("logprobs", "logprobs_and_entropy", "squared_probabilities")}
    wanted = set()
    for module in _modules():
        for name, function in inspect.getmembers(module, inspect.isfunction):
            own = function.__module__ == module.__name__ and not name.startswith("_")
            if own and "mask" in inspect.signature(function).parameters:
                wanted.add(f"{module.__name__.removeprefix('rl_sentinel.signal.')}.{name}")
    assert wanted - apart - compared == set()
    assert "advantage.gae.advantages" in wanted & compared


def _modules() -> list[ModuleType]:
    found = pkgutil.walk_packages(rl_sentinel.signal.__path__, "rl_sentinel.signal.")
    public = (one.name for one in found if not {"kernels", "requirements", "validation"} & set(one.name.split(".")))
    return [importlib.import_module(name) for name in public]


def test_draws_of_chance_are_among_the_same_tokens(drawn: list[Draw]) -> None:
    assert len(drawn) >= 100
    for x in drawn[:100]:
        flat, length = _stored(x, rows_without=True)
        told: dict[str, Any] = {"low": -0.5, "high": 0.8, "share": 1.0, "generator": None}
        mine, theirs = (drawn_between(one.value, mask=one.mask, **told) for one in (x, flat))
        assert torch.equal(packed(mine, length=length), theirs)


def test_log_probs_of_packed_positions(drawn: list[Draw]) -> None:
    x = drawn[3]
    flat, length = _stored(x, rows_without=False)
    logits = torch.randn(*x.mask.shape, 7, generator=torch.Generator().manual_seed(0))
    token = torch.zeros_like(x.mask, dtype=torch.long)
    wide = logprob.logprobs(logits, token, mask=x.mask, temperature=1.0)
    some = torch.arange(5) < length.unsqueeze(1)
    mask = flat.mask.mask  # type: ignore[attr-defined]  # segments stand in the place of a mask
    assert torch.equal(logprob.logprobs(logits[some], token[some], mask=mask, temperature=1.0), wide[some])


WRONG = {
    "a mask of numbers": (
        torch.ones(3),
        torch.tensor([3]),
        "mask is float32 of shape [3], expected a bool tensor of shape [N]",
    ),
    "a padded mask": (torch.ones(1, 3).bool(), torch.tensor([3]), "mask is bool of shape [1, 3], expected a bool"),
    "lengths of numbers": (
        torch.ones(3).bool(),
        torch.tensor([3.0]),
        "length is float32 of shape [1], expected a tensor",
    ),
    "a negative length": (torch.ones(3).bool(), torch.tensor([4, -1]), "length[1] is -1, expected 0 tokens or more"),
    "too few tokens": (torch.ones(3).bool(), torch.tensor([1, 1]), "length adds up to 2, expected 3, the tokens of"),
}


@pytest.mark.parametrize("name", WRONG)
def test_refusals(name: str) -> None:
    mask, length, told = WRONG[name]
    with pytest.raises(InputError) as refused:
        Segments(mask, length)
    assert str(refused.value).startswith(told)


def test_as_many_tokens_as_rows() -> None:
    mask = Segments(torch.ones(2).bool(), torch.tensor([2, 0]))
    first, second = torch.tensor([True, False]), torch.tensor([False, True])
    found = [narrowed(mask, kept, of_rows=of_rows) for kept in (first, second) for of_rows in (True, False)]
    assert [list(one.mask) for one in found if isinstance(one, Segments)] == [
        [True, True],
        [True, False],
        [False, False],
        [False, True],
    ]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            lambda: narrowed(torch.ones(2, 3).bool(), torch.ones(3).bool(), of_rows=True),
            "kept is bool of shape [3], expected a bool tensor of shape [2]: one decision for each row",
        ),
        (
            lambda: narrowed(Segments(torch.ones(2).bool(), torch.tensor([2])), torch.ones(1).bool(), of_rows=False),
            "kept is bool of shape [1], expected a bool tensor of shape [2]: one decision for each token",
        ),
        (
            lambda: narrowed(torch.ones(2, 3).bool(), torch.ones(2), of_rows=True),
            "kept is float32 of shape [2], expected a bool tensor of shape [2]: one decision for each row",
        ),
        (
            lambda: rows_taken(torch.ones(2, 3).bool(), torch.tensor([0, 7])),
            "rows[1] is 7, expected a number from 0 to 1: a row of the mask",
        ),
        (
            lambda: rows_taken(Segments(torch.ones(2).bool(), torch.tensor([2])), torch.tensor([-1])),
            "rows[0] is -1, expected a number from 0 to 0: a row of the mask",
        ),
        (
            lambda: packed(torch.zeros(2, 3), length=torch.tensor([3, -1])),
            "length[1] is -1, expected 0 tokens or more",
        ),
        (
            lambda: packed(torch.zeros(2, 3), length=torch.tensor([3, 9])),
            "length[1] is 9, expected at most 3: that is the width of the values",
        ),
        (
            lambda: packed(torch.zeros(2, 3), length=torch.tensor([3, 1, 1])),
            "values have shape [2, 3], expected [3, T]: a row of tokens for each length",
        ),
        (
            lambda: packed(torch.zeros(3), length=torch.tensor([3])),
            "values have shape [3], expected [1, T]: a row of tokens for each length",
        ),
        (
            lambda: padded(torch.zeros(2), length=torch.tensor([3, -1]), width=4, fill=0.0),
            "length[1] is -1, expected 0 tokens or more",
        ),
        (
            lambda: padded(torch.zeros(2, 2), length=torch.tensor([2]), width=4, fill=0.0),
            "values have shape [2, 2], expected [N]: packed tokens have one axis",
        ),
    ],
)
def test_parts_refuse(call: Callable[[], object], told: str) -> None:
    with pytest.raises(InputError) as refused:
        call()
    assert str(refused.value) == told


def test_padding_refuses() -> None:
    with pytest.raises(InputError, match=r"^width is 1, expected at least 2, the length of the longest row$"):
        padded(torch.zeros(2), length=torch.tensor([2]), width=1, fill=0.0)
    with pytest.raises(InputError, match=r"^length adds up to 1, expected 2, the tokens given$"):
        padded(torch.zeros(2), length=torch.tensor([1]), width=2, fill=0.0)


def test_a_width_that_no_tensor_can_have_is_refused() -> None:
    with pytest.raises(InputError, match=r"expected less than 2\*\*63"):
        padded(torch.tensor([1.0]), length=torch.tensor([1]), width=2**63, fill=0.0)
    assert padded(torch.tensor([1.0]), length=torch.tensor([1]), width=200, fill=0.0).shape == (1, 200)
