"""Which outputs are shares."""

import pytest

from rl_sentinel.core.boundary import Output
from rl_sentinel.formulas.shares import is_share


@pytest.mark.parametrize(
    ("axes", "quantity", "share"),
    [
        ("", "clip_fraction", True),
        ("", "clip_fraction.own", True),
        ("", "rejected.mean", True),
        ("", "kl.k1", False),
        ("B T", "rejected", False),
        ("", "", False),
    ],
)
def test_shares(axes: str, quantity: str, *, share: bool) -> None:
    """One number whose quantity is a share by any definition; decisions per token are none."""
    assert is_share(Output(axes, "", quantity)) is share
