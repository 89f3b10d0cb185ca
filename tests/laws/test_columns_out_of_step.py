"""DAT001: a sound, a broken and a refusing specimen."""

from functools import partial

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output
from rl_sentinel.laws.columns_out_of_step import LAW
from specimens import judged, specimen

make = partial(specimen, reads="reward", stage="batch", outputs={"others": Output("B", "count", "columns_of_others")})


def _together(batch: Batch) -> Tensor:
    """Tokens and log-probs are both in the order of the rewards."""
    order = batch.reward.argsort(stable=True)
    tokens, logprobs = torch.arange(batch.rows)[order], torch.arange(batch.rows)[order]
    return (tokens != logprobs).float()


def _apart(batch: Batch) -> Tensor:
    """Tokens alone are in the order of the rewards."""
    return (torch.arange(batch.rows)[batch.reward.argsort(stable=True)] != torch.arange(batch.rows)).float()


def test_sound() -> None:
    """All columns are in one order."""
    judgement = judged(LAW, make(_together))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """Rows are sorted, and one column is not."""
    found = judged(LAW, make(_apart)).found
    assert found is not None
    wanted = "others is 1 at row 0, expected 0: all columns of a row must belong to one sample"
    assert found.expectation.sentence() == wanted
    assert found.case.batch.rows == 2
    assert LAW.level(found.case) == "fault"


def test_not_applicable() -> None:
    """A boundary without the output says nothing of whose columns a row holds."""
    judgement = judged(LAW, specimen(_together, reads="reward", stage="batch", outputs={"others": Output("B")}))
    assert judgement.tried == 0
    assert judgement.reason == "the boundary does not report which sample each column of a row belongs to"


def test_a_row_that_lacks_a_part_and_trains_is_reported() -> None:
    """The last log-prob of each response is missing; one specimen masks these rows, the other trains them."""
    outputs = {"short": Output("B", "count", "incomplete")}
    read = partial(specimen, reads="mask", stage="batch", outputs=outputs)
    assert judged(LAW, read(lambda batch: (batch.mask & False).any(1).float())).found is None
    found = judged(LAW, read(lambda batch: batch.mask.any(1).float())).found
    assert found is not None
    wanted = "short is 1 at row 0, expected 0: a row that lacks a part must be refused, or must not train"
    assert found.expectation.sentence() == wanted
