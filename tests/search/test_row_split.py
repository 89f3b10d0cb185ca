"""A batch in parts: who can be asked, and how the cut is called."""

import torch

from rl_sentinel.core.batch import Batch, batch_of
from rl_sentinel.core.boundary import Output
from rl_sentinel.core.case import Case
from rl_sentinel.search.row_split import applies_to_split, averages, cutting, in_parts, several_rows
from specimens import specimen

CASE = Case(batch_of(torch.ones(3, 2, dtype=torch.bool)))


def _loss(batch: Batch) -> torch.Tensor:
    return batch.logprob.sum()


def test_the_layout_of_a_case_in_parts() -> None:
    """Only the chosen cut is made."""
    assert in_parts(CASE, "micro_batches", 3).layout.changed() == {"micro_batches": 3}
    assert in_parts(CASE, "ranks", 2).layout.changed() == {"ranks": 2}
    assert cutting(CASE, "micro_batches", 3).subject == "splitting 3 rows into 3 micro-batches"
    assert cutting(CASE, "ranks", 2).subject == "splitting 3 rows into 2 ranks"


def test_a_loss_is_needed() -> None:
    """A boundary with given denominators and a cut, but without a loss, is not compared."""
    one = specimen(
        _loss,
        reads="logprob mask",
        stage="metric",
        outputs={"mean": Output("", "", "mean")},
        claims={"denominator": "given"},
        follows=frozenset({"ranks"}),
    )
    assert applies_to_split(one, "ranks", "no ranks") == "the boundary has no loss"
    assert applies_to_split(one, "micro_batches", "no parts") == "no parts"


def test_a_loss_that_compares_tokens_is_no_mean_of_parts() -> None:
    """The tokens of the highest entropy are others in a part."""
    for algorithm, mean in (("ppo", True), ("ppo of uncertain tokens", False)):
        one = specimen(
            _loss,
            reads="logprob mask",
            stage="policy-loss",
            outputs={"loss": Output("", "", "loss")},
            claims={"algorithm": algorithm, "aggregation": "token-mean"},
        )
        assert averages(one) is mean


def test_one_row_cannot_be_cut() -> None:
    """Nor is a batch without a trained token of any use."""
    assert several_rows(CASE, 0) is not None
    assert several_rows(Case(batch_of(torch.ones(1, 2, dtype=torch.bool))), 0) is None
    assert several_rows(Case(batch_of(torch.zeros(2, 2, dtype=torch.bool))), 0) is None
