"""The HTML page in a real browser: no error in its console, and nothing wider than the window, opened or folded."""

import html
import shutil
import subprocess
from pathlib import Path

import pytest

from report_fixtures import release, results
from rl_sentinel.report.html import as_html

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

#: A frame as wide as a desktop's or a telephone's window, since a window has a least width.
_FRAME = """<!doctype html><title>waiting</title><iframe id="f" style="width:{width}px;height:900px;border:0"></iframe>
<script>
  const frame = document.getElementById("f");
  frame.onload = () => {{
    const page = frame.contentDocument.documentElement;
    for (const part of frame.contentDocument.querySelectorAll("details")) part.open = true;
    const tables = [...frame.contentDocument.querySelectorAll(".wide")].map((x) => x.scrollWidth - x.clientWidth);
    const size = parseFloat(frame.contentWindow.getComputedStyle(frame.contentDocument.body).fontSize);
    const sections = frame.contentDocument.querySelectorAll("section").length;
    document.title = [page.scrollWidth, size, sections, Math.max(...tables)].join(" ");
  }};
  frame.srcdoc = document.getElementById("page").textContent;
</script>
"""

_OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--enable-logging=stderr"),
    "--virtual-time-budget=5000",
)


def _opened(page: Path, profile: Path) -> tuple[str, list[str]]:
    """The page after it ran, and the lines of its console."""
    assert CHROMIUM is not None
    command = [CHROMIUM, *_OPTIONS, f"--user-data-dir={profile}", "--dump-dom", page.as_uri()]
    run = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    return run.stdout, [line for line in run.stderr.splitlines() if ":CONSOLE" in line]


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
@pytest.mark.parametrize("width", [1280, 390])
def test_page_fits_the_window(tmp_path: Path, width: int) -> None:
    text = as_html([release(), results()])
    data = f'<template></template><textarea id="page" hidden>{html.escape(text)}</textarea>'
    frame = tmp_path / "frame.html"
    frame.write_text(data + _FRAME.format(width=width), encoding="utf-8")
    dom, console = _opened(frame, tmp_path / "profile")
    title = dom.partition("<title>")[2].partition("</title>")[0]
    wide, letters, sections, hidden = map(float, title.split())
    assert console == []
    assert wide <= width
    assert letters >= 12
    assert hidden == 0  # no table scrolls
    assert sections == text.count("<section")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_page_opens_from_a_file(tmp_path: Path) -> None:
    """The page itself, without a frame: no message in the console."""
    page = tmp_path / "page.html"
    page.write_text(as_html([release()]), encoding="utf-8")
    dom, console = _opened(page, tmp_path / "profile")
    assert console == []
    assert "</section>" in dom
