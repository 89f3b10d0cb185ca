"""Laws declare the claims that they read, and each claim is read by some law."""

import re
from dataclasses import replace

import pytest

import rl_sentinel.laws
from claim_usage import read_claims
from rl_sentinel.core.claims import NAMES
from rl_sentinel.core.law import Law, validate_claims
from rl_sentinel.core.modules import defined
from rl_sentinel.laws import LAWS

MODULES = defined(rl_sentinel.laws, "LAW")


@pytest.mark.parametrize("module", MODULES)
def test_law_declares_the_claims_that_it_reads(module: str) -> None:
    law: Law = MODULES[module]
    assert set(law.claims) == read_claims(f"rl_sentinel.laws.{module}")


def test_law_with_an_unknown_claim_is_an_error() -> None:
    message = "CFG001: claim 'knob' does not exist: the nearest is 'knobs'"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        replace(LAWS["CFG001"], claims=("knob",))


def test_claim_that_no_law_reads_is_an_error() -> None:
    message = "claim 'tempo' is read by no law: declare it in the law that reads it, or delete it"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        validate_claims(LAWS.values(), (*NAMES, "tempo"))
    validate_claims(LAWS.values())
