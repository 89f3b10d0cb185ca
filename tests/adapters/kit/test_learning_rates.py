"""The fake of Megatron's schedule, with numbers worked out by hand."""

from types import SimpleNamespace

import pytest

from rl_sentinel.adapters.kit.learning_rates import MegatronSchedule, rates_of


def _rates(kind: str, count: int = 7) -> list[float]:
    optimizer = SimpleNamespace(param_groups=[{"lr": 9.0}])
    options = {"init_lr": 0.0, "max_lr": 0.5, "min_lr": 0.25, "lr_warmup_steps": 2, "lr_decay_steps": 6}
    schedule = MegatronSchedule(optimizer, lr_decay_style=kind, **options)
    return rates_of(optimizer, lambda: schedule.step(1), count)


def test_by_hand() -> None:
    """Two steps of warm-up, and four of decay to half of the peak."""
    assert _rates("constant", 4) == [0, 0.5, 1, 1]
    assert _rates("linear") == pytest.approx([0, 0.5, 1, 0.875, 0.75, 0.625, 0.5])
    cosine = _rates("cosine", 9)
    assert cosine[4] == pytest.approx(0.75)
    assert cosine[6:] == pytest.approx([0.5, 0.5, 0.5])


def test_other_kinds() -> None:
    with pytest.raises(NotImplementedError, match="WSD"):
        _rates("WSD")
