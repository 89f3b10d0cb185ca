"""Rewards and outcome advantages as their papers write them: one number per response, in plain floats."""

from math import sqrt

Row = list[float]


def members(group: list[int], live: list[bool]) -> list[list[int]]:
    """For each response, the live responses to the same prompt."""
    by_prompt: dict[int, list[int]] = {}
    for b, g in enumerate(group):
        if live[b]:
            by_prompt.setdefault(g, []).append(b)
    return [by_prompt.get(g, []) for g in group]


def mean(numbers: Row) -> float:
    """The arithmetic mean; 0 of nothing."""
    return sum(numbers) / len(numbers) if numbers else 0.0


def deviation(numbers: Row, *, biased: bool = False) -> float:
    """The root of the mean squared distance to the mean; exactly 0 of equal numbers."""
    free = len(numbers) - (0 if biased else 1)
    if free < 1 or len(set(numbers)) == 1:
        return 0.0
    middle = mean(numbers)
    return sqrt(sum((x - middle) ** 2 for x in numbers) / free)


def places(group: list[int]) -> list[int]:
    """Each prompt's number, by the order of ids."""
    number = {g: n for n, g in enumerate(sorted(set(group)))}
    return [number[g] for g in group]


def group_sums(reward: Row, group: list[int], live: list[bool]) -> Row:
    """Of each response's live siblings and itself."""
    return [sum((reward[j] for j in rows), 0.0) for rows in members(group, live)]


def group_counts(group: list[int], live: list[bool]) -> Row:
    """How many live siblings there are, itself among them."""
    return [float(len(rows)) for rows in members(group, live)]


def group_maxima(reward: Row, group: list[int], live: list[bool]) -> Row:
    """The best of them."""
    return [max((reward[j] for j in rows), default=-float("inf")) for rows in members(group, live)]


def deviations(reward: Row, group: list[int], live: list[bool], *, biased: bool = False) -> Row:
    """How far they lie apart."""
    return [deviation([reward[j] for j in rows], biased=biased) for rows in members(group, live)]


def centred(reward: Row, group: list[int], live: list[bool], weight: Row | None = None) -> Row:
    """Less the (weighted) mean of the group; 0 where not live."""
    found = []
    for b, rows in enumerate(members(group, live)):
        if not live[b]:
            found.append(0.0)
            continue
        share = [1.0 if weight is None else weight[j] for j in rows]
        found.append(reward[b] - sum(w * reward[j] for w, j in zip(share, rows, strict=True)) / sum(share))
    return found


def grpo(reward: Row, group: list[int], live: list[bool], epsilon: float | None) -> Row:
    """Centred, and divided by the deviation plus ``epsilon`` if there is one; equal rewards give 0."""
    found = centred(reward, group, live)
    if epsilon is None:
        return found
    spread = deviations(reward, group, live)
    return [x / (s + epsilon) if s > 0 else 0.0 for x, s in zip(found, spread, strict=True)]


def rloo(reward: Row, group: list[int], live: list[bool]) -> Row:
    """Less the mean of the others; 0 with no others."""
    found = []
    for b, rows in enumerate(members(group, live)):
        others = [reward[j] for j in rows if j != b]
        found.append(reward[b] - mean(others) if live[b] and others else 0.0)
    return found


def opo(reward: Row, group: list[int], live: list[bool], length: Row) -> Row:
    """Less the mean weighted by length."""
    return centred(reward, group, live, length)


def passk(reward: Row, group: list[int], live: list[bool]) -> Row:
    """The margin of the one best over the second; 0 for all others, in a tie, and alone."""
    found = []
    for b, rows in enumerate(members(group, live)):
        others = [reward[j] for j in rows if j != b]
        best = live[b] and bool(others) and all(reward[b] > x for x in others)
        found.append(reward[b] - max(others) if best else 0.0)
    return found


