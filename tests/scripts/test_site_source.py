"""The source of the documentation site: every page that the configuration names is there."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import site_source
import tomlkit

LAW = """\
ABC001 some-law.

What it says:
    One line
    and another.

A boundary that breaks it:
    >>> 1 + 1
    2

    A line after it.
"""


def test_page_of_a_law() -> None:
    """Sections become headings, an example a block of code."""
    assert site_source.as_markdown(LAW) == (
        "# ABC001 some-law\n\n## What it says\n\nOne line\nand another.\n\n## A boundary that breaks it\n\n"
        "```pycon\n>>> 1 + 1\n2\n```\n\nA line after it.\n"
    )


@pytest.mark.slow
def test_pages_are_written(tmp_path: Path) -> None:
    """The pages of the repository, of the laws, of the command line and of the signal library."""
    site_source.main(tmp_path / "site")
    pages = tmp_path / "site" / "pages"
    project = tomlkit.parse((tmp_path / "site" / "zensical.toml").read_text(encoding="utf-8")).unwrap()["project"]
    files = list(_files(project["nav"]))
    missing = [file for file in files if not (pages / file).is_file()]
    assert missing == []
    assert {"index.md", "docs/tutorial.md", "laws/MSK001.md", "signal/advantage.grpo.md"} <= set(files)
    assert "rl-sentinel audit" in (pages / "docs" / "command-line.md").read_text(encoding="utf-8")
    shown = (tmp_path / "site" / "source" / "rl_sentinel" / "signal" / "advantage" / "grpo.py").read_text(
        encoding="utf-8"
    )
    assert "    Examples:\n" in shown


def _files(nav: object) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for inner in nav.values():
            yield from _files(inner)
    elif isinstance(nav, list):
        for inner in nav:
            yield from _files(inner)
