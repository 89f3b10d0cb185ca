"""Which signal columns and settings a quantity may depend on, by its name."""

from collections.abc import Iterable, Mapping

from rl_sentinel.core.batch import columns

#: The log-prob columns of the four policies in a batch.
LOGPROBS = frozenset({"logprob", "old_logprob", "ref_logprob", "rollout_logprob"})

#: First word of a quantity -> signal columns that it may depend on; masks and labels are always allowed.
ALLOWED: Mapping[str, frozenset[str]] = {
    "kl": LOGPROBS | {"logits"},
    "kl_coefficient": LOGPROBS | {"logits"},
    "ratio": LOGPROBS | {"logits"},
    "probability_difference": LOGPROBS | {"logits"},
    "clip_fraction": LOGPROBS | {"logits", "advantage"},
    "clip_fraction_lower": LOGPROBS | {"logits", "advantage"},
    "entropy": frozenset({"entropy", "logits", "logprob"}),
    "outcome": frozenset({"reward"}),
    "positive_outcome": frozenset({"reward"}),
    "full_length": frozenset(),
    "length": frozenset(),
    "response_length": frozenset(),
}

#: First word of a quantity -> settings that it must not depend on: a KL is measured before it is weighted.
UNWEIGHED: Mapping[str, tuple[str, ...]] = {"kl": ("kl_coef",)}


def kind(quantity: str) -> str:
    """The first word of a quantity.

    Example:
        >>> kind("kl.k1")
        'kl'
    """
    return quantity.partition(".")[0]


def wrong_inputs(quantity: str, reads: Iterable[str]) -> tuple[str, ...]:
    """The signal columns among ``reads`` that the quantity must not depend on; rewards first.

    The clip fraction of a boundary that computes the advantage itself depends on the reward, through the sign of the
    advantage, so it is not checked. Neither is a quantity that is not in ``ALLOWED``.

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
