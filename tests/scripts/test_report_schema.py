"""The published schema of the JSON report."""

import report_schema


def test_page_is_the_schema_of_the_code() -> None:
    """``python scripts/report_schema.py`` rewrites it."""
    assert report_schema.PAGE.read_text(encoding="utf-8") == report_schema.page()