def gpg(reward: Row, group: list[int], live: list[bool]) -> Row:
    """Centred, times all live responses by those whose group has unequal rewards."""
    told = sum(live[b] and len({reward[j] for j in rows}) > 1 for b, rows in enumerate(members(group, live)))
    return [x * sum(live) / told if told else 0.0 for x in centred(reward, group, live)]


def maxrl(reward: Row, group: list[int], live: list[bool]) -> Row:
    """How far above the mean, in means; 0 where nobody succeeds."""
    found = []
    for b, rows in enumerate(members(group, live)):
        middle = mean([reward[j] for j in rows])
        found.append((reward[b] - middle) / middle if live[b] and middle else 0.0)
    return found


def gdpo(parts: list[Row], group: list[int], live: list[bool], weight: Row, epsilon: float) -> Row:
    """Each part standardised by itself, their weighted sum standardised over all live responses."""
    apart = [grpo(part, group, live, epsilon) for part in parts]
    whole = [sum(w * part[b] for w, part in zip(weight, apart, strict=True)) for b in range(len(group))]
    every = [x for x, alive in zip(whole, live, strict=True) if alive]
    scale = deviation(every) + epsilon
    return [(x - mean(every)) / (scale or 1.0) if alive else 0.0 for x, alive in zip(whole, live, strict=True)]


def remax(reward: Row, greedy: Row, live: list[bool]) -> Row:
    """Less the reward of the greedy response."""
    return [r - g if alive else 0.0 for r, g, alive in zip(reward, greedy, live, strict=True)]


def reinforce(reward: Row, live: list[bool]) -> Row:
    """The reward of what is live."""
    return [r if alive else 0.0 for r, alive in zip(reward, live, strict=True)]


def reinforce_plus_plus_baseline(reward: Row, group: list[int], live: list[bool], epsilon: float) -> Row:
    """Centred by group, then standardised over all live responses."""
    found = centred(reward, group, live)
    every = [x for x, alive in zip(found, live, strict=True) if alive]
    spread = deviation(every)
    return [
        (x - mean(every)) / (spread + epsilon) if alive and spread > 1e-12 else 0.0
        for x, alive in zip(found, live, strict=True)
    ]


def normalised(  # noqa: PLR0913 - the choices of a normalisation
    reward: Row,
    group: list[int],
    live: list[bool],
    *,
    over_mean: str,
    over_deviation: str,
    leave_one_out: bool,
    biased: bool,
    epsilon: float,
) -> Row:
    """Less a mean, then by the deviation of what is left."""
    one = {"group": group, "batch": [0] * len(group)}
    plain = list(reward) if over_mean == "none" else centred(reward, one[over_mean], live)
    found = rloo(reward, one[over_mean], live) if leave_one_out else plain
    if over_deviation != "none":
        spread = deviations([round(x, 13) for x in plain], one[over_deviation], live, biased=biased)
        found = [x / (s + epsilon) if s > 0 else 0.0 for x, s in zip(found, spread, strict=True)]
    return [x if alive else 0.0 for x, alive in zip(found, live, strict=True)]


def rescaled(reward: Row, live: list[bool], bias: float, scale: float) -> Row:
    """Bias first."""
    return [(r + bias) * scale if alive else 0.0 for r, alive in zip(reward, live, strict=True)]


def clipped(reward: Row, live: list[bool], least: float, most: float) -> Row:
    """The middle one of three."""
    return [sorted((least, r, most))[1] if alive else 0.0 for r, alive in zip(reward, live, strict=True)]


def suppressed(reward: Row, live: list[bool], scored: list[bool]) -> Row:
    """Void where it never ended."""
    return [r if alive and told else 0.0 for r, alive, told in zip(reward, live, scored, strict=True)]


def overlong_penalty(length: list[int], limit: int, buffer: int, factor: float) -> Row:
    """DAPO's three cases."""
    found = []
    for n in length:
        if n <= limit - buffer:
            found.append(0.0)
        else:
            found.append(factor * ((limit - buffer) - n) / buffer if n <= limit else -factor)
    return found
