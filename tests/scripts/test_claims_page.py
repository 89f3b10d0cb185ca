"""The tables of docs/claims.md are generated from the claims themselves."""

import claims_page


def test_page_has_the_tables_of_all_claims() -> None:
    """``python scripts/claims_page.py`` rewrites them."""
    page = claims_page.PAGE.read_text(encoding="utf-8")
    assert page == claims_page.rewritten(page)
