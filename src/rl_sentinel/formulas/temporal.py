"""Advantages and returns with credit over time (GAE, rewards to go), by their papers' recursions, per token."""

from collections.abc import Callable, Mapping
from statistics import fmean, pvariance, variance

import torch

from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.case import Settings

#: Name of a reading -> a list with one number per token, for each row of a batch.
Tokens = dict[str, list[list[float]]]

#: Setting names of a discount and of GAE's decay.
_DISCOUNT, _DECAY = ("discount", "gamma"), ("decay", "lam", "lambd", "lambda")


def _factor(settings: Settings, names: tuple[str, ...]) -> float:
    return next((float(settings[n] or 0) for n in names if n in settings), 1.0)


#: End of a reading's name: an untrained token is a time step like any other.
EVERY_STEP = ", every token of a response a step"

#: End of a reading's name: an untrained token is a time step without value and reward.
WORTHLESS = ", an untrained token without value" + EVERY_STEP


#: End of a reading's name: an untrained token only passes credit on, and has no temporal difference of its own.
SILENT = ", an untrained token without a difference" + EVERY_STEP

#: End of a reading's name: an untrained token has no value, no reward and no temporal difference.
SILENT_AND_WORTHLESS = ", an untrained token without value or difference" + EVERY_STEP


#: True or False for each token of each row.
_Marks = list[list[bool]]


def _steps(batch: Batch) -> dict[str, _Marks]:
    """End of a reading's name -> True at the tokens that are time steps: trained tokens, or all response tokens."""
    return {"": batch.mask.tolist(), EVERY_STEP: batch.valid.tolist()}


def _gae(batch: Batch, settings: Settings) -> Tokens:
    readings = Tokens()
    for name, found in _credit(batch, settings).items():
        readings |= {f"as they are{name}": found} | _normalized(found, batch, name, 0.0)
    return readings


def _credit(batch: Batch, settings: Settings) -> Tokens:
    """End of a reading's name (what an untrained token is) -> discounted sums of temporal differences."""
    found = {name: _discounted_differences(batch, settings, steps) for name, steps in _steps(batch).items()}
    names = (WORTHLESS, SILENT, SILENT_AND_WORTHLESS)
    if bool((batch.mask == batch.valid).all()):
        return found | dict.fromkeys(names, found[""])
    for name in names:
        read = batch if name == SILENT else _worthless_off_mask(batch)
        found[name] = _discounted_differences(read, settings, batch.valid.tolist(), silent=name != WORTHLESS)
    return found


def _worthless_off_mask(batch: Batch) -> Batch:
    """The batch with values and token rewards set to 0 at untrained tokens."""
    value, reward = (torch.where(batch.mask, x, 0.0) for x in (batch.value, batch.token_reward))
    return with_columns(batch, value=value, token_reward=reward)


def _normalized(found: list[list[float]], batch: Batch, name: str, epsilon: float) -> Tokens:
    """Normalize over all trained tokens; if every response token is a time step, also over all response tokens."""
    readings = {n + name: x for n, x in _whitened(found, batch.mask.tolist(), epsilon).items()}
    if name:
        readings |= {f"{n} over responses{name}": x for n, x in _whitened(found, batch.valid.tolist(), epsilon).items()}
    return readings


def _discounted_differences(
    batch: Batch, settings: Settings, steps: _Marks, *, silent: bool = False
) -> list[list[float]]:
    """Discounted sums of temporal differences; with ``silent``, an untrained token adds only its reward."""
    discount, decay = _factor(settings, _DISCOUNT), _factor(settings, _DECAY)
    found, gains = [[0.0] * batch.width for _ in range(batch.rows)], batch.token_reward.tolist()
    for b, (step, value) in enumerate(zip(steps, batch.value.tolist(), strict=True)):
        later, after, reward = 0.0, 0.0, float(batch.reward[b])
        for t in reversed([t for t in range(batch.width) if step[t]]):
            difference = 0.0 if silent and not batch.mask[b, t] else discount * after - value[t]
            later = reward + gains[b][t] + difference + discount * decay * later
            found[b][t], after, reward = later, value[t], 0.0
    return found


def _turn_level_gae(batch: Batch, settings: Settings) -> Tokens:
    """GAE with turns as steps: the last turn has the outcome; a turn's value is that of its first trained token."""
    discount, decay = _factor(settings, _DISCOUNT), _factor(settings, _DECAY)
    found, gains = [[0.0] * batch.width for _ in range(batch.rows)], batch.token_reward.tolist()
    for b, value in enumerate(batch.value.tolist()):
        later, after, reward = 0.0, 0.0, float(batch.reward[b])
        for places in reversed(_turns_of(batch, b)):
            reward += sum(gains[b][t] for t in places)
            later = reward + discount * after - value[places[0]] + discount * decay * later
            after, reward = value[places[0]], 0.0
            for t in places:
                found[b][t] = later
    return {"as they are": found} | _normalized(found, batch, "", 0.0)


def _turns_of(batch: Batch, row: int) -> list[list[int]]:
    """The trained tokens of each turn of a row, in order."""
    turns: dict[int, list[int]] = {}
    for t in range(batch.width):
        if batch.mask[row, t]:
            turns.setdefault(int(batch.turn[row, t]), []).append(t)
    return list(turns.values())


def _turn_level_returns(batch: Batch, settings: Settings) -> Tokens:
    found = _turn_level_gae(batch, settings)["as they are"]
    for b in range(batch.rows):
        for places in _turns_of(batch, b):
            for t in places:
                found[b][t] += float(batch.value[b, places[0]])
    return {"advantage, not whitened, above the value of the turn": found}


