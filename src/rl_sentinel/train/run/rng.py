"""Random numbers that depend on the seed, their purpose and the step only, so that a checkpoint stores no state."""

import hashlib
import random

import torch


def derive_seed(*words: object) -> int:
    """A number below 2**63 from words; equal words give equal numbers.

    Example:
        >>> from rl_sentinel.train.run.rng import derive_seed
        >>> derive_seed(0, "tasks", 3) == derive_seed(0, "tasks", 3) != derive_seed(0, "tasks", 4)
        True
    """
    text = "/".join(str(word) for word in words)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def python_rng(*words: object) -> random.Random:
    """A generator of Python's ``random``, seeded with words."""
    return random.Random(derive_seed(*words))


def torch_generator(*words: object) -> torch.Generator:
    """A generator of torch, seeded with words; it is on the CPU, so that runs are equal on all devices."""
    return torch.Generator().manual_seed(derive_seed(*words))
