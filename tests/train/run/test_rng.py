"""Random numbers depend on words only."""

import torch

from rl_sentinel.train.run import rng


def test_words_are_distinguished() -> None:
    words = [(0, "task", 1), (1, "task", 1), (0, "order", 1), (0, "task", 2), (0, "task", 1, 0)]
    assert len({rng.derive_seed(*w) for w in words}) == len(words)
    assert torch.equal(torch.rand(3, generator=rng.torch_generator(5)), torch.rand(3, generator=rng.torch_generator(5)))
    assert 0 <= rng.derive_seed("x") < 2**63
