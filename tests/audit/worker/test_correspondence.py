"""Where the answers of one run or two hold what was compared."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from rl_sentinel.audit.worker.correspondence import Answers, Compared, correspondence

ZERO, ONE, TWO = torch.zeros(1), torch.tensor([1.0]), torch.tensor([2.0])
PAIR = torch.tensor([[1.0], [2.0]])


def _alone(answer: Any, wanted: Tensor) -> str:
    return correspondence([Answers("x", [("", answer)])], Compared("advantage", wanted * 0 - 7, wanted))[1]


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


def _two(before: Any, after: Any, expected: Tensor, observed: Tensor, *outputs: Tensor) -> tuple[str, str]:
    first = Answers("was", [("", before)], dict(zip(["advantage"], outputs, strict=False)))
    last = Answers("is", [("", after)], dict(zip(["advantage"], outputs[1:], strict=False)))
    return correspondence([first, last], Compared("advantage", expected, observed))


def test_both_stand_under_one_name() -> None:
    """A column that happens to hold the same numbers is not what is compared."""
    before, after = {"ids": ZERO, "advantages": ZERO}, {"ids": ZERO, "advantages": ONE}
    assert _two(before, after, ZERO, ONE) == ("was['advantages']", "is['advantages']")
    assert _two(after, before, ZERO, ONE) == ("is['advantages']", "was['advantages']")


def test_what_was_widened_is_cut() -> None:
    """The same name, cut to the columns that were there before."""
    wide = torch.tensor([[1.0, 0.0]])
    assert _two(PAIR[:1] * 0, wide, ZERO.unsqueeze(0), ONE.unsqueeze(0)) == ("was", "is[:, 0:1]")


def test_what_did_not_move_is_compared() -> None:
    """Where a law counts whether something moved, both runs are, by the output that it was given."""
    zero, one = torch.tensor(0.0), torch.tensor(1.0)
    assert _two((ONE, ONE), (ONE, TWO), one, zero, ONE, ONE) == (
        "",
        "torch.tensor(float(bool((was[0] != is[0]).any())))",
    )
    assert _two(ONE, TWO, one, zero, ONE, TWO) == ("", "")


def test_what_a_law_counts_over_all_outputs_stands_in_none() -> None:
    """A 0 among the metrics is not the law's own; every output that it was given is compared."""
    outputs = {"loss": ONE, "gap": TWO}
    runs = [Answers(label, [("", (ONE, {"clipped": 0.0}, TWO))], outputs) for label in ("was", "is")]
    compared = Compared("batches on which it matters", torch.tensor(1.0), torch.tensor(0.0))
    moved = "bool((was[0] != is[0]).any()) or bool((was[2] != is[2]).any())"
    assert correspondence(runs, compared) == ("", f"torch.tensor(float({moved}))")
    assert correspondence(runs[:1], compared) == ("", "")


def test_what_is_not_finite_is_counted() -> None:
    """Where a law counts NaN, the script counts it."""
    broken = torch.tensor([[float("nan")], [0.0]])
    run = Answers("x", [("", (broken, 1))], {"loss": broken})
    compared = Compared("loss", torch.zeros(2, 1), torch.tensor([[1.0], [0.0]]))
    assert correspondence([run], compared) == ("", "(~x[0].isfinite()).float()")
