"""Formulas of algorithms, by hand."""

import pytest

from rl_sentinel.core.boundary import Output
from rl_sentinel.formulas.algorithms import ADVANTAGES, advantages_of, has_returns, known_advantages, returns_of
from rl_sentinel.search.filled_batch import filled
from specimens import specimen

PAIRS = filled([[1, 1], [1, 0], [1, 1], [1, 1]], reward=[4, 2, 1, 1], group=[0, 0, 1, 1], length=[2, 1, 2, 2])


@pytest.mark.parametrize(
    ("algorithm", "reading", "expected"),
    [
        ("grpo", "centered", [1, -1, 0, 0]),
        ("grpo", "by deviation (n) and 0.5", [1 / 1.5, -1 / 1.5, 0, 0]),
        ("rloo", "against the others' mean", [2, -2, 0, 0]),
        ("opo", "mean weighted by tokens of the response", [2 / 3, -4 / 3, 0, 0]),
        ("pass@k", "margin of the best", [2, 0, 0, 0]),
        ("gpg", "scaled by rows / rows of groups with unequal rewards", [2, -2, 0, 0]),
        ("outcome", "the outcome itself", [4, 2, 1, 1]),
        (
            "reinforce++ baseline",
            "by deviation (n) over rows, 0.5 beside",
            [1 / (0.5**0.5 + 0.5), -1 / (0.5**0.5 + 0.5), 0, 0],
        ),
    ],
)
def test_advantages(algorithm: str, reading: str, expected: list[float]) -> None:
    """A pair of 4 and 2, and a pair of equal rewards."""
    assert ADVANTAGES[algorithm](PAIRS, {"epsilon": 0.5})[reading] == pytest.approx(expected)


def test_claims_choose_readings() -> None:
    claims = {"algorithm": "grpo", "standardized": "yes", "deviation": "n - 1"}
    boundary = specimen(lambda b: b.reward, reads="reward", claims=claims)
    assert list(advantages_of(boundary, PAIRS, {"epsilon": 0.0})) == ["by deviation (n - 1) and 0"]
    plain = specimen(lambda b: b.reward, reads="reward", claims={"algorithm": "grpo", "standardized": "no"})
    assert list(advantages_of(plain, PAIRS, {})) == ["centered"]


def test_unknown() -> None:
    assert not known_advantages(specimen(lambda b: b.reward, reads="reward", claims={"algorithm": "own"}))
    assert known_advantages(specimen(lambda b: b.reward, reads="reward", claims={"algorithm": "gae"}))


def test_returns() -> None:
    claims = {"algorithm": "reinforce++"}
    both = {"advantage": Output("B T", "reward", "advantage"), "returns": Output("B T", "reward", "returns")}
    boundary = specimen(lambda b: b.reward, reads="reward mask", claims=claims, outputs=both)
    assert has_returns(boundary)
    assert returns_of(boundary, PAIRS, {"gamma": 0.5})["rewards to go"].tolist() == [[2, 4], [2, 0], [0.5, 1], [0.5, 1]]
    assert not has_returns(specimen(lambda b: b.reward, reads="reward mask", claims=claims))
    assert not has_returns(specimen(lambda b: b.reward, reads="reward", claims={"algorithm": "grpo"}, outputs=both))
