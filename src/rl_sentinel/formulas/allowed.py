"""Which signal columns and settings a quantity may answer to, by the name of the quantity."""

from collections.abc import Iterable, Mapping

from rl_sentinel.core.batch import columns

#: The log-probs of the four policies that a batch knows.
LOGPROBS = frozenset({"logprob", "old_logprob", "ref_logprob", "rollout_logprob"})

#: First word of a quantity -> signal columns that it may answer to; masks and labels always may.
ALLOWED: Mapping[str, frozenset[str]] = {
    "kl": LOGPROBS | {"logits"},
    "kl_coefficient": LOGPROBS | {"logits"},
    "ratio": LOGPROBS | {"logits"},
    "clip_fraction": LOGPROBS | {"logits", "advantage"},
    "clip_fraction_lower": LOGPROBS | {"logits", "advantage"},
    "entropy": frozenset({"entropy", "logits", "logprob"}),
    "outcome": frozenset({"reward"}),
    "positive_outcome": frozenset({"reward"}),
    "full_length": frozenset(),
    "length": frozenset(),
    "response_length": frozenset(),
}

#: First word of a quantity -> settings that it may not answer to: a KL is measured before it is weighed.
UNWEIGHED: Mapping[str, tuple[str, ...]] = {"kl": ("kl_coef",)}


def kind(quantity: str) -> str:
    """The first word of a quantity.

    Example:
        >>> kind("kl.k1")
        'kl'
    """
    return quantity.partition(".")[0]


def wrong_inputs(quantity: str, reads: Iterable[str]) -> tuple[str, ...]:
    """The signal columns among ``reads`` to which the quantity may not answer; rewards first.

    Where the advantage is made inside, a fraction of clipped tokens answers to the reward by its
    sign, so that such a boundary is not judged.

    Example:
        >>> wrong_inputs("kl.k1", ["reward", "logprob", "mask"])
        ('reward',)
    """
    read = set(reads)
    first = kind(quantity)
    if first not in ALLOWED or (first.startswith("clip_fraction") and "advantage" not in read):
        return ()
    wrong = (set(columns(role="signal")) & read) - ALLOWED[first]
    return tuple(sorted(wrong, key=lambda n: ("reward" not in n, n)))
