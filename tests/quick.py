"""Cases of a test of which the first few run always, and the others with ``make check``."""

from collections.abc import Sequence
from typing import Any

import pytest


def slow_after(first: int, cases: Sequence[tuple[Any, ...]]) -> list[Any]:
    """The cases, all but the first few marked slow."""
    return [pytest.param(*case, marks=pytest.mark.slow if n >= first else ()) for n, case in enumerate(cases)]
