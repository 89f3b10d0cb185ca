"""Names of quantities that are fractions: they lie between 0 and 1 by any definition."""

from rl_sentinel.core.boundary import Output
from rl_sentinel.formulas.allowed import kind

#: First words of shares of tokens, rows or groups.
SHARES = frozenset(
    {
        "chosen",
        "clip_fraction",
        "clip_fraction_lower",
        "dead_group_fraction",
        "fraction",
        "full_length",
        "padding_fraction",
        "rejected",
        "rejected_fraction",
        "ratio_outside",
        "rejected_rows",
        "sequences_clipped",
        "too_far",
        "too_near",
        "trained",
        "untrained_fraction",
        "unscored",
        "value_clip_fraction",
    }
)


def is_share(output: Output) -> bool:
    """Whether an output is one number, and a share: a fraction from 0 to 1.

    Example:
        >>> from rl_sentinel.core.boundary import Output
        >>> from rl_sentinel.formulas.shares import is_share
        >>> is_share(Output("", "", "clip_fraction.own")), is_share(Output("", "nats", "kl.k1"))
        (True, False)
    """
    return output.axes == "" and kind(output.quantity) in SHARES
