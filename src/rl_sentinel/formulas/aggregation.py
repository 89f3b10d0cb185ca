"""Reduce one number per token to one number per batch, with plain sums and every accepted reading of the mode."""

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Settings

#: Name of a reading (an accepted interpretation of the formula) -> its value.
Named = dict[str, Tensor]

#: Mode of aggregation -> the divisor of each row's sum, before rows are combined.
MODES = {
    "token-mean": "",
    "token-sum": "",
    "sequence-mean-token-sum": "",
    "sequence-mean-token-mean": "its trained tokens",
    "sequence-mean-token-sum-by-width": "the width",
    "prompt-mean": "its prompt's trained tokens",
}

#: Modes whose divisor does not depend on the length of the response.
BY_CONSTANT = ("token-sum", "sequence-mean-token-sum", "sequence-mean-token-sum-by-width")


def aggregated(tokens: Tensor, batch: Batch, mode: str, settings: Settings, rows: str = "") -> Named:
    """Reduce ``[B, T]`` numbers to one number; the result has one entry per reading of the mode.

    A mean over rows or prompts divides by the number of "live" rows or prompts, or of "all"; ``rows`` names one of
    these two readings, and an empty ``rows`` gives both.

    Settings:
        tokens, rows: denominators that the caller gives.
        length: a fixed length. It divides the mean of row sums or, instead of the width, the sum of each row.
        scale: the divisor of each row's sum, instead of the width.
        ranks: the number of ranks; the loss of each rank is multiplied by it.

    Source:
        DAPO (arXiv 2503.14476), equation 8, for the mean over tokens; GRPO (arXiv 2402.03300),
        equation 3, for the mean of row means; Dr. GRPO (arXiv 2503.20783), for the fixed length; SkyRL's
        ``prompt_mean``, for the mean over prompts.
    """
    sums = torch.where(batch.mask, tokens, 0.0).sum(dim=1)
    total = (sums / _divisors(mode, batch, settings))[batch.live].sum() * _number(settings, "ranks", 1)
    if mode == "token-sum":
        if not settings.get("length"):
            return {"a sum": total}
        total = total / _number(settings, "length", 1)
    if mode == "token-mean":
        return {"by trained tokens": total / _number(settings, "tokens", max(1, int(batch.mask.sum())))}
    if settings.get("rows") is not None:
        return {"by the given rows": total / _number(settings, "rows", 1)}
    counts = {"live": max(1, int(batch.live.sum())), "all": batch.rows}
    if mode == "prompt-mean":
        counts = {"live": max(1, len(set(batch.group[batch.live].tolist()))), "all": len(set(batch.group.tolist()))}
    of = "prompts" if mode == "prompt-mean" else "rows"
    found = {f"by {who} {of}": total / count for who, count in counts.items() if rows in ("", who)}
    if MODES[mode] == "the width" and settings.get("length") and not settings.get("scale"):
        by_length = batch.width / _number(settings, "length", 1)
        found |= {f"{name} and the fixed length": x * by_length for name, x in found.items()}
    return found


def _number(settings: Settings, name: str, default: float) -> float:
    given = settings.get(name)
    return float(given) if isinstance(given, int | float) else default


def _divisors(mode: str, batch: Batch, settings: Settings) -> Tensor | float:
    """The divisor of each row's sum; rows without a trained token do not count."""
    by, counts = MODES[mode], batch.mask.sum(dim=1).clamp(min=1)
    if by == "its trained tokens":
        return counts
    if by == "its prompt's trained tokens":
        same_prompt = batch.group.unsqueeze(1) == batch.group
        return (same_prompt * batch.mask.sum(dim=1)).sum(dim=1).clamp(min=1)
    return _number(settings, "scale", batch.width) if by == "the width" else 1.0