def _gae_returns(batch: Batch, settings: Settings) -> Tokens:
    readings = Tokens()
    for name, credit in _credit(batch, settings).items():
        pairs = zip(credit, batch.value.tolist(), strict=True)
        found = [[a + v for a, v in zip(*rows, strict=True)] for rows in pairs]
        readings[f"advantage, not whitened, above the value{name}"] = found
    return readings


def _rewards_to_go(batch: Batch, settings: Settings) -> Tokens:
    epsilon, readings = float(settings.get("epsilon") or 0.0), Tokens()
    for name, steps in _steps(batch).items():
        readings |= _normalized(_to_go(batch, settings, steps), batch, name, epsilon)
    return readings


def _to_go(batch: Batch, settings: Settings, steps: _Marks) -> list[list[float]]:
    discount, found = _factor(settings, _DISCOUNT), [[0.0] * batch.width for _ in range(batch.rows)]
    gains = batch.token_reward.tolist()
    for b, step in enumerate(steps):
        later = float(batch.reward[b])
        for t in reversed([t for t in range(batch.width) if step[t]]):
            found[b][t] = later + gains[b][t]
            later = discount * found[b][t]
    return found


def _optimal_token_baseline(batch: Batch, settings: Settings) -> Tokens:
    """Rewards to go minus their group mean at the same token, weighted by accumulated squared gradients.

    arXiv 2602.07078. The gradient of a token's log-prob with respect to the logits has the squared norm 1 - 2 p + q,
    where p is the token's probability and q the sum of squared probabilities; a batch with q below p squared is not
    compared. All weights are equal if the policy is ``certain`` (a setting), so that there is no gradient. A token that
    only one response reaches has no baseline. If the ratio to the sampler is clamped, each squared norm is multiplied
    by the squared ratio.
    """
    trained = [[t for t in range(batch.width) if batch.mask[b, t]] for b in range(batch.rows)]
    share, squares = batch.logprob.double().exp().tolist(), batch.pi_squared.tolist()
    if any(share[b][t] ** 2 > squares[b][t] for b in range(batch.rows) for t in trained[b]):
        return {}
    ratio = _clamped_ratio(batch, settings)
    gain = _to_go(batch, {"discount": 1.0}, batch.mask.tolist())
    weight = [[0.0] * batch.width for _ in range(batch.rows)]
    for b, places in enumerate(trained):
        for t in places:
            steps = [(1 - 2 * share[b][s] + squares[b][s]) * ratio[b][s] ** 2 for s in places if s <= t]
            weight[b][t] = 1.0 if settings.get("certain") else sum(steps)
    turns = [list(enumerate(ts)) for ts in trained]
    return {"compared at the same of its trained tokens": _compared(batch, gain, weight, turns)}


def _clamped_ratio(batch: Batch, settings: Settings) -> list[list[float]]:
    most = settings.get("sampler_ratio_at_most")
    ratio = (batch.logprob.double() - batch.rollout_logprob.double()).exp()
    return (ratio.clamp(max=float(most)) if most else torch.ones_like(ratio)).tolist()


def _compared(
    batch: Batch, gain: list[list[float]], weight: list[list[float]], at: list[list[tuple[int, int]]]
) -> list[list[float]]:
    group, found = batch.group.tolist(), [[0.0] * batch.width for _ in range(batch.rows)]
    for b, places in enumerate(at):
        for turn, t in places:
            same = [(j, s) for j, others in enumerate(at) for n, s in others if group[j] == group[b] and n == turn]
            total = sum(weight[j][s] for j, s in same)
            mean = sum(weight[j][s] * gain[j][s] for j, s in same) / total if total and len(same) > 1 else 0.0
            found[b][t] = gain[b][t] - mean
    return found


def _whitened(found: list[list[float]], mask: _Marks, epsilon: float) -> Tokens:
    """Standardize by the mean and deviation of all marked tokens."""
    every = [x for row, kept in zip(found, mask, strict=True) for x, k in zip(row, kept, strict=True) if k]
    if len(every) < 2 or len(set(every)) == 1:
        return {}
    mean, readings = fmean(every), Tokens()
    for name, spread in (("n - 1", variance(every)), ("n", pvariance(every))):
        for how, scale in (("within the root", (spread + 1e-8) ** 0.5), ("beside", spread**0.5 + epsilon)):
            readings[f"whitened ({name}), {how}"] = [[(x - mean) / scale for x in row] for row in found]
    return readings


#: Algorithm -> advantages per token, by reading; the outcome is added to the reward of the last trained token.
TEMPORAL: Mapping[str, Callable[[Batch, Settings], Tokens]] = {
    "gae": _gae,
    "turn-level gae": _turn_level_gae,
    "reinforce++": _rewards_to_go,
    "optimal token baseline": _optimal_token_baseline,
}

#: Algorithms whose papers do not define whether an untrained token is a step.
OPEN = frozenset({"gae", "reinforce++"})

#: Algorithm -> returns per token: the targets of the value function, in reward units, never whitened.
RETURNS: Mapping[str, Callable[[Batch, Settings], Tokens]] = {
    "gae": _gae_returns,
    "turn-level gae": _turn_level_returns,
    "reinforce++": lambda batch, settings: {
        f"rewards to go{name}": _to_go(batch, settings, steps) for name, steps in _steps(batch).items()
    },
}
