"""Random numbers that depend on the seed, on what they are for, and on the step alone: nothing to store."""

import hashlib
import random

import torch


def number(*words: object) -> int:
    """A whole number below 2**63 from words; equal words, equal numbers.

    Example:
        >>> from rl_sentinel.train.run.rng import number
        >>> number(0, "tasks", 3) == number(0, "tasks", 3) != number(0, "tasks", 4)
        True
    """
    text = "/".join(str(word) for word in words)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def plain(*words: object) -> random.Random:
    """A source of Python's random numbers.

    Example:
        >>> from rl_sentinel.train.run.rng import plain
        >>> plain(0, "tasks").random() == plain(0, "tasks").random()
        True
    """
    return random.Random(number(*words))


def generator(*words: object) -> torch.Generator:
    """A source of torch's random numbers, on the CPU whatever the model's device.

    Example:
        >>> import torch
        >>> from rl_sentinel.train.run.rng import generator
        >>> bool(torch.rand(1, generator=generator(0)) == torch.rand(1, generator=generator(0)))
        True
    """
    return torch.Generator().manual_seed(number(*words))
