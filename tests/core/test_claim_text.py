"""Claims as text: a round trip, and the list that the documentation prints."""

import pytest

from rl_sentinel.core.claim_text import claim_texts, claims_from_text, described
from rl_sentinel.core.claims import claims

EVERY = claims(
    "a.py: docstring",
    scope="group",
    standardized=False,
    corrected_at_most=2.0,
    output_pairs={"kl": "old_logprob against ref_logprob"},
    knobs={"clip": (0.1, 0.4), "by_std": (True, False)},
    refused={"no rows": "a batch has a row"},
    accepted={"one row": "a batch has a row"},
)


def test_text_round_trip() -> None:
    texts = {key: said.value for key, said in claim_texts(EVERY).items()}
    assert texts["standardized"] == "no"
    assert texts["knob:by_std"] == "true|false"
    assert claims_from_text(texts, "a.py: docstring") == EVERY
    with pytest.raises(ValueError, match=r"^claim 'nob:clip' has an unknown prefix: the nearest is 'knob:'"):
        claims_from_text({"nob:clip": "1|2"}, "a.py")


def test_description_lists_values_as_text() -> None:
    values, stages, _ = described()["standardized"]
    assert (values, stages) == (("yes", "no"), ("advantage", "normalize"))
    assert described()["knob:"][:2] == ((), ())
