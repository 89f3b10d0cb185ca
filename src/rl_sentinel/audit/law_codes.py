"""Find laws by code or name, case-insensitively."""

from collections.abc import Iterable
from difflib import get_close_matches

from rl_sentinel.audit.engine.worker import laws
from rl_sentinel.core.errors import SentinelError


def code(text: str) -> str:
    """The code of the law that ``text`` names.

    Raises:
        SentinelError: if the law does not exist.

    Example:
        >>> from rl_sentinel.audit.law_codes import code
        >>> code("msk001")
        'MSK001'
    """
    names = {law.code: law.name for law in laws().values()}
    code_of = {**{c.casefold(): c for c in names}, **{name.casefold(): c for c, name in names.items()}}
    key = text.strip().casefold()
    if key in code_of:
        return code_of[key]
    if "," in text:
        raise SentinelError(f"law is {text!r}, expected the code or name of one law: give each law separately")
    similar = [code_of[name] for name in get_close_matches(key, code_of, n=1)]
    hint = "".join(f": the nearest is {found} {names[found]}" for found in similar)
    raise SentinelError(f"law is {text!r}, expected a code or name that `rl-sentinel laws` lists{hint}")


def codes(texts: Iterable[str] | None) -> tuple[str, ...]:
    """The codes of several laws, in order."""
    return tuple(code(text) for text in texts or ())
