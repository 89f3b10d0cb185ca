"""Settings that are passed on, as numbers: what arrives of a number, and of a text."""

from rl_sentinel.core.case import Scalar


def arrives(given: Scalar, arrived: object) -> float:
    """What arrives of a setting: a number as it is, infinite for another value; a text as below."""
    if isinstance(given, str):
        return characters_in_place(given, arrived)
    return float(arrived) if isinstance(arrived, bool | int | float) else float("inf")


def characters_in_place(text: str, arrived: object) -> float:
    """How many characters of a text arrive in their places, less those that arrive after its end; 0 if it is no text.

    A list of one text counts as this text.
    """
    value = arrived[0] if isinstance(arrived, list) and len(arrived) == 1 else arrived
    if not isinstance(value, str):
        return 0.0
    return float(sum(a == b for a, b in zip(text, value, strict=False)) - max(0, len(value) - len(text)))
