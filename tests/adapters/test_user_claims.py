"""Claims that a user states, and the formulas behind their values."""

from typing import get_args

import pytest

from rl_sentinel.adapters.user_claims import ADAPTED, ALGORITHMS, claims_of, parse_claims
from rl_sentinel.core.boundary import Stage
from rl_sentinel.core.claim_text import claim_texts, described
from rl_sentinel.core.claims import STATED, Aggregation, KlEstimator
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.formulas.aggregation import MODES
from rl_sentinel.formulas.algorithms import ADVANTAGES
from rl_sentinel.formulas.kl_tokens import KL
from rl_sentinel.formulas.policy_losses import LOSSES
from rl_sentinel.formulas.temporal import TEMPORAL
from rl_sentinel.formulas.token_values import REWARDED
from rl_sentinel.formulas.value_losses import VALUE_LOSSES


def test_every_formula_is_an_algorithm() -> None:
    stages = {name for names in ALGORITHMS.values() for name in names}
    assert stages == {*ADVANTAGES, *TEMPORAL, *LOSSES, *VALUE_LOSSES, "entropy", *KL, *REWARDED}
    assert not stages & set(ADAPTED)
    assert set(get_args(KlEstimator)) == set(KL)
    assert set(get_args(Aggregation)) == {*MODES, "token-sum-by-constant", "any"}
    assert {stage for _, stages, _says in described().values() for stage in stages} <= set(get_args(Stage))


@pytest.mark.parametrize(
    ("stage", "algorithm"), [("policy-loss", "ppo"), ("policy-loss", "dapo"), ("value-loss", "ppo")]
)
def test_a_dropped_aggregation_is_open(stage: Stage, algorithm: str) -> None:
    """Without any, no loss would have a formula; a claim that has no open value is removed."""
    aggregation = claims_of(stage, algorithm, {"aggregation": None}).aggregation
    assert aggregation is not None
    assert aggregation.value == "any"
    assert claims_of("policy-loss", "ppo", {"ratio": None}).ratio is None
    assert claims_of("policy-loss", "", {"aggregation": None}).aggregation is None


def test_stated_claims_say_who_stated_them() -> None:
    found = parse_claims(["algorithm=pass@k", "deviation=n - 1"], "advantage")
    assert {key: (claim.value, claim.cite) for key, claim in claim_texts(found).items()} == {
        "algorithm": ("pass@k", STATED),
        "deviation": ("n - 1", STATED),
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "algorithm=gpro",
            "but algorithm has no value 'gpro' at stage advantage: the nearest is 'grpo' (docs/claims.md)",
        ),
        ("algorithm=ppo", "but algorithm has no value 'ppo' at stage advantage: the nearest is 'opo' (docs/claims.md)"),
        ("skope=group", "but claim 'skope' does not exist: the nearest is 'scope' (docs/claims.md)"),
        ("scope", "expected KEY=VALUE, for example scope=token (docs/claims.md)"),
        ("foo", "expected KEY=VALUE, for example algorithm=grpo (docs/claims.md)"),
        ("foo=bar", "but claim 'foo' does not exist: expected one of algorithm, scope, baseline, standardized, "),
        ("weights=constant", "but only adapters can claim weights: expected one of "),
        ("ratio=yes", "but no law reads ratio at stage advantage: expected one of "),
    ],
)
def test_wrong_claim_names_the_nearest(text: str, words: str) -> None:
    with pytest.raises(SentinelError) as raised:
        parse_claims([text], "advantage")
    assert str(raised.value).startswith(f"--claim is {text!r}, {words}")


def test_claim_with_two_values_is_refused() -> None:
    assert list(claim_texts(parse_claims(["scope=group", "scope=group"], "advantage"))) == ["scope"]
    with pytest.raises(SentinelError, match=r"^--claim scope is 'group' and 'batch', expected one value: drop one"):
        parse_claims(["scope=group", "scope=batch"], "advantage")


def test_spelling_of_verl_is_known() -> None:
    claimed = parse_claims(["aggregation=seq-mean-token-mean"], "aggregate")
    assert claimed.aggregation
    assert claimed.aggregation.value == "sequence-mean-token-mean"


def test_an_aggregation_is_no_algorithm() -> None:
    with pytest.raises(SentinelError, match="not an algorithm: claim aggregation=token-mean"):
        claims_of("aggregate", "token-mean", {})
