"""The share of pairs that are not applicable for a missing claim, output or setting."""

from applicability import share


def test_share_counts_pairs_that_a_claim_would_judge() -> None:
    reasons = [
        "the boundary claims no knob",
        "the boundary's claimed scope is not the group",
        "the boundary reads no reward",
    ]
    skipped = [{"law": "A", "outcome": "not-applicable", "reason": reason} for reason in reasons]
    unbound = {"law": "*", "outcome": "errored", "reason": "m.f is absent"}
    verdicts = [*skipped, {"law": "A", "outcome": "holds", "reason": ""}, unbound]
    assert share({"target": "verl==1.0", "verdicts": verdicts}) == (
        "verl==1.0: 2 of 4 pairs (50.0%) lack a claim, an output or a setting; 3 are not applicable"
    )
