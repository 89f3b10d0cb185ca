"""Allowed inputs of quantities."""

import pytest

from rl_sentinel.formulas.allowed import wrong_inputs

READS = frozenset({"reward", "token_reward", "advantage", "value", "logprob", "old_logprob", "mask", "length"})


@pytest.mark.parametrize(
    ("quantity", "wrong"),
    [
        ("kl.k3", ("reward", "token_reward", "advantage", "value")),
        ("clip_fraction", ("reward", "token_reward", "value")),
        ("response_length.mean", ("reward", "token_reward", "advantage", "logprob", "old_logprob", "value")),
        ("advantage", ()),
        ("", ()),
    ],
)
def test_wrong_inputs(quantity: str, wrong: tuple[str, ...]) -> None:
    assert wrong_inputs(quantity, READS) == wrong


def test_clip_fraction_of_an_inner_advantage() -> None:
    assert wrong_inputs("clip_fraction", READS - {"advantage"}) == ()
