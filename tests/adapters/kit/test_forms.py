"""Layouts of a tensor, each on one value written by hand."""

from typing import Any

import pytest
import torch

from adapters.kit.by_hand import BATCH, SIZES
from rl_sentinel.adapters.kit.forms import (
    AfterPrompt,
    Cast,
    Number,
    Packed,
    Padded,
    PerRow,
    Ragged,
    RightAligned,
    ZeroPadded,
    lengths_of,
    mask_of,
)
from rl_sentinel.core.call import same_value
from rl_sentinel.core.codec import Form, Inputs, Sizes
from rl_sentinel.core.layout import Layout

RAW = [[-1.0, -2.0, -3.0], [-4.0, -9.0, -9.0]]
ZEROED = [[-1.0, -2.0, -3.0], [-4.0, 0.0, 0.0]]
WIDER = torch.tensor([[-1.0, -2.0, -3.0, 0.0], [-4.0, -9.0, -9.0, 0.0]])


@pytest.mark.parametrize(
    ("form", "extra", "value", "read"),
    [
        (Padded(), 0, torch.tensor(RAW), RAW),
        (Padded(), 1, WIDER, RAW),
        (ZeroPadded(), 0, torch.tensor(ZEROED), ZEROED),
        (RightAligned(), 0, torch.tensor([[-1.0, -2.0, -3.0], [0.0, 0.0, -4.0]]), ZEROED),
        (RightAligned(), 1, torch.tensor([[0.0, -1.0, -2.0, -3.0], [0.0, 0.0, 0.0, -4.0]]), ZEROED),
        (Ragged(), 0, [torch.tensor([-1.0, -2.0, -3.0]), torch.tensor([-4.0])], ZEROED),
        (Ragged(plain=True), 0, [[-1.0, -2.0, -3.0], [-4.0]], ZEROED),
        (Packed(), 0, torch.tensor([-1.0, -2.0, -3.0, -4.0]), ZEROED),
        (AfterPrompt(), 0, torch.tensor([[0.0, -1.0, -2.0, -3.0], [0.0, -4.0, -9.0, -9.0]]), RAW),
    ],
)
def test_numbers_of_tokens(form: Form, extra: int, value: object, read: list[list[float]]) -> None:
    """What is laid out, read by the form and by the source that a script has."""
    column = BATCH.logprob
    assert same_value(form.lay_out(column, Inputs(BATCH, layout=Layout(extra=extra))), value)
    assert form.read(value, SIZES).tolist() == read
    assert torch.equal(torch.where(BATCH.valid, form.canonical(column, BATCH), 0), torch.tensor(ZEROED))
    if form != Ragged(plain=True):  # which no output has
        scripted = eval(form.source("x", SIZES), {"torch": torch, "x": value})  # noqa: S307 - source of a form
        assert scripted[:, :3].tolist() == read


@pytest.mark.parametrize(
    ("form", "value"),
    [
        (PerRow(), torch.tensor([1.5, -2.0])),
        (PerRow("list"), [1.5, -2.0]),
        (PerRow("column"), torch.tensor([[1.5], [-2.0]])),
    ],
)
def test_numbers_of_rows(form: Form, value: Any) -> None:
    """A tensor, a list, a column."""
    assert same_value(form.lay_out(BATCH.reward, Inputs(BATCH)), value)
    assert form.read(value, SIZES).tolist() == [1.5, -2.0]
    assert form.sizes(value).rows == 2


def test_response_without_a_token_at_the_right_end() -> None:
    """It is a row of padding in a script, as in an audit."""
    value, sizes = torch.tensor([[0.0, 0.0], [0.0, -4.0]]), Sizes(rows=2, width=2, length=torch.tensor([0, 1]))
    form = RightAligned()
    scripted = eval(form.source("x", sizes), {"torch": torch, "x": value})  # noqa: S307 - source of a form
    assert scripted.tolist() == form.read(value, sizes).tolist() == [[0.0, 0.0], [-4.0, 0.0]]


def test_one_number() -> None:
    """Of the batch, as a Python number too; another dtype where a form says so."""
    assert Number().read(3, SIZES).item() == 3.0
    kept = Cast(PerRow(), torch.float32)
    assert kept.read(torch.tensor([True, False]), SIZES).tolist() == [1.0, 0.0]
    assert kept.lay_out(torch.tensor([True]), Inputs(BATCH)).dtype == torch.float32


@pytest.mark.parametrize(("size", "words"), [(lengths_of, "lengths of the responses"), (mask_of, "mask")])
def test_a_size_that_no_argument_tells(size: Any, words: str) -> None:
    """Is named."""
    with pytest.raises(ValueError, match=rf"^{words} (is|are) unknown, expected an argument that determines "):
        size(Sizes())
