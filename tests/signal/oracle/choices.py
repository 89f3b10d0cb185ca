"""Which tokens are treated apart, and which rows make a mini-batch, in plain numbers."""

from oracle.rows import mean
from oracle.tokens import Grid, Mask, trained


def covariances(own: Grid, weight: Grid, mask: Mask) -> Grid:
    """How far the one lies from its mean, by how far the other does."""
    places = [(b, t) for b, m in enumerate(mask) for t in trained(m)]
    middle = [mean([x[b][t] for b, t in places]) for x in (own, weight)]
    found = [[0.0] * len(m) for m in mask]
    for b, t in places:
        found[b][t] = (own[b][t] - middle[0]) * (weight[b][t] - middle[1])
    return found


def how_many(mask: Mask, share: float) -> int:
    """Of the trained tokens, rounded down, but one at least."""
    return max(1, int(share * sum(len(trained(m)) for m in mask)))


def largest(size: Grid, mask: Mask, share: float) -> Grid:
    """Those of which fewer are larger than may be chosen."""
    every = [size[b][t] for b, m in enumerate(mask) for t in trained(m)]
    count = how_many(mask, share)
    return [
        [float(k and sum(other > x for other in every) < count) for x, k in zip(*row, strict=True)]
        for row in zip(size, mask, strict=True)
    ]


def between(size: Grid, mask: Mask, low: float, high: float) -> list[tuple[int, int]]:
    """The places from which is drawn."""
    return [(b, t) for b, m in enumerate(mask) for t in trained(m) if low < size[b][t] < high]


def prompt_minibatches(group: list[int], prompts: int) -> list[list[int]]:
    """Prompts as they are first met, so many at a time; their rows."""
    met = list(dict.fromkeys(group))
    parts = [met[i : i + prompts] for i in range(0, len(met), prompts)]
    return [[b for b, g in enumerate(group) if g in part] for part in parts]


def denominator(mode: str, mask: Mask, length: int | None) -> float:
    """What is counted for a mode of aggregation; 1 of nothing."""
    rows = [len(trained(m)) for m in mask if any(m)]
    counts = {"token-mean": sum(rows), "token-sum": len(rows) * (length or 0)}
    return float(counts.get(mode, len(rows)) or 1)


def of_prompts(tokens: list[int], group: list[int]) -> tuple[float, list[int]]:
    """Prompts with a token, 1 of none; and at each row the tokens of all rows of its prompt."""
    whole: dict[int, int] = {}
    for count, prompt in zip(tokens, group, strict=True):
        whole[prompt] = whole.get(prompt, 0) + count
    return float(len([n for n in whole.values() if n]) or 1), [whole[prompt] for prompt in group]
