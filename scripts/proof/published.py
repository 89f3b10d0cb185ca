"""Tests that other frameworks publish, run against our functions."""

import os
from collections.abc import Iterator

from peers import page


def lines() -> Iterator[str]:
    """Counts, differences and what is outside; a framework's checkout is given by a variable of its name."""
    yield from page.lines({name: os.environ.get(name.upper(), "") for name in page.NAMES})
