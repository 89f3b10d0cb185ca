"""The HTML page: whole, self-contained, with marked cells."""

from html.parser import HTMLParser

from report_fixtures import release, results
from rl_sentinel.audit.causes import group_by_cause
from rl_sentinel.report.html import as_html, grid
from rl_sentinel.report.scenario import has_batch
from rl_sentinel.report.text import summary


class _Page(HTMLParser):
    """Counts elements, and refuses tags that do not match."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        assert not any(name in ("src", "href") for name, _ in attrs), "the page loads nothing"
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_is_whole() -> None:
    """Every finding of a release, with its grids; configuration findings have none."""
    made = release()
    text = as_html([made])
    page = _Page()
    page.feed(text)
    assert page.open == []
    causes = group_by_cause(made.findings)
    assert page.seen.count("section") == len(causes)
    assert f"<p>{summary(made.findings)}, {len(causes)} below: one for each cause. Of" in text
    assert page.seen.count("figure") > 3 * sum(has_batch(findings[0].evidence) for findings in causes)
    assert "reward" in text
    assert "&lt;" not in as_html([results()]).partition("<body>")[0]


def test_numbers_of_the_coverage_have_names() -> None:
    """On a narrow screen, where the head of the table is left out."""
    table = as_html([results()]).partition('<table class="coverage">')[2].partition("</table>")[0]
    head, *lines = table.split("<tr>")[1:]
    names = [cell.partition("</th>")[0] for cell in head.split("<th>")[1:]]
    assert lines
    assert all([f'data-name="{name}"' in line for name in names[1:]] == [True] * 5 for line in lines)


def test_changed_cell_is_marked() -> None:
    assert '<td class=" marked">0 → 1</td>' in as_html([results()])
    assert [cell.color for (cell,) in grid("x", [1.0, -1.0, 0.0, float("nan")]).rows] == ["plus", "minus", "", "nan"]
