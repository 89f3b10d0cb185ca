"""What is computed per token, in plain floats: sums, places, recursions, KLs, and what a KL is used for."""

from math import exp

from oracle.rows import mean

Grid = list[list[float]]
Mask = list[list[bool]]


def trained(mask: list[bool]) -> list[int]:
    """Positions of the trained tokens of one response."""
    return [t for t, kept in enumerate(mask) if kept]


def _grid(mask: Mask) -> Grid:
    return [[0.0] * len(row) for row in mask]


def selected(values: Grid, mask: Mask) -> Grid:
    """0 off the mask."""
    return [[x if k else 0.0 for x, k in zip(*row, strict=True)] for row in zip(values, mask, strict=True)]


def row_sums(values: Grid, mask: Mask) -> list[float]:
    """Over trained tokens."""
    return [sum((x[t] for t in trained(m)), 0.0) for x, m in zip(values, mask, strict=True)]


def row_means(values: Grid, mask: Mask) -> list[float]:
    """Over trained tokens."""
    return [mean([x[t] for t in trained(m)]) for x, m in zip(values, mask, strict=True)]


def aggregate(values: Grid, mask: Mask, mode: str, denominator: float, group: list[int] | None = None) -> float:
    """Over responses, of the sum or of the mean of each, or over prompts of the mean of each; by the denominator."""
    total = 0.0
    kept = [[x[t] for t in trained(m)] for x, m in zip(values, mask, strict=True)]
    if mode == "prompt-mean":
        ids = group or []
        kept = [[n for one, at in zip(kept, ids, strict=True) if at == prompt for n in one] for prompt in set(ids)]
    for numbers in kept:
        if numbers:
            total += mean(numbers) if mode in ("sequence-mean-token-mean", "prompt-mean") else sum(numbers)
    return total / denominator


def spread(row: list[float], mask: Mask) -> Grid:
    """At each trained token."""
    return [[x if k else 0.0 for k in m] for x, m in zip(row, mask, strict=True)]


def at_last(row: list[float], mask: Mask) -> Grid:
    """At the last trained token."""
    found = _grid(mask)
    for b, m in enumerate(mask):
        if any(m):
            found[b][trained(m)[-1]] = row[b]
    return found


def response_aligned(values: Grid, prompt: list[int], length: list[int], width: int, *, predicts_next: bool) -> Grid:
    """Token t of the response stands at ``prompt + t``, and is predicted one earlier."""
    shift = 1 if predicts_next else 0
    return [
        [values[b][prompt[b] + t - shift] if t < length[b] else 0.0 for t in range(width)] for b in range(len(values))
    ]


def discounted_suffix_sums(values: Grid, discount: float) -> Grid:
    """From the end to the start."""
    found = [[0.0] * len(row) for row in values]
    for b, row in enumerate(values):
        later = 0.0
        for t in reversed(range(len(row))):
            later = found[b][t] = row[t] + discount * later
    return found


def trained_first(mask: Mask) -> list[list[int]]:
    """Trained positions, then the others."""
    return [trained(m) + [t for t, kept in enumerate(m) if not kept] for m in mask]


def gae(reward: Grid, value: Grid, mask: Mask, discount: float, decay: float) -> Grid:
    """The sum of all later differences, each faded once per trained token between, written out."""
    found = _grid(mask)
    for b, m in enumerate(mask):
        places = trained(m)
        after = [*(value[b][t] for t in places[1:]), 0.0][: len(places)]
        differences = [reward[b][t] + discount * v - value[b][t] for t, v in zip(places, after, strict=True)]
        for i, t in enumerate(places):
            found[b][t] = sum((discount * decay) ** k * x for k, x in enumerate(differences[i:]))
    return found


def _by_turn(turn: list[int], mask: list[bool]) -> list[list[int]]:
    """Trained positions of each turn of one response."""
    return [[t for t in trained(mask) if turn[t] == k] for k in sorted({turn[t] for t in trained(mask)})]


def turn_level_gae(  # noqa: PLR0913 - as many as the library's
    reward: Grid, value: Grid, turn: list[list[int]], mask: Mask, discount: float, decay: float
) -> Grid:
    """GAE of a response whose tokens are turns, with what these earned and the value of their first; at all of them."""
    found = _grid(mask)
    for b, m in enumerate(mask):
        turns = _by_turn(turn[b], m)
        gained = [sum(reward[b][t] for t in places) for places in turns]
        judged = [value[b][places[0]] for places in turns]
        (whole,) = gae([gained], [judged], [[True] * len(turns)], discount, decay)
        for places, x in zip(turns, whole, strict=True):
            for t in places:
                found[b][t] = x
    return found


