"""Where the answers of one run or two hold what was compared."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from rl_sentinel.audit.worker.correspondence import Answers, correspondence
from rl_sentinel.audit.worker.ending import Places
from rl_sentinel.core.expectations import Pair

ZERO, ONE, TWO = torch.zeros(1), torch.tensor([1.0]), torch.tensor([2.0])
PAIR = torch.tensor([[1.0], [2.0]])


def _alone(answer: Any, wanted: Tensor) -> str:
    return correspondence([Answers("x", [("", answer)])], Pair("advantage", wanted * 0 - 7, wanted)).observed


def test_places() -> None:
    """In tuples, tables and numbers, by the numbers themselves; nowhere is an empty word."""
    table = SimpleNamespace(batch={"advantages": TWO, "mask": ONE})
    assert _alone(TWO, TWO) == "x"
    assert _alone((ONE, TWO), TWO) == "x[1]"
    assert _alone((table, {}), TWO) == "x[0].batch['advantages']"
    assert _alone((ONE, {"kl": 0.5}), torch.tensor(0.5)) == "torch.tensor(float(x[1]['kl']))"
    assert _alone((ONE, "words", None), TWO) == ""
    assert _alone([[[[TWO]]]], TWO) == ""


@pytest.mark.parametrize(
    "answer",
    [torch.tensor([[9.0, 1.0], [9.0, 2.0]]), torch.tensor([[9.0], [1.0], [2.0]]), [ONE, TWO]],
    ids=["columns", "rows", "list of rows"],
)
def test_views_are_expressions(answer: Any) -> None:
    """Columns, rows and padded rows: the expression gives what was compared."""
    text = _alone({"a": answer}, PAIR)
    assert torch.equal(eval(text, {"x": {"a": answer}, "torch": torch}), PAIR)  # noqa: S307 - our own text


def _two(before: Any, after: Any, expected: Tensor, observed: Tensor) -> tuple[str, str]:
    places = correspondence(
        [Answers("was", [("", before)]), Answers("is", [("", after)])], Pair("x", expected, observed)
    )
    return places.expected, places.observed


def test_both_stand_under_one_name() -> None:
    """A column that happens to hold the same numbers is not what is compared."""
    before, after = {"ids": ZERO, "advantages": ZERO}, {"ids": ZERO, "advantages": ONE}
    assert _two(before, after, ZERO, ONE) == ("was['advantages']", "is['advantages']")
    assert _two(after, before, ZERO, ONE) == ("is['advantages']", "was['advantages']")


def test_what_was_widened_is_cut() -> None:
    """The same name, cut to the columns that were there before."""
    wide = torch.tensor([[1.0, 0.0]])
    assert _two(PAIR[:1] * 0, wide, ZERO.unsqueeze(0), ONE.unsqueeze(0)) == ("was", "is[:, 0:1]")


def test_an_output_that_a_run_has_is_looked_for_where_it_stands() -> None:
    """Equal numbers in another place are not it; a tensor that is no output is found nowhere."""
    runs = [Answers(label, [("", (ONE, ONE, {"loss": ONE}))], {"loss": ONE}) for label in ("was", "is")]
    assert correspondence(runs, Pair("loss", ONE, ONE)) == Places("was[0]", "is[0]")
    assert correspondence(runs, Pair("gap", ONE, ONE)) == Places("", "")


def test_a_tensor_alone_is_found_in_the_last_run() -> None:
    """Where nothing is compared with it; NaN is found as NaN."""
    broken = torch.tensor([[float("nan")], [0.0]])
    assert correspondence([Answers("x", [("", (broken, 1))])], Pair("loss", None, broken)) == Places("", "x[0]")
