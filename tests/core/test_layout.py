"""The layout of a case."""

from rl_sentinel.core.layout import Layout


def test_a_layout_names_what_differs_from_the_default() -> None:
    assert Layout().changed() == {}
    assert Layout(micro_batches=2, padding="left").changed() == {"padding": "left", "micro_batches": 2}
