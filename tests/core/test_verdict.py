"""A pass that was never tried cannot be written down."""

import pytest

from rl_sentinel.core.verdict import Verdict


def test_holds_needs_a_try() -> None:
    with pytest.raises(ValueError, match="holds with 0 cases tried"):
        Verdict(law="MSK001", boundary="f", setting="default", outcome="holds", tried=0)
