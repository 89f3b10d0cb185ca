"""The form of the house: small files, one noun each, laws and tests in step."""

import importlib
import inspect
import re
from pathlib import Path
from pkgutil import resolve_name

import pytest

import rl_sentinel.laws
from rl_sentinel.core.modules import defined

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "rl_sentinel"
SOURCES = sorted(PACKAGE.rglob("*.py"))
SECTIONS = (
    "What it says:",
    "Why it matters:",
    "A boundary that breaks it:",
    "How to fix it:",
    "Where it does not apply:",
    "Seen in:",
)
LAWS = defined(rl_sentinel.laws, "LAW")


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_file_is_small_and_named_for_a_noun(path: Path) -> None:
    """At most 400 lines, and no drawer for odds and ends."""
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400
    assert path.stem not in {"utils", "common", "helpers", "misc"}


@pytest.mark.parametrize(
    "path",
    [
        p
        for folder in ("audit", "cli", "core", "formulas", "report", "search", "signal", "train")
        for p in SOURCES
        if p.is_relative_to(PACKAGE / folder) and p.stem[0] != "_"
    ],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_module_has_a_test_of_its_name(path: Path) -> None:
    place = path.relative_to(PACKAGE)
    assert (ROOT / "tests" / place.parent / f"test_{place.stem}.py").is_file()


@pytest.mark.parametrize("path", sorted((PACKAGE / "train").rglob("*.py")), ids=lambda p: p.stem)
def test_trainer_is_read_in_an_hour(path: Path) -> None:
    """No file of it has more than 300 lines."""
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 300


@pytest.mark.parametrize("name", sorted(LAWS))
def test_law_has_its_form(name: str) -> None:
    law, page = LAWS[name], inspect.getdoc(importlib.import_module(f"rl_sentinel.laws.{name}")) or ""
    assert name == law.name.replace("-", "_")
    assert page.startswith(f"{law.code} {law.name}: ")
    assert [s for s in sorted(SECTIONS, key=page.find) if s in page] == list(SECTIONS)
    for place in re.findall(r"``(rl_sentinel\.[\w.]+)", page):
        assert resolve_name(place), place
    assert (ROOT / "tests" / "laws" / f"test_{name}.py").is_file()


def test_codes_are_given_once() -> None:
    codes = [law.code for law in LAWS.values()]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("folder", ["core", "formulas", "signal", "laws", "search"])
def test_no_framework_is_named(folder: str) -> None:
    word = re.compile(r"\b(verl|areal|slime|skyrl|trl)\b", re.IGNORECASE)
    for path in (ROOT / "src" / "rl_sentinel" / folder).rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        allowed = re.sub(r"(?ms)^\s*(Seen in|Source):.*?(?=^\s*$|\"\"\")", "", text)
        assert not word.findall(allowed), path
