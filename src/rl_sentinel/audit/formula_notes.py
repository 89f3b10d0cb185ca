"""Note on an audit that compared no formula, though the user names an algorithm."""

from collections.abc import Iterator

from rl_sentinel.audit.findings import Audit

#: The law that compares a function with the formula of its algorithm.
COMPARISON = "REF001"


def formula_notes(audit: Audit, algorithm: str) -> Iterator[str]:
    """One note if the comparison was asked for and had no case.

    Args:
        audit: the results of one function.
        algorithm: the name of the algorithm as the user states it; may be empty.

    Example:
        >>> from rl_sentinel.audit.findings import Audit
        >>> from rl_sentinel.audit.formula_notes import formula_notes
        >>> from rl_sentinel.core.verdict import Verdict
        >>> skipped = Verdict(law="REF001", boundary="f", setting="", outcome="not-applicable", reason="no case fits")
        >>> list(formula_notes(Audit(verdicts=[skipped]), "grpo"))
        ["no formula was compared, although the algorithm is stated as 'grpo': no case fits"]
    """
    verdicts = [v for v in audit.verdicts if v.law == COMPARISON]
    if algorithm and verdicts and all(v.outcome == "not-applicable" for v in verdicts):
        yield f"no formula was compared, although the algorithm is stated as {algorithm!r}: {verdicts[0].reason}"
