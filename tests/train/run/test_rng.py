"""Random numbers that depend on words alone."""

import torch

from rl_sentinel.train.run import rng


def test_words_are_told_apart() -> None:
    """Another seed, another use, another step: other numbers; the same words, the same."""
    words = [(0, "task", 1), (1, "task", 1), (0, "order", 1), (0, "task", 2), (0, "task", 1, 0)]
    assert len({rng.number(*w) for w in words}) == len(words)
    assert torch.equal(torch.rand(3, generator=rng.generator(5)), torch.rand(3, generator=rng.generator(5)))
    assert 0 <= rng.number("x") < 2**63
