"""A formula that was to be compared and had no case is an error, not a law that does not apply."""

from collections.abc import Iterable
from dataclasses import replace

from rl_sentinel.core.verdict import Verdict

#: The law that compares a function with the formula of its algorithm.
COMPARISON = "REF001"


def with_uncompared(verdicts: Iterable[Verdict], algorithm: str) -> list[Verdict]:
    """The verdicts; that of the comparison is "errored" if the algorithm was stated and nothing was compared.

    Args:
        verdicts: the results of one function.
        algorithm: the name of the algorithm as the user states it; may be empty.

    Example:
        >>> from rl_sentinel.audit.uncompared import with_uncompared
        >>> from rl_sentinel.core.verdict import Verdict
        >>> skipped = Verdict(law="REF001", boundary="f", setting="", outcome="not-applicable", reason="no case fits")
        >>> [v.reason for v in with_uncompared([skipped], "grpo")]
        ['not compared with the formula of grpo: no case fits']
    """
    verdicts = list(verdicts)
    compared = [v for v in verdicts if v.law == COMPARISON]
    if not algorithm or any(v.outcome != "not-applicable" for v in compared):
        return verdicts
    reason = f"not compared with the formula of {algorithm}: "
    return [replace(v, outcome="errored", reason=f"{reason}{v.reason}") if v.law == COMPARISON else v for v in verdicts]
