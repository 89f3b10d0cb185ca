"""Losses that claim a ratio of two policies, but read the log-probs of only one policy."""

from dataclasses import replace

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.claims import STATED
from rl_sentinel.search.claimed_losses import of_one_policy

_RATIO_OF_ONE = (
    "the function reads no old log-probs, so the ratio is 1 at every token and nothing is clipped; if samples are used "
    'for more than one update, state claims={"ratio": "yes"}: the loss is then checked with old log-probs'
)


def notes_on_ratio(boundary: Boundary) -> list[str]:
    """One note if a loss claims a ratio that the user does not state, and reads no old log-probs; otherwise empty.

    Such a loss is right only if each sample is used for one update.
    """
    ratio = boundary.claims.ratio
    return [_RATIO_OF_ONE] if ratio and ratio.cite != STATED and of_one_policy(boundary) else []


def with_stated_ratio(boundary: Boundary) -> Boundary:
    """Let the boundary read old log-probs, if the user states a ratio and the loss reads the current log-probs only.

    Any other boundary is returned unchanged.
    """
    ratio = boundary.claims.ratio
    if ratio is None or ratio.cite != STATED or not of_one_policy(boundary):
        return boundary
    return replace(boundary, reads=boundary.reads | {"old_logprob"})
