"""Calling a boundary: copies in, checked tensors out, refusals told from accidents."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rl_sentinel.audit.engine.executor import Asker, Misbehaved
from rl_sentinel.audit.sandbox import heartbeat as pulse
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.case import with_layout
from rl_sentinel.core.errors import NotApplicable, Refused
from rl_sentinel.search.small_cases import small_cases
from specimens import specimen

CASE = small_cases()[0]


def _asker(compute: Any, **more: Any) -> Asker:
    return Asker(specimen(compute, reads="reward mask", **more), {})


def _raising(error: Exception) -> Asker:
    def compute(_batch: Batch) -> Tensor:
        raise error

    return _asker(compute)


def test_case_is_never_changed() -> None:
    def compute(batch: Batch) -> Tensor:
        batch.reward.mul_(0)
        return batch.reward.unsqueeze(1) * batch.mask

    before = CASE.batch.reward.clone()
    seen = _asker(compute)(CASE, watched=True)
    assert torch.equal(CASE.batch.reward, before)
    assert not seen.inputs_after["reward"].any()


def test_each_column_is_copied_once_and_can_be_replaced() -> None:
    def compute(batch: Batch) -> Tensor:
        batch.reward.add_(1)
        other = with_columns(batch, group=batch.group + 1)
        assert other.reward is batch.reward
        assert (batch.rows, batch.width, other.rows) == (2, 2, 2)
        assert torch.equal(other.old_logprob, CASE.batch.old_logprob)
        return other.reward.unsqueeze(1) * other.mask

    seen = _asker(compute)(CASE)
    assert torch.equal(seen.values["advantage"][:, 0], CASE.batch.reward + 1)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (
            lambda _b: {"advantage": None},
            "output 'advantage' is of type NoneType, expected a tensor of shape [2, 2] (axes B T)",
        ),
        (lambda _b: {}, "output 'advantage' is of type NoneType, expected a tensor of shape [2, 2] (axes B T)"),
        (lambda b: b.reward, "output 'advantage' has shape [2], expected [2, 2] (axes B T)"),
    ],
)
def test_output_that_is_not_what_is_declared(made: Any, words: str) -> None:
    with pytest.raises(Misbehaved) as told:
        _asker(made)(CASE)
    assert str(told.value) == words


def test_output_of_one_number_is_called_so() -> None:
    boundary = specimen(lambda b: b.reward, reads="reward", stage="aggregate", outputs={"loss": Output("", "", "loss")})
    with pytest.raises(Misbehaved) as told:
        Asker(boundary, {})(CASE)
    assert str(told.value) == "output 'loss' has shape [2], expected one number"


def test_refusal_in_words_is_told_from_an_accident() -> None:
    with pytest.raises(Refused, match=r"^ValueError: groups of one$"):
        _raising(ValueError("groups of one"))(CASE)
    with pytest.raises(AssertionError, match=r"^$"):
        _raising(AssertionError())(CASE)
    with pytest.raises(KeyError):
        _raising(KeyError("uid"))(CASE)
    with pytest.raises(NotApplicable, match="absent"):
        _raising(NotApplicable("absent"))(CASE)


def test_every_generator_is_seeded() -> None:
    def compute(batch: Batch) -> Tensor:
        drawn = torch.rand(batch.mask.shape) + float(np.random.random())  # noqa: NPY002 - what targets do
        return drawn * batch.reward.unsqueeze(1)

    ask = _asker(compute)
    assert torch.equal(ask(CASE).values["advantage"], ask(CASE).values["advantage"])


def test_gradients_of_the_loss() -> None:
    loss = {"loss": Output("", "", "loss")}
    more: dict[str, Any] = {"stage": "policy-loss", "outputs": loss}
    ask = Asker(specimen(lambda b: (b.logprob * b.mask).sum(), reads="logprob mask", **more), {})
    slopes = ask(CASE, gradients=("logprob", "value")).gradients
    assert torch.equal(slopes["logprob"], CASE.batch.mask.float())
    assert not slopes["value"].any()
    still = Asker(specimen(lambda b: b.logprob.detach().sum(), reads="logprob mask", **more), {})
    assert not still(CASE, gradients=("logprob",)).gradients["logprob"].any()


def test_twin_is_asked_by_its_path_and_every_call_beats() -> None:
    one = specimen(lambda b: b.reward.unsqueeze(1) * b.mask, reads="reward mask")
    two: Boundary = specimen(lambda b: 2 * b.reward.unsqueeze(1) * b.mask, reads="reward mask", path="twin")
    ask = Asker(one, {"twin": two})
    mine = pulse.CallCounter()
    pulse.adopt(mine)
    assert torch.equal(2 * ask(CASE).values["advantage"], ask(CASE, on="twin").values["advantage"])
    assert mine.count == 2


def test_layouts_of_a_drawn_batch_are_asked_apart() -> None:
    """What is kept for one layout is no answer for another."""
    ask = _asker(lambda batch: batch.mask * float(batch.width))
    ask.cache[id(CASE.batch)] = {}
    plain, wide = (ask(case).values["advantage"].max().item() for case in (CASE, with_layout(CASE, extra=2)))
    assert wide == plain + 2