def turn_values(value: Grid, turn: list[list[int]], mask: Mask) -> Grid:
    """That of the first of each turn."""
    found = _grid(mask)
    for b, m in enumerate(mask):
        for places in _by_turn(turn[b], m):
            for t in places:
                found[b][t] = value[b][places[0]]
    return found


def reinforce_plus_plus(reward: Grid, mask: Mask, discount: float, epsilon: float) -> Grid:
    """Rewards to go, about their mean and by their deviation over all trained tokens."""
    gains = gae(reward, _grid(mask), mask, discount, 1.0)
    every = [gains[b][t] for b, m in enumerate(mask) for t in trained(m)]
    middle = mean(every)
    square = sum((x - middle) ** 2 for x in every) / max(1, len(every) - 1)
    scale = square**0.5 + epsilon
    return [
        [(x - middle) / (scale or 1.0) if k else 0.0 for x, k in zip(*r, strict=True)]
        for r in zip(gains, mask, strict=True)
    ]


def optimal_token_baseline(reward: Grid, own: Grid, squared: Grid, mask: Mask, group: list[int]) -> Grid:
    """At each turn of a group, gains to go less their mean by how far gradients reached until there."""
    found = _grid(mask)
    gains = gae(reward, _grid(mask), mask, 1.0, 1.0)
    for b, m in enumerate(mask):
        for turn, t in enumerate(trained(m)):
            there = [j for j, g in enumerate(group) if g == group[b] and len(trained(mask[j])) > turn]
            weight = [sum(_reach(own[j][s], squared[j][s]) for s in trained(mask[j])[: turn + 1]) for j in there]
            if not any(weight):
                weight = [1.0] * len(there)
            gain = [gains[j][trained(mask[j])[turn]] for j in there]
            baseline = sum(w * x for w, x in zip(weight, gain, strict=True)) / sum(weight)
            found[b][t] = gains[b][t] - (baseline if len(there) > 1 else 0.0)
    return found


def _reach(own: float, squared: float) -> float:
    """The squared length of the log-prob's gradient by the logits."""
    return max(0.0, 1 - 2 * exp(own) + squared)


def value_loss(value: Grid, old: Grid, returns: Grid, mask: Mask, clip: float) -> Grid:
    """Half the larger square: of the value, or of where it may have gone."""
    found = _grid(mask)
    for b, m in enumerate(mask):
        for t in trained(m):
            near = sorted((old[b][t] - clip, value[b][t], old[b][t] + clip))[1]
            found[b][t] = max((value[b][t] - returns[b][t]) ** 2, (near - returns[b][t]) ** 2) / 2
    return found


def _ratio(one: float, other: float) -> float:
    return exp(one - other)


def kl(kind: str, own: Grid, ref: Grid, mask: Mask) -> Grid:
    """An estimate from the tokens that were sampled."""
    found = _grid(mask)
    for b, m in enumerate(mask):
        for t in trained(m):
            ratio = _ratio(ref[b][t], own[b][t])
            distance = own[b][t] - ref[b][t]
            estimates = {"k1": distance, "k2": distance**2 / 2, "k3": ratio - 1 + distance, "absolute": abs(distance)}
            found[b][t] = estimates[kind]
    return found


def importance_weighted(estimate: Grid, own: Grid, old: Grid, mask: Mask) -> Grid:
    """Times the ratio."""
    found = _grid(mask)
    for b, m in enumerate(mask):
        for t in trained(m):
            found[b][t] = estimate[b][t] * _ratio(own[b][t], old[b][t])
    return found


def in_reward(reward: Grid, estimate: Grid, mask: Mask, coefficient: float) -> Grid:
    """Less the price of the KL."""
    found = _grid(mask)
    for b, m in enumerate(mask):
        for t in trained(m):
            found[b][t] = reward[b][t] - coefficient * estimate[b][t]
    return found


def adapted(coefficient: float, target: float, horizon: float, observed: float, samples: int) -> float:
    """A proportional controller whose error is held within a fifth."""
    error = observed / target - 1
    if error > 0.2:
        error = 0.2
    elif error < -0.2:
        error = -0.2
    return coefficient + coefficient * error * samples / horizon
