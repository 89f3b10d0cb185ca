"""Learning rates of a run, against numbers worked out by hand."""

import pytest

from rl_sentinel.core.batch import Batch, take_rows
from rl_sentinel.formulas.learning_rates import RATES
from rl_sentinel.search.small_cases import small_cases


def _batch(rows: int) -> Batch:
    import torch  # noqa: PLC0415 - only the row numbers

    batch = next(case.batch for case in small_cases() if case.batch.rows >= 2)
    return take_rows(batch, torch.arange(rows) % batch.rows)


@pytest.mark.parametrize(
    ("algorithm", "settings", "expected"),
    [
        ("constant after warm-up", {"warm_up": 0, "updates": 4}, [1.0, 1.0, 1.0, 1.0]),
        ("constant after warm-up", {"warm_up": 2, "updates": 4}, [0.0, 0.5, 1.0, 1.0]),
        ("cosine after warm-up", {"warm_up": 0, "updates": 4, "floor": 0.5}, [1.0, 0.9267767, 0.75, 0.5732233]),
        ("cosine after warm-up", {"warm_up": 1, "updates": 3, "floor": 0.0}, [0.0, 1.0, 0.5, 0.0]),
        (
            "stable after warm-up, then cosine",
            {"warm_up": 1, "updates": 5, "floor": 0.0, "stable": 0.5},
            [0.0, 1.0, 1.0, 1.0, 0.5, 0.0],
        ),
    ],
)
def test_by_hand(algorithm: str, settings: dict[str, float], expected: list[float]) -> None:
    rates = RATES[algorithm](_batch(len(expected)), settings).tolist()
    assert rates == pytest.approx(expected)
