"""Rewrite generated tables of the documentation: claims, and names of parameters. ``python scripts/doc_tables.py``."""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from rl_sentinel.adapters.kit.parameter_names import ROLES
from rl_sentinel.adapters.user_claims import ADAPTED, ALGORITHMS
from rl_sentinel.core.claim_text import described

DOCS = Path(__file__).parents[1] / "docs"

#: Key -> what stands in the place of a list of values.
_OPEN = {"algorithm": "see below", "knob:": "JSON", "corrected-at-most": "number"}


def rewritten(page: Path) -> str:
    """The text of a page with its generated tables, the first ones on it, as they should be."""
    tables = iter(TABLES[page.name]())
    return re.sub(
        r"(?:^\|.*\n)+", lambda kept: next(tables, kept[0]), page.read_text(encoding="utf-8"), flags=re.MULTILINE
    )


def _names() -> str:
    rows = [(_code(role.names), role.value) for role in ROLES.values() if role.value]
    return _table(("parameter names", "value"), rows)


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


#: Page -> its generated tables, in order.
TABLES: Mapping[str, Callable[[], tuple[str, ...]]] = {
    "claims.md": lambda: (_claims(stated=True), _claims(stated=False), _algorithms()),
    "own-functions.md": lambda: (_names(),),
}

if __name__ == "__main__":
    for name in TABLES:
        (DOCS / name).write_text(rewritten(DOCS / name), encoding="utf-8")
