"""Claims that share one citation."""

from rl_sentinel.core.boundary import Claim


def claims(cite: str, **values: str) -> dict[str, Claim]:
    """Claims with one citation: the target's own words."""
    return {key.replace("_", "-"): Claim(value, cite) for key, value in values.items()}
