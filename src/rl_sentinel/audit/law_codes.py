"""Find laws by code or name, case-insensitively; the error for an unknown law names the nearest."""

from collections.abc import Iterable
from difflib import get_close_matches

from rl_sentinel.audit.engine.worker import laws
from rl_sentinel.core.errors import SentinelError


def code(text: str) -> str:
    """The code of the law that ``text`` names.

    Raises:
        SentinelError: if there is no such law; the message lists the codes and names the nearest.

    Example:
        >>> from rl_sentinel.audit.law_codes import code
        >>> code("msk001")
        'MSK001'
    """
    have = {law.code: law.name for law in laws().values()}
    called = {**{c.casefold(): c for c in have}, **{name.casefold(): c for c, name in have.items()}}
    wish = text.strip().casefold()
    if wish in called:
        return called[wish]
    near = get_close_matches(wish, called, n=1, cutoff=0.0)[0]
    nearest = f"{called[near]} {have[called[near]]}"
    raise SentinelError(f"law is {text!r}, expected one of {', '.join(have)}: the nearest is {nearest}")


def codes(given: Iterable[str] | None) -> tuple[str, ...]:
    """The codes of several laws, in order."""
    return tuple(code(text) for text in given or ())
