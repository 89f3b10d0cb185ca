"""TOK001: a sound, a broken and a refusing specimen."""

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output
from rl_sentinel.laws.conversation_tokens_differ import LAW
from specimens import judged, specimen

OUTPUTS = {
    "tokens": Output("B", "tokens", "tokens_off_template"),
    "mask": Output("B", "tokens", "mask_off_replies"),
}


def _as_the_template(batch: Batch) -> dict[str, Tensor]:
    return {name: torch.zeros(batch.rows) for name in OUTPUTS}


def _end_not_trained(batch: Batch) -> dict[str, Tensor]:
    return {"tokens": torch.zeros(batch.rows), "mask": batch.mask.any(1).float()}


def test_sound() -> None:
    judgement = judged(LAW, specimen(_as_the_template, reads="mask", stage="batch", outputs=OUTPUTS))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    found = judged(LAW, specimen(_end_not_trained, reads="mask", stage="batch", outputs=OUTPUTS)).found
    assert found is not None
    sentence = found.expectation.sentence()
    assert sentence == (
        "1 of the conversation's tokens at row 0 have a wrong loss mask: "
        "it must cover each reply with its end token, and nothing else"
    )
    assert LAW.level(found.case) == "fault"


def test_not_applicable() -> None:
    judgement = judged(LAW, specimen(lambda batch: batch.mask * 1.0, reads="mask"))
    assert judgement.reason == "the boundary does not tokenize conversations"
