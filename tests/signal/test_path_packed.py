"""The composed path beside packed columns: what is of rows, and what is of tokens."""

import inspect
from functools import partial

import pytest
import torch
from jaxtyping import Bool

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.advantage import grpo
from rl_sentinel.signal.choices import Choices
from rl_sentinel.signal.correction import rejection, weights
from rl_sentinel.signal.path import loss_ready
from rl_sentinel.signal.rollout import Rollout
from rl_sentinel.signal.segments import Segments, packed, trained

CENTERED = partial(grpo.advantages, standardize=False, epsilon=0.0)

#: Numbers of the rejections and bounds, by parameter.
NUMBERS = {"estimator": "k1", "over": "sum", "low": -0.5, "high": 0.5, "floor": 0.5}

COMPARING = {
    name: partial(function, **{n: NUMBERS[n] for n in inspect.signature(function).parameters if n in NUMBERS})
    for module in (rejection, weights)
    for name, function in inspect.getmembers(module, inspect.isfunction)
    if function.__module__ == module.__name__ and not name.startswith("_")
    if "rollout_logprob" in inspect.signature(function).parameters and name != "log_ratios"  # which decides nothing
}


@pytest.mark.parametrize("name", COMPARING)
def test_as_many_packed_tokens_as_rows(name: str) -> None:
    length, rows = torch.tensor([2, 0, 1]), {"reward": torch.tensor([1.0, 0.0, 2.0]), "group": torch.zeros(3).long()}
    mask = torch.arange(2) < length.unsqueeze(1)
    old, sampler = torch.tensor([[-1.0, -5.0], [0.0, 0.0], [-1.0, 0.0]]), torch.full((3, 2), -1.0)
    stage = {"weight": COMPARING[name]} if name.endswith("weights") else {"rejections": (COMPARING[name],)}
    by = Choices(estimator=CENTERED, **stage)
    wide = loss_ready(Rollout(mask=mask, old_logprob=old, rollout_logprob=sampler, **rows), by=by)
    flat = [packed(x, length=length) for x in (mask, old, sampler)]
    stored = Segments(flat[0], length)
    told = loss_ready(Rollout(mask=stored, old_logprob=flat[1], rollout_logprob=flat[2], **rows), by=by)
    assert torch.equal(told.advantage, wide.advantage)
    for mine, theirs in ((trained(told.mask), trained(wide.mask)), (told.weight, wide.weight)):
        assert (mine is None) == (theirs is None)
        assert mine is None or theirs is None or torch.equal(mine, packed(theirs, length=length))


def test_what_does_not_say_whether_it_is_of_rows() -> None:
    rows = {"reward": torch.zeros(2), "group": torch.zeros(2).long()}
    by = Choices(estimator=CENTERED, rejections=(lambda _old, _rollout, *, mask: mask.any(dim=1),))
    wide = torch.zeros(2, 2)
    known = {"old_logprob": wide, "rollout_logprob": wide}
    assert loss_ready(Rollout(mask=wide == 0, **rows, **known), by=by).kept.all()
    mask, flat = Segments(torch.ones(2).bool(), torch.tensor([2, 0])), torch.zeros(2)
    by = Choices(estimator=CENTERED, rejections=(lambda *_, mask: mask.mask,))
    with pytest.raises(InputError, match=r"^return annotation of test_path_packed\..* has no axes, expected Float"):
        loss_ready(Rollout(mask=mask, old_logprob=flat, rollout_logprob=flat, **rows), by=by)


def _keeping(_old: torch.Tensor, _rollout: torch.Tensor, *, mask: Segments) -> torch.Tensor:
    del mask
    return torch.tensor([True, False, True])


@pytest.mark.parametrize("told", [Bool[torch.Tensor, "rows"], "Bool[Unimported, 'rows']"])
def test_axes_of_another_name(told: object) -> None:
    _keeping.__annotations__["return"] = told
    flat = torch.zeros(3)
    rollout = Rollout(
        reward=flat,
        group=flat.long(),
        mask=Segments(flat == 0, torch.tensor([0, 2, 1])),
        old_logprob=flat,
        rollout_logprob=flat,
    )
    with pytest.raises(
        InputError, match=r"^return annotation of test_path_packed\._keeping has (axes rows|no axes), expected"
    ):
        loss_ready(rollout, by=Choices(estimator=CENTERED, rejections=(_keeping,)))
