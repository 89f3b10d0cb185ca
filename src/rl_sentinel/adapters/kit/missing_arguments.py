"""Detect arguments that the signature makes optional and the code needs: defaults of None, keys of ``**kwargs``."""

import inspect
from collections.abc import Mapping

from rl_sentinel.adapters.kit.bind_text import WORDS, column_of
from rl_sentinel.adapters.kit.call_by_name import takes_more
from rl_sentinel.adapters.kit.layout_trial import accepts, domain_probe, outputs_on
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import COLUMNS
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import Unbindable
from rl_sentinel.core.phrasing import reason_of


def refuse_missing(
    target: Target, boundary: Boundary, parameters: Mapping[str, inspect.Parameter], codecs: Mapping[str, Codec]
) -> None:
    """Raise an error if a function fails because an argument is missing that the user can bind.

    Raises:
        Unbindable: names the parameters of unknown name that kept their default of None, or the key of ``**kwargs``.
    """
    kept = [name for name, one in parameters.items() if one.default is None and name not in codecs]
    if not (kept or takes_more(parameters)) or accepts(target, boundary):
        return
    try:
        outputs_on(target, boundary, domain_probe(boundary))
    except Exception as error:
        if kept and "NoneType" in str(error):
            bind = ", ".join(f'"{name}": ...' for name in kept)
            names = f"{' and '.join(kept)} {'is' if len(kept) == 1 else 'are'} None, the default"
            failure = reason_of(error).partition("; passed")[0]
            raise Unbindable(f"{failure}, maybe because {names}: state what to pass with bind={{{bind}}}") from error
        key = _missing_key(error)
        if takes_more(parameters) and key:
            raise Unbindable(
                f"the function fails because {key!r} is missing: if {key} is a keyword argument, pass it with "
                f'bind={{"{key}": {_text(key)}}}'
            ) from error


def _missing_key(error: BaseException) -> str:
    """The name whose lookup failed; empty for other errors."""
    found = error
    while found.__cause__ is not None and not isinstance(found, KeyError):
        found = found.__cause__
    name = found.args[0] if isinstance(found, KeyError) and found.args else ""
    return name if isinstance(name, str) and name.isidentifier() else ""


def _text(name: str) -> str:
    column = column_of(name)
    return f'"{column}"' if column in COLUMNS or column in WORDS else "..."
