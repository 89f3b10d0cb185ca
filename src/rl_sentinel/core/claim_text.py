"""The text form of claims: keys and values on the command line, in reports and in stored evidence."""

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from rl_sentinel.core.claims import KINDS, OF_SETTINGS, Claims, Knob, Options, Said, SettingClaim, claims
from rl_sentinel.core.phrasing import nearest

#: Claim that is made per output or per setting -> prefix of its keys.
PREFIXES: Mapping[str, str] = {
    "output_algorithms": "algorithm:",
    "output_definitions": "definition:",
    "output_pairs": "pair:",
    "knobs": "knob:",
    "inert": "inert:",
    "options": "option:",
    "refused": "refused:",
    "accepted": "accepted:",
}


def claim_texts(stated: Claims) -> dict[str, Said[str]]:
    """All claims as text, by their keys.

    Example:
        >>> from rl_sentinel.core.claim_text import claim_texts
        >>> from rl_sentinel.core.claims import claims
        >>> claim_texts(claims("docstring", row_order=True, knobs={"clip": (0.1, 0.4)}))
        {'row-order': Said(value='yes', cite='docstring'), 'knob:clip': Said(value='0.1|0.4', cite='docstring')}
    """
    texts: dict[str, Said[str]] = {}
    for name in KINDS:
        said = getattr(stated, name)
        if said is not None:
            texts[key_of(name)] = Said(_text(said.value), said.cite)
    for name, prefix in PREFIXES.items():
        claimed = getattr(stated, name)
        if isinstance(claimed, Mapping):
            texts |= {f"{prefix}{output}": said for output, said in claimed.items()}
        else:
            texts |= {f"{prefix}{claim.name}": Said(_detail(claim), claim.cite) for claim in claimed}
    return texts


def claims_from_text(texts: Mapping[str, str], cite: str) -> Claims:
    """Parse claims from the text form used by the command line, stored evidence and the signal library.

    Raises:
        ValueError: if a claim does not exist, or a value is not valid.

    Example:
        >>> from rl_sentinel.core.claim_text import claims_from_text
        >>> claims_from_text({"masked-slots": "any", "knob:clip": "0.1|0.4"}, "docstring").knobs
        (Knob(name='clip', values=(0.1, 0.4), cite='docstring'),)
    """
    values: dict[str, Any] = {}
    for key, text in texts.items():
        prefix, colon, name = key.partition(":")
        if colon:
            owner = next((f for f, p in PREFIXES.items() if p == f"{prefix}:"), "")
            if not owner:
                known = nearest(f"{prefix}:", PREFIXES.values())
                raise ValueError(f"claim {key!r} has an unknown prefix: {known}")
            value: object = (
                tuple(json.loads(v) for v in text.split("|")) if owner in (*OF_SETTINGS, "options") else text
            )
            values.setdefault(owner, {})[name] = value
        else:
            claim = key.replace("-", "_")
            values[claim] = _parsed(text, KINDS.get(claim, (str,)))
    return claims(cite, **values)


def key_of(name: str) -> str:
    """The key of a claim on the command line and in reports, such as ``row-order`` for ``row_order``.

    For claims per name, it is the prefix of the keys, such as ``knob:``.
    """
    return PREFIXES.get(name) or name.replace("_", "-")


def described() -> dict[str, tuple[tuple[str, ...], tuple[str, ...], str]]:
    """For each claim's key: its possible values as text, the stages where a user may state it, and its meaning."""
    return {
        key_of(f.name): (
            tuple(_text(v) for v in KINDS.get(f.name, ()) if not isinstance(v, type)),
            f.metadata["stages"],
            f.metadata["says"],
        )
        for f in fields(Claims)
    }


def _text(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _parsed(text: str, kinds: tuple[object, ...]) -> object:
    if any(isinstance(kind, bool) for kind in kinds):
        return {"yes": True, "no": False}.get(text, text)
    return float(text) if kinds == (float,) else text


def _detail(claim: Knob | Options | SettingClaim) -> str:
    return claim.reason if isinstance(claim, SettingClaim) else "|".join(json.dumps(v) for v in claim.values)
