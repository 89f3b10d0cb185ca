"""Properties of every public function: its annotated result, nothing read off the mask, finite where nothing trains."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_args, get_origin

import jaxtyping
import pytest
import torch
from sound_arguments import PUBLIC, arguments, words
from torch import Tensor

from rl_sentinel.signal.segments import Mask

#: A row with a gap, one that starts with a gap, and one that does not train.
TRAINED = torch.tensor([[True, True, False, False], [True, False, True, True], [False] * 4])

#: Parameters that say where a row or token belongs; they count wherever they stand.
LAYOUT = {"mask", "live", "group", "length", "prompt_length", "trajectory", "tokens"}

#: Functions of nothing that give minus infinity.
OF_NOTHING = {"reduce.row_maxima", "groups.group_maxima"}

#: Functions of tokens that also take numbers of rows.
OF_ROWS_TOO = ("metrics.statistics", "metrics.share", "metrics.effective_sample_size", "staleness.staleness")

MASKED = [n for n, f in PUBLIC.items() if {"mask", "live"} & set(inspect.signature(f).parameters)]


def _calls(name: str, mask: Tensor = TRAINED) -> list[dict[str, Any]]:
    """Valid arguments with every combination of words and flags."""
    return [arguments(name, mask) | chosen for chosen in words(name)]


def _tensors(result: Any) -> list[Tensor]:
    return [x for x in (result if isinstance(result, tuple) else (result,)) if isinstance(x, Tensor)]


def _annotations(function: Callable[..., Any]) -> list[Any]:
    """Annotations of what a function returns, one for each entry."""
    kind = inspect.signature(function).return_annotation
    if isinstance(kind, type) and hasattr(kind, "_fields"):
        return list(inspect.get_annotations(kind).values())
    return list(get_args(kind)) if get_origin(kind) is tuple else [kind]


@pytest.mark.parametrize("name", PUBLIC)
def test_the_result_is_as_annotated(name: str) -> None:
    function = PUBLIC[name]
    kinds = {n: p.annotation for n, p in inspect.signature(function).parameters.items()}
    for given in _calls(name):
        with jaxtyping.jaxtyped("context"):
            assert all(isinstance(given[n], k) for n, k in kinds.items() if n in given and hasattr(k, "dtypes"))
            assert "mask" not in kinds or isinstance(given["mask"], get_args(Mask)[0])
            result = function(**given)
            entries = result if isinstance(result, tuple) else (result,)
            wrong = [
                (x, k)
                for x, k in zip(entries, _annotations(function), strict=False)
                if hasattr(k, "dtypes") and not isinstance(x, k)
            ]
            assert wrong == []


@pytest.mark.parametrize("name", MASKED)
def test_nothing_is_read_off_the_mask(name: str) -> None:
    for given in _calls(name):
        masks = [given[n] for n in ("mask", "live") if n in given]
        masks += [TRAINED.any(dim=1)] if masks[0].dim() > 1 else []
        other = {n: v if n in LAYOUT else _ruined(v, masks) for n, v in given.items()}
        for one, expected in zip(*(_tensors(PUBLIC[name](**g)) for g in (other, given)), strict=True):
            where = next((m for m in masks if m.shape == one.shape), torch.ones_like(one, dtype=torch.bool))
            torch.testing.assert_close(one[where], expected[where], rtol=1e-4, atol=1e-6)


def _ruined(value: Any, masks: list[Tensor]) -> Any:
    """The column with NaN, 99 or True where its mask is False."""
    if not isinstance(value, Tensor):
        return value
    counts = next((m for m in masks if m.shape == value.shape[: m.dim()]), None)
    if counts is None:
        return value
    off = ~counts.reshape(*counts.shape, *[1] * (value.dim() - counts.dim()))
    return (
        value | off
        if value.dtype == torch.bool
        else value.masked_fill(off, torch.nan if value.is_floating_point() else 99)
    )


@pytest.mark.parametrize("mask", [torch.zeros_like(TRAINED), TRAINED[:, :0]], ids=["nothing trains", "no tokens"])
@pytest.mark.parametrize("name", [n for n in MASKED if n not in OF_NOTHING])
def test_results_of_nothing_are_finite(name: str, mask: Tensor) -> None:
    for given in _calls(name, mask):
        assert all(bool(x.isfinite().all()) for x in _tensors(PUBLIC[name](**given)))


@pytest.mark.parametrize("name", [n for n in PUBLIC if n.startswith(("metrics.", "staleness."))])
def test_numbers_for_the_log_carry_no_gradient(name: str) -> None:
    (given, *_) = _calls(name)
    assert not any(x.requires_grad for x in _tensors(PUBLIC[name](**with_gradients(given))))


@pytest.mark.parametrize("name", OF_ROWS_TOO)
def test_numbers_of_rows_are_tokens_of_their_own(name: str) -> None:
    """Columns ``[B]`` give what columns ``[B, 1]`` do."""
    (given, *_) = _calls(name)
    column = {n: v[:, :1] if isinstance(v, Tensor) else v for n, v in given.items()}
    row = {n: v[:, 0] if isinstance(v, Tensor) else v for n, v in given.items()}
    assert PUBLIC[name](**row) == PUBLIC[name](**column)


def with_gradients(given: Mapping[str, Any]) -> dict[str, Any]:
    """The same arguments, each column of floating numbers a leaf."""
    floats = {n: v for n, v in given.items() if isinstance(v, Tensor) and v.is_floating_point()}
    return {**given, **{n: v.detach().clone().requires_grad_() for n, v in floats.items()}}
