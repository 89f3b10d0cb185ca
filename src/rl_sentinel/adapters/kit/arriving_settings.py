"""Settings that are passed on, as numbers: what arrives of a number, and whether a text arrives."""

from rl_sentinel.core.case import Scalar


def arrives(given: Scalar, arrived: object) -> float:
    """What arrives of a setting: a number as it is, infinite for another value; of a text 1 if it is the same, else 0.

    A list of one text counts as this text.

    Example:
        >>> from rl_sentinel.adapters.kit.arriving_settings import arrives
        >>> arrives(0.5, 0.5), arrives("null", ["null"]), arrives("null", None)
        (0.5, 1.0, 0.0)
    """
    if isinstance(given, str):
        return float(arrived in (given, [given]))
    return float(arrived) if isinstance(arrived, bool | int | float) else float("inf")
