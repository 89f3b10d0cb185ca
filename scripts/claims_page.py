"""Rewrite the tables of docs/claims.md from the claims that exist: ``python scripts/claims_page.py``."""

import re
from collections.abc import Iterable
from pathlib import Path

from rl_sentinel.adapters.user_claims import ADAPTED, ALGORITHMS
from rl_sentinel.core.claims import described

PAGE = Path(__file__).parents[1] / "docs" / "claims.md"

#: Key -> what stands in the place of a list of values.
_OPEN = {"algorithm": "see below", "knob:": "JSON", "corrected-at-most": "number"}


def rewritten(page: str) -> str:
    """The page with its three tables as they should be."""
    tables = iter((_claims(stated=True), _claims(stated=False), _algorithms()))
    return re.sub(r"(?:^\|.*\n)+", lambda _: next(tables), page, flags=re.MULTILINE)


def _claims(*, stated: bool) -> str:
    rows = [
        (f"`{key}`", _values(key, values), says)
        for key, (values, stages, says) in described().items()
        if bool(stages) == stated
    ]
    return _table(("claim", "values", "meaning"), rows)


def _values(key: str, values: Iterable[str]) -> str:
    return _code(values) or _OPEN.get(key, "words")


def _algorithms() -> str:
    rows = [(f"`{stage}`", _code(names)) for stage, names in ALGORITHMS.items()]
    return _table(("stage", "values"), [*rows, ("adapters only", _code(ADAPTED))])


def _code(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    cells = [head, *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows)]
    first, *rest = (f"| {' | '.join(row)} |\n" for row in cells)
    return "".join((first, f"|{'---|' * len(head)}\n", *rest))


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
