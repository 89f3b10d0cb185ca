"""CFG005: sound, broken and refusing specimens."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.claim_text import claim_texts, claims_from_text
from rl_sentinel.laws.listed_option_refused import LAW
from specimens import judged, specimen

KL = {"kl": Output("B T", "nats", "kl")}


def _kl(batch: Batch, kind: str) -> Tensor:
    gap = batch.logprob - batch.ref_logprob
    return {"k1": gap, "k2": gap**2 / 2}[kind]


def _boundary(compute: Callable[..., Tensor], listed: str = '"k1"|"k2"|"full"') -> Boundary:
    return specimen(
        compute,
        reads="logprob ref_logprob mask",
        stage="kl",
        outputs=KL,
        claims={"option:kind": listed},
        settings={"default": {"kind": "k1"}},
    )


def _refusing(error: Callable[[str], Exception]) -> Callable[..., Tensor]:
    def compute(batch: Batch, kind: str) -> Tensor:
        if kind == "full":
            raise error(kind)
        return _kl(batch, kind)

    return compute


def test_sound() -> None:
    """Listed values are answered, or refused with what they need."""
    needs = _refusing(lambda kind: ValueError(f"kind {kind} requires the logits of the whole vocabulary"))
    for boundary in (_boundary(_kl, '"k1"|"k2"'), _boundary(needs)):
        judgement = judged(LAW, boundary)
        assert judgement.found is None
        assert judgement.tried > 0


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (lambda kind: ValueError(f"unknown kind {kind}"), "ValueError: unknown kind full"),
        (lambda _: NotImplementedError(), "NotImplementedError"),
    ],
)
def test_broken(error: Callable[[str], Exception], shown: str) -> None:
    """A value that is refused for what it is, and one that is refused without a word."""
    found = judged(LAW, _boundary(_refusing(error))).found
    assert found is not None
    assert found.expectation.sentence() == (
        f'raises {shown} (kind="full"): a value listed as allowed must give a result, or an error that names what else '
        "it needs"
    )
    assert LAW.level(found.case) == "contested"


def test_a_batch_that_is_refused_is_no_value() -> None:
    """A value that answers one of the batches is allowed."""

    def needs_two(batch: Batch, kind: str) -> Tensor:
        if kind == "k2" and batch.rows < 2:
            raise ValueError(f"{kind}: {batch.rows} rows")
        return _kl(batch, kind)

    assert judged(LAW, _boundary(needs_two, '"k1"|"k2"')).found is None


def test_not_applicable() -> None:
    """Nothing is listed."""
    boundary = specimen(
        lambda batch: torch.zeros_like(batch.logprob), reads="logprob ref_logprob mask", stage="kl", outputs=KL
    )
    judgement = judged(LAW, boundary)
    assert (judgement.tried, judgement.reason) == (0, "the boundary claims no list of allowed values")


def test_refusing() -> None:
    """A boundary that refuses every batch under every value is not judged."""

    def refuses(batch: Batch, kind: str) -> Tensor:
        raise ValueError(f"{batch.rows} rows, {kind}")

    assert judged(LAW, _boundary(refuses)).tried == 0


def test_the_list_as_text() -> None:
    claimed = claims_from_text({"option:kind": '"k1"|"k2"|"k3"'}, "docstring")
    assert claimed.options[0].values == ("k1", "k2", "k3")
    assert claim_texts(claimed)["option:kind"].value == '"k1"|"k2"|"k3"'
