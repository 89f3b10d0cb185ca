"""Log-prob and entropy of a token from its logits, and how both move with each logit, in plain floats."""

from math import exp, inf, log


def _chances(logits: list[float], temperature: float) -> list[float]:
    """Of each token, by the softmax."""
    most = max(logits)
    lifted = [exp((x - most) / temperature) for x in logits]
    return [x / sum(lifted) for x in lifted]


def logprob(logits: list[float], token: int, temperature: float) -> float:
    """The log of the token's share."""
    most = max(logits)
    return (logits[token] - most) / temperature - log(sum(exp((x - most) / temperature) for x in logits))


def entropy(logits: list[float], temperature: float) -> float:
    """What the log of a share is worth on average, turned round; no share counts 0."""
    return -sum(p * log(p) for p in _chances(logits, temperature) if p)


def logprob_slopes(logits: list[float], token: int, temperature: float) -> list[float]:
    """By each logit: one for the token itself, less the share."""
    return [((v == token) - p) / temperature for v, p in enumerate(_chances(logits, temperature))]


def entropy_slopes(logits: list[float], temperature: float) -> list[float]:
    """By each logit: minus its share, by how far the log of that lies above minus the entropy."""
    whole = entropy(logits, temperature)
    return [
        -p * (log(p) + whole) / temperature if x > -inf and p else 0.0
        for x, p in zip(logits, _chances(logits, temperature), strict=True)
    ]
