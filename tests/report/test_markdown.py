"""The Markdown summary of a CI job."""

from report_fixtures import results
from rl_sentinel.report.markdown import as_markdown


def test_markdown_shows_what_fails() -> None:
    """Accepted findings are folded."""
    text = as_markdown([results()])
    assert "| `verl==1.0` | 1 | 0 | 0 | 1 | 1 |" in text
    assert "### fault MSK001 at `estimator`" in text
    assert "<details>" not in text
    assert "<details><summary>accepted MSK001 at `estimator`" in as_markdown([results(accepted=True)])
