"""Plain words: phrases of the project's early, archaic English that must not come back."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "rl_sentinel"

#: Phrase -> what to write instead.
BANNED = {
    r"told": "reported, printed, stated, given, or a noun",
    r"(is|are|was) none": "is not a ..., does not exist",
    r"(of )?one's own": "the user's",
    r"that which": "what, which",
    r"mend(s|ed|ing)?": "fix",
    r"ways? out": "how to fix it",
    r"(comes?|came) to": "is, returns, reaches",
    r"is there": "exists",
    r"what is": "a noun",
    r"(stands?|stood) in": "replaces, is in",
    r"hand(s|ed)? back": "returns",
    r"but for": "except",
    r"sp(eaks?|oke) of": "is about, covers",
    r"set aside": "excluded",
    r"for whose sake": "because of which",
    r"takes? nothing from": "does not change",
    r"there is but": "there is only",
    r"(is|are) nobody's|nobody's": "belongs to no ..., of no ...",
    r"comes? up": "occurs",
    r"brought to disk": "fetched",
    r"\w*(normal|standard|general|regular|penal|recogn|synchron|initial|vector|minim)is(e|ed|er|es|ing|ation)": "-iz-",
    r"(behaviour|colour|neighbour)\w*|centred|labelled": "American spelling",
}

#: Folders and files that are not converted yet. An entry without a hit fails: delete it. Nothing is ever added.
UNCONVERTED = frozenset({"docs/mutants.md"})

#: A table of words in the names of users' parameters, which may be British.
USERS_WORDS = PACKAGE / "adapters" / "kit" / "parameter_words.py"

_BANNED = re.compile("|".join(rf"\b{phrase}\b" for phrase in BANNED))

#: Documents, packages or modules directly below ``rl_sentinel``, and those of ``adapters``.
PLACES = sorted(
    [
        *(
            p
            for folder in (PACKAGE, PACKAGE / "adapters")
            for p in folder.iterdir()
            if p.suffix == ".py" or (p.is_dir() and p.name not in ("__pycache__", "adapters"))
        ),
        *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
        *(ROOT / "docs").rglob("*.md"),
    ]
)


def _name(place: Path) -> str:
    return place.relative_to(ROOT).as_posix().removeprefix("src/rl_sentinel/")


def _texts(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each string and comment of a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def _phrases(text: str) -> list[str]:
    return [match[0] for match in _BANNED.finditer(" ".join(text.split()))]


def _hits(place: Path) -> list[str]:
    files = [f for f in sorted(place.rglob("*")) if f.suffix in {".py", ".toml"}] if place.is_dir() else [place]
    hits = []
    for file in (f for f in files if f != USERS_WORDS):
        source = file.read_text(encoding="utf-8")
        texts = _texts(source) if file.suffix == ".py" else enumerate(source.splitlines(), 1)
        for line, text in texts:
            hits += [f"{file.relative_to(ROOT)}:{line}: {phrase}" for phrase in _phrases(text)]
    return hits


@pytest.mark.parametrize("place", PLACES, ids=_name)
def test_words_are_plain(place: Path) -> None:
    hits = _hits(place)
    if _name(place) in UNCONVERTED:
        assert hits, f"{_name(place)} has no banned phrase left: delete it from UNCONVERTED"
    else:
        assert not hits


def test_unconverted_places_exist() -> None:
    assert {_name(p) for p in PLACES} >= UNCONVERTED


def test_a_phrase_is_found_in_strings_and_comments_only() -> None:
    source = '"""It is\n   none."""\ntold = f"way out of {1}"  # amend\n'
    assert [phrase for _, text in _texts(source) for phrase in _phrases(text)] == ["is none", "way out"]
