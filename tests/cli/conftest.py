"""What the tests of the command line share."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for the session, so that light packages are fetched once."""
    return tmp_path_factory.mktemp("cache")
