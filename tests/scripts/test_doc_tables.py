"""The generated tables of the documentation are current."""

import doc_tables
import pytest


@pytest.mark.parametrize("name", doc_tables.TABLES)
def test_tables_are_current(name: str) -> None:
    """``python scripts/doc_tables.py`` rewrites them."""
    page = doc_tables.DOCS / name
    assert page.read_text(encoding="utf-8") == doc_tables.rewritten(page)
