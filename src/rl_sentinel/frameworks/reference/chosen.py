"""Tokens that some losses treat apart: which function of the library chooses them, and by what numbers."""

from collections.abc import Mapping

from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims_from_text
from rl_sentinel.frameworks.reference.arguments import SIGNAL
from rl_sentinel.frameworks.target import Target

#: Name of a loss -> what chooses for it, its numbers by setting, and what else it wants.
CHOOSERS: Mapping[str, tuple[str, Mapping[str, str], Mapping[str, object]]] = {
    "kl_cov": ("largest", {"share": "share"}, {}),
    "clip_cov": ("drawn_between", {"share": "share", "cov_low": "low", "cov_high": "high"}, {"generator": None}),
}

#: Setting -> what it is set to: a share of all that may be drawn leaves no chance.
NUMBERS: Mapping[str, float] = {"share": 0.4, "cov_low": -0.1953125, "cov_high": 3.0}

#: Setting that is documented to matter -> two values; covariances of small batches stand at these bounds exactly.
_KNOBS: Mapping[str, str] = {"share": "0.2|0.8", "cov_low": "-0.1953125|0.05", "cov_high": "-0.0703125|3.0"}


#: Losses whose choice is a rounded share of the tokens, so that a batch twice as large may choose others.
RANKED = frozenset({"kl_cov"})


def settings_of(name: str) -> Settings:
    """The settings that choosing for a loss takes."""
    wanted = CHOOSERS[name][1] if name in CHOOSERS else {}
    return {n: 1.0 if name == "clip_cov" and n == "share" else NUMBERS[n] for n in wanted}


def knobs_of(name: str) -> Claims:
    """Those of these settings that matter; a share of all that may be drawn is no choice."""
    cite = f"{SIGNAL}.covariance: docstrings"
    return claims_from_text({f"knob:{n}": _KNOBS[n] for n, v in settings_of(name).items() if v != 1.0}, cite)


def chosen(target: Target, name: str, batch: Batch, settings: Settings) -> dict[str, Tensor]:
    """The chosen tokens of a whole mini-batch, for a loss that takes them."""
    if name not in CHOOSERS:
        return {}
    choose, numbers, more = CHOOSERS[name]
    size = target.call(f"{SIGNAL}.covariance.covariances", batch.logprob, batch.advantage, mask=batch.mask)
    by = {parameter: settings[n] for n, parameter in numbers.items()}
    return {"chosen": target.call(f"{SIGNAL}.covariance.{choose}", size, mask=batch.mask, **by, **more)}
