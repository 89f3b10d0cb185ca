"""PLC004: a sound, a broken and a refusing specimen."""

import re
from functools import partial

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output
from rl_sentinel.laws.tokens_or_samples_lost import LAW
from specimens import judged, specimen

READS = "logprob length"
CLAIMS = {"conserves": "yes"}
LOGPROB = {"logprob": Output("B T", "nats", "logprob")}


def _handed_on(batch: Batch) -> Tensor:
    return torch.where(batch.valid, batch.logprob, 0.0)


def _one_late(batch: Batch) -> Tensor:
    return batch.logprob.roll(1, 1)


def test_sound() -> None:
    """Padding may change, response tokens may not."""
    judgement = judged(LAW, specimen(_handed_on, reads="logprob length", stage="batch", outputs=LOGPROB, claims=CLAIMS))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """One position late is found on one row of two tokens."""
    found = judged(
        LAW, specimen(_one_late, reads="logprob length", stage="batch", outputs=LOGPROB, claims=CLAIMS)
    ).found
    assert found is not None
    assert re.fullmatch(
        r"logprob is \S+ at row 0, token 0, expected \S+: this column must be passed on unchanged",
        found.expectation.sentence(),
    )
    assert (found.case.batch.rows, found.case.batch.width) == (1, 2)
    assert LAW.level(found.case) == "fault"


def test_padding() -> None:
    """Padding counts where it is claimed to be 0."""
    make = partial(specimen, reads=READS, stage="batch", outputs=LOGPROB, claims=CLAIMS | {"padding": "zero"})
    assert judged(LAW, make(_handed_on)).found is None
    found = judged(LAW, make(lambda b: b.logprob)).found
    assert found is not None
    assert found.expectation.sentence() == "logprob is -1 at row 0, token 1, expected 0: padding is claimed to be 0"


def test_number_of_sequences() -> None:
    """Each row is one sequence, and padding is none."""
    outputs = {"sequences": Output("", "count", "rows")}
    make = partial(specimen, reads=READS, stage="batch", outputs=outputs, claims=CLAIMS)
    assert judged(LAW, make(lambda b: torch.tensor(float(b.rows)))).found is None
    found = judged(LAW, make(lambda b: torch.tensor(b.rows + 1.0))).found
    assert found is not None
    wanted = "sequences is 2, expected 1: each row must be counted as one sequence"
    assert found.expectation.sentence() == wanted


def test_not_applicable() -> None:
    """What makes a new quantity hands nothing on."""
    outputs = {"keep": Output("B T", "", "keep")}
    judgement = judged(LAW, specimen(_handed_on, reads="logprob", stage="batch", outputs=outputs, claims=CLAIMS))
    assert (judgement.tried, judgement.reason) == (0, "the boundary passes on no column of the batch")
    drawn = judged(LAW, specimen(_one_late, reads="logprob", stage="batch", outputs=LOGPROB))
    assert (drawn.tried, drawn.reason) == (0, "the boundary does not claim to keep all rows and tokens")
