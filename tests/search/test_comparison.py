"""The relations between two observations, and observations mapped back."""

import torch

from rl_sentinel.core.boundary import Output
from rl_sentinel.core.observation import Observation
from rl_sentinel.search import comparison
from rl_sentinel.search.filled_batch import filled
from specimens import specimen

BATCH = filled([[1, 0], [0, 0]], reward=[1, 0], group=[0, 0])
OUTPUTS = {
    "advantage": Output("B T", "reward", "advantage"),
    "weight": Output("B", "ratio"),
    "loss": Output("", "reward", over="all"),
}
BOUNDARY = specimen(lambda b: b.advantage, reads="logprob value mask", outputs=OUTPUTS, stage="policy-loss")
SEEN = Observation(
    {
        "advantage": torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
        "weight": torch.tensor([5.0, 6.0]),
        "loss": torch.tensor(7.0),
    },
    {"logprob": torch.tensor([[1.0, 2.0], [3.0, 4.0]])},
)


def test_same_tokens_compares_trained_cells() -> None:
    given = comparison.same_tokens(BOUNDARY, BATCH, SEEN, SEEN, change=None, reason="", scale=2.0)
    where = {e.name: e.where.tolist() for e in given if e.where is not None}
    assert where == {
        "advantage": [[True, False], [False, False]],
        "weight": [True, False],
        "loss": True,
        "gradient of logprob": [[True, False], [False, False]],
    }


def test_outputs_are_told_apart() -> None:
    assert comparison.advantages(BOUNDARY) == ("advantage",)
    assert comparison.over_all(BOUNDARY) == ("loss",)
    assert comparison.slopes(BOUNDARY) == ("logprob",)
    value = specimen(lambda b: b.value, reads="value", outputs=OUTPUTS, stage="value-loss")
    assert comparison.slopes(value) == ("value",)
    assert comparison.slopes(specimen(lambda b: b.value, reads="logprob")) == ()


def test_mapped_back() -> None:
    """Rows are taken where an output has them; numbers stay."""
    rows = comparison.at_rows(BOUNDARY, SEEN, torch.tensor([1]))
    assert rows.values["weight"].tolist() == [6.0]
    assert rows.gradients["logprob"].tolist() == [[3.0, 4.0]]
    assert rows.values["loss"].item() == 7.0


def test_one_value_in_row() -> None:
    batch = filled([[0, 1, 1]], reward=[1], group=[0])
    values = torch.tensor([[9.0, 1.0, 2.0]])
    equal = comparison.one_value_in_row("keep", values, batch, 0.0)
    assert equal.expected.tolist() == [[1.0, 1.0, 1.0]]
    assert equal.where is batch.mask


def test_reasons_name_rows_and_tokens() -> None:
    assert comparison.not_trained([1]) == "row 1 is not trained"
    assert comparison.not_trained([0, 2]) == "rows 0, 2 are not trained"
    assert comparison.tokens_not_trained([[1, 3]]) == "token 3 of row 1 is not trained"
    assert comparison.tokens_not_trained([[1, 3], [0, 2]]) == "2 tokens of the responses are not trained"


def test_change_of_a_column() -> None:
    other = filled([[1, 0], [0, 0]], reward=[1, 2], group=[0, 0])
    change = comparison.change_of("reward", BATCH, other, "its reward")
    assert (change.subject, change.cell, change.before, change.after) == ("its reward", (1,), 0.0, 2.0)
