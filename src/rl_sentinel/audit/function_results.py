"""Complete the results of a user's function: an error if its formula was never compared, notes on exceptions."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from rl_sentinel.audit.findings import Audit
from rl_sentinel.core.verdict import Verdict

#: The law that compares a function with the formula of its algorithm.
COMPARISON = "REF001"

#: Most codes of laws in a note.
_LISTED = 5

#: The start of a reason that is an exception: its type and its message, without the arguments that were passed.
_EXCEPTION = re.compile(r"^(\w+(?:Error|Exception)\b.*?)(?:; passed |$)", re.DOTALL)


def complete(audit: Audit, algorithm: str, *, of_user: bool = True) -> None:
    """Mark the comparison with the stated formula as errored if nothing was compared; add notes on exceptions.

    Args:
        audit: the results.
        algorithm: the name of the algorithm as the user states it; may be empty.
        of_user: whether it is a user's function; exceptions of other functions get no notes.
    """
    audit.verdicts = with_uncompared(audit.verdicts, algorithm)
    audit.notes.extend(refusal_notes(audit.verdicts) if of_user else ())


def with_uncompared(verdicts: Iterable[Verdict], algorithm: str) -> list[Verdict]:
    """The verdicts; REF001 is "errored" if the algorithm was stated and nothing was compared.

    Args:
        verdicts: the results of one function.
        algorithm: the name of the algorithm as the user states it; may be empty.

    Example:
        >>> from rl_sentinel.audit.function_results import with_uncompared
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


def refusal_notes(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """One note per exception of the function, with the laws that could not be checked because of it.

    Example:
        >>> from rl_sentinel.audit.function_results import refusal_notes
        >>> from rl_sentinel.core.verdict import Verdict
        >>> reason = "ZeroDivisionError: division by zero; passed rewards=reward as a list of 2"
        >>> verdict = Verdict(law="DEG002", boundary="f", setting="", outcome="not-applicable", reason=reason)
        >>> list(refusal_notes([verdict]))
        ['the function raised ZeroDivisionError: division by zero on every batch of DEG002, which was not checked']
    """
    laws: dict[str, list[str]] = {}
    for verdict in verdicts:
        found = _EXCEPTION.match(verdict.reason) if verdict.outcome == "not-applicable" else None
        if found:
            laws.setdefault(" ".join(found[1].split()), []).append(verdict.law)
    for exception, codes in laws.items():
        unchecked = "which was not checked" if len(codes) == 1 else "which were not checked"
        listed = ", ".join(codes) if len(codes) <= _LISTED else f"{len(codes)} laws, such as {codes[0]}"
        yield f"the function raised {exception} on every batch of {listed}, {unchecked}"
