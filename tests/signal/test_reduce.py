"""Sums and means with explicit denominators, by hand."""

from typing import Any

import pytest
import torch
from torch.autograd.forward_ad import dual_level, make_dual, unpack_dual

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal import covariance, metrics
from rl_sentinel.signal.correction import bounds
from rl_sentinel.signal.loss import importance_sampling
from rl_sentinel.signal.minibatches import aggregation
from rl_sentinel.signal.reduce import Aggregation, Mode, aggregate, row_maxima, row_means, row_sums, selected
from rl_sentinel.signal.segments import Segments

VALUES = torch.tensor([[1.0, 3.0, torch.nan], [8.0, torch.inf, 0.0], [5.0, 5.0, 5.0]])
MASK = torch.tensor([[True, True, False], [True, False, False], [False, False, False]])


def test_masked_values_are_selected_away() -> None:
    """NaN and infinity off the mask become exactly 0, forward and backward."""
    values = VALUES.clone().requires_grad_()
    chosen = selected(values, mask=MASK)
    assert chosen.tolist() == [[1.0, 3.0, 0.0], [8.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    (gradient,) = torch.autograd.grad(chosen.sum(), values)
    assert gradient.tolist() == MASK.float().tolist()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_selected_bit_for_bit(dtype: torch.dtype) -> None:
    """Every number that counts is itself, minus 0, NaN and the smallest included; strides do not matter."""
    info = torch.finfo(dtype)
    odd = [-0.0, 0.0, torch.nan, torch.inf, -torch.inf, info.max, info.min, info.tiny, info.smallest_normal / 2, -1.5]
    values = torch.tensor([odd, odd[::-1]], dtype=dtype)
    mask = torch.tensor([[True, False] * 5, [False, True] * 5])
    for given, where in ((values, mask), (values.t(), mask.t()), (values[:, ::2], mask[:, ::2])):
        found, expected = selected(given, mask=where), torch.where(where, given, 0.0)
        assert (found.dtype, found.shape) == (dtype, given.shape)
        assert torch.equal(found.isnan(), expected.isnan())
        assert torch.equal(found.nan_to_num(3.0), expected.nan_to_num(3.0))
        assert torch.equal(found.signbit(), expected.signbit())


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # torch's own, at a tangent
def test_selected_is_followed_forward() -> None:
    """A tangent passes where it counts, and nowhere else."""
    values, mask = torch.tensor([[1.0, torch.nan]]), torch.tensor([[True, False]])
    with dual_level():
        dual = make_dual(values, torch.tensor([[5.0, 7.0]]))  # type: ignore[no-untyped-call]  # torch has no types here
        told = unpack_dual(selected(dual, mask=mask)).tangent  # type: ignore[no-untyped-call]  # torch has no types here
    assert told.tolist() == [[5.0, 0.0]]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_packed_rows_are_added_as_exactly_as_padded_ones(dtype: torch.dtype) -> None:
    ones, mask = torch.ones(2048, dtype=dtype), torch.ones(2048, dtype=torch.bool)
    segments = Segments(mask, torch.tensor([1024, 1024]))
    assert row_sums(ones, mask=segments).tolist() == [1024.0, 1024.0]
    assert row_sums(ones.view(2, 1024), mask=mask.view(2, 1024)).tolist() == [1024.0, 1024.0]
    assert row_means(ones, mask=segments).tolist() == [1.0, 1.0]


def test_rows() -> None:
    assert row_sums(VALUES, mask=MASK).tolist() == [4.0, 8.0, 0.0]
    assert row_means(VALUES, mask=MASK).tolist() == [2.0, 8.0, 0.0]


@pytest.mark.parametrize(
    ("mode", "denominator", "expected"),
    [
        ("token-mean", 3.0, 4.0),
        ("token-sum", 6.0, 2.0),
        ("sequence-mean-token-sum", 2.0, 6.0),
        ("sequence-mean-token-mean", 2.0, 5.0),
    ],
)
def test_aggregate(mode: Mode, denominator: float, expected: float) -> None:
    assert aggregate(VALUES, mask=MASK, aggregation=Aggregation(mode, denominator)).item() == expected


@pytest.mark.parametrize("mode", ["token-mean", "sequence-mean-token-mean", "sequence-mean-token-sum"])
def test_parts_add_up(mode: Mode) -> None:
    """With the denominator of the whole, parts add up to it; a part without trained tokens adds 0."""
    whole = Aggregation(mode, 4.0)
    parts = [aggregate(VALUES[i : i + 1], mask=MASK[i : i + 1], aggregation=whole) for i in range(3)]
    assert sum(parts) == aggregate(VALUES, mask=MASK, aggregation=whole)


def test_prompts_weigh_the_same() -> None:
    values = torch.tensor([[1.0, 3.0], [8.0, 9.0], [6.0, 9.0], [9.0, 9.0]])
    mask = torch.tensor([[True, True], [True, False], [True, False], [False, False]])
    whole = Aggregation("prompt-mean", 2.0, torch.tensor([3, 3, 1, 1]))
    assert aggregate(values, mask=mask, aggregation=whole).item() == (4.0 + 6.0) / 2
    for cut in ([[0, 2], [1], [3]], [[3, 1, 0], [2]]):
        rows = [torch.tensor(part) for part in cut]
        parts = [aggregate(values[part], mask=mask[part], aggregation=whole.of_rows(part)) for part in rows]
        assert torch.stack(parts).sum().item() == 5.0


def test_prompt_tokens_are_refused() -> None:
    with pytest.raises(InputError, match=r"^prompt_tokens is None, expected the number of trained"):
        Aggregation("prompt-mean", 2.0)
    with pytest.raises(InputError, match=r"^prompt_tokens is given, expected None with mode 'token-mean'"):
        Aggregation("token-mean", 2.0, torch.tensor([3, 3]))
    with pytest.raises(InputError, match=r"^prompt_tokens has dtype float32, expected an integer dtype: "):
        Aggregation("prompt-mean", 2.0, torch.tensor([3.0]))
    for counts, told in {
        (3, 3): r"^prompt_tokens has shape \[2\], expected \[3\]: one for each row$",
        (
            2,
            0,
            0,
        ): r"^prompt_tokens\[1\] is 0, expected 1 or more, the trained tokens of the row: count over the whole mini-",
    }.items():
        with pytest.raises(InputError, match=told):
            aggregate(VALUES, mask=MASK, aggregation=Aggregation("prompt-mean", 2.0, torch.tensor(counts)))


@pytest.mark.parametrize("denominator", [0.0, -1.0, float("nan")])
def test_denominator_is_refused(denominator: float) -> None:
    with pytest.raises(ValueError, match="expected a positive finite number: count trained tokens or live rows"):
        Aggregation("token-mean", denominator)


@pytest.mark.parametrize("mode", ["token-mean", "sequence-mean-token-mean", "prompt-mean"])
def test_sums_larger_than_their_type(mode: Mode) -> None:
    """What is divided by a count is added up in a wider type: 70,000 ones in half precision have the mean 1."""
    count = 70_000
    ones, mask = torch.ones(1, count, dtype=torch.float16), torch.ones(1, count).bool()
    whole = aggregation(mode, mask=mask, group=torch.tensor([0]))
    leaf = torch.zeros(1, count, dtype=torch.float16, requires_grad=True)
    told = importance_sampling.loss(leaf, 0 * ones, ones, mask=mask, aggregation=whole)
    (slope,) = torch.autograd.grad(told, leaf)
    assert slope.dtype == told.dtype == torch.float16
    torch.testing.assert_close(slope[0, 0].item(), -1 / count, rtol=0.01, atol=0)
    found = [aggregate(ones, mask=mask, aggregation=whole), -told, row_means(ones, mask=mask)[0]]
    found += list(metrics.mean_kl(ones, 0 * ones, mask=mask))[:1]
    found += [metrics.effective_sample_size(ones, mask=mask), bounds.self_normalized(ones, mask=mask)[0, 0]]
    assert [x.item() for x in found] == [1.0] * 6
    assert covariance.covariances(ones, ones, mask=mask)[0, 0].item() == 0.0


def test_prompts_of_some_rows() -> None:
    whole = Aggregation("prompt-mean", 2.0, torch.tensor([3, 3, 2]))
    taken = whole.of_rows(torch.tensor([2, 0, 2], dtype=torch.uint8)).prompt_tokens
    assert taken is not None
    assert taken.tolist() == [2, 3, 2]
    for rows in (torch.tensor([-1]), torch.tensor([3]), torch.tensor([True, False, True])):
        with pytest.raises(InputError, match=r"^rows(\[0\])? is"):
            whole.of_rows(rows)


def test_equal_aggregations() -> None:
    one, two = Aggregation("token-mean", 2.0), Aggregation("prompt-mean", 2.0, torch.tensor([3, 3]))
    again, other = (
        Aggregation("prompt-mean", 2.0, torch.tensor([3, 3])),
        Aggregation("prompt-mean", 2.0, torch.ones(2).long()),
    )
    assert one == Aggregation("token-mean", 2.0)
    assert one != Aggregation("token-mean", 3.0)
    assert two == again
    assert two not in (one, other, "prompt-mean")
    assert len({one, two, again}) == 2


@pytest.mark.parametrize("given", ["token-mean", None, 3.0])
def test_what_is_no_aggregation(given: Any) -> None:
    with pytest.raises(InputError, match="expected an Aggregation"):
        aggregate(VALUES, mask=MASK, aggregation=given)
    with pytest.raises(InputError, match="expected an Aggregation"):
        importance_sampling.loss(VALUES, VALUES, VALUES, mask=torch.zeros_like(MASK), aggregation=given)
    with pytest.raises(InputError, match=r"^denominator is"):
        Aggregation("token-mean", "x")  # type: ignore[arg-type]  # what is refused here


@pytest.mark.parametrize("statistic", [row_sums, row_means, row_maxima])
def test_rows_have_positions(statistic: Any) -> None:
    with pytest.raises(InputError, match=r"^values has shape \[2\], expected 2 axes \[B, T\]"):
        statistic(torch.zeros(2), mask=torch.ones(2).bool())
