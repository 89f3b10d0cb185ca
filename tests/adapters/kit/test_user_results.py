"""Results of a user's function: which entry is the output, and how rows become tokens."""

from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch

from rl_sentinel.adapters.kit.user_results import AnotherOutput, CallFailed, NamedOutput
from rl_sentinel.core.codec import Sizes

SIZES = Sizes(rows=2, width=2, mask=torch.tensor([[True, False], [True, True]]))
ROWS = torch.tensor([3.0, 4.0])


class Pair(NamedTuple):
    """A result with the output in its second field."""

    number: int
    advantages: torch.Tensor


@pytest.mark.parametrize(
    "result",
    [
        ROWS,
        (ROWS, None),
        {"advantages": ROWS, "scale": 1},
        {"advantage": ROWS, "my_advantage": 0},
        {"my_advantage": ROWS},
        Pair(1, ROWS),
        {"adv": ROWS, "scale": 1},
        SimpleNamespace(advantages=ROWS, scale=1),
        SimpleNamespace(batch={"advantages": ROWS}, meta={"scale": 1}),
    ],
)
def test_one_number_per_row_is_spread_over_trained_tokens(result: object) -> None:
    """The result itself, the first of a tuple, or the entry of the name, exact names first."""
    assert NamedOutput("advantage", per_token=True).read(result, SIZES).tolist() == [[3, 0], [4, 4]]


def test_a_list_of_tensors_with_all_tokens_is_read_as_a_tuple() -> None:
    two = [torch.tensor([[1.0, 0.0], [2.0, 2.0]]), torch.tensor([[5.0, 0.0], [6.0, 6.0]])]
    assert NamedOutput("advantage", per_token=True).read(two, SIZES).tolist() == two[0].tolist()
    assert NamedOutput("advantage", per_token=True, item=1).read(two, SIZES).tolist() == two[1].tolist()


def test_a_tuple_with_a_tensor_per_response_is_a_list_where_arguments_are_lists() -> None:
    sizes = Sizes(rows=2, width=2, length=torch.tensor([1, 2]), mask=SIZES.mask)
    ragged = (torch.tensor([1.0]), torch.tensor([2.0, 3.0]))
    assert NamedOutput("kl", per_token=True, lists=True).read(ragged, sizes).tolist() == [[1, 0], [2, 3]]
    assert NamedOutput("kl", per_token=True, lists=True).read((ROWS, ROWS + 1), sizes).tolist() == [[3, 0], [4, 4]]


def test_a_tuple_with_a_tensor_per_prompt_is_a_list_too() -> None:
    sizes = Sizes(rows=3, width=1, mask=torch.ones(3, 1, dtype=torch.bool))
    prompts = (torch.tensor([1.0]), torch.tensor([2.0, 3.0]))
    form = NamedOutput("advantage", per_token=True, grouped=True, lists=True)
    assert form.read(prompts, sizes).tolist() == [[1], [2], [3]]


@pytest.mark.parametrize("result", [(ROWS, ROWS + 1), {"scale": 1, "R": ROWS + 1, "adv": ROWS}])
def test_another_tensor_of_the_shape_of_the_output(result: object) -> None:
    assert AnotherOutput("advantage", per_token=True).read(result, SIZES).tolist() == [[4, 0], [5, 5]]


@pytest.mark.parametrize("result", [ROWS, (ROWS, ROWS.mean()), {"adv": ROWS, "scale": 1}])
def test_no_other_tensor(result: object) -> None:
    with pytest.raises(CallFailed, match=r"^the result has no other tensor of the shape of advantage$"):
        AnotherOutput("advantage", per_token=True).read(result, SIZES)


def test_a_decision_keeps_what_is_not_trained() -> None:
    """Above 0 is kept."""
    kept = torch.tensor([[0.0, 0.0], [0.5, 0.0]])
    assert NamedOutput("mask", per_token=True, decision=True).read(kept, SIZES).tolist() == [[0, 1], [1, 0]]


def test_results_that_cannot_be_read() -> None:
    """The entries, or the type, are in the message."""
    with pytest.raises(
        CallFailed, match=r"^the result has the entries a, b, expected one entry named loss: state its key"
    ):
        NamedOutput("loss").read({"a": ROWS, "b": ROWS}, SIZES)
    with pytest.raises(
        CallFailed,
        match=r"^loss of the result is of type list, expected a tensor with one number: return such a tensor",
    ):
        NamedOutput("loss").read([1.0], SIZES)
    with pytest.raises(CallFailed, match=r"is of type float, expected a tensor with one number: return the tensor, w"):
        NamedOutput("loss").read(1.0, SIZES)
    with pytest.raises(
        CallFailed, match=r"^advantage of the result has shape \[3\], expected \[2\] or \[2, .*: return a"
    ):
        NamedOutput("advantage", per_token=True).read(torch.zeros(3), SIZES)
    with pytest.raises(CallFailed, match=r"^loss of the result has dtype complex64, expected real numbers: "):
        NamedOutput("loss").read(torch.tensor(1j), SIZES)


@pytest.mark.parametrize("result", [ROWS, (ROWS, 1), {"my_advantage": ROWS}, Pair(1, ROWS)])
def test_a_script_reads_the_same_numbers(result: object) -> None:
    """One column where the function gives one number per row."""
    source = NamedOutput("advantage", per_token=True).source("result", SIZES)
    assert eval(source, {"result": result}).tolist() == [[3], [4]]  # noqa: S307 - source of a form
