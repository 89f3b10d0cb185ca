"""Advantages and returns with credit over time (GAE, rewards to go), per token, by the recursions of the papers.

The papers define them for responses whose tokens are all trained. Where a response has untrained tokens, each accepted
reading of a formula has a different name, and the end of the name says how untrained tokens are treated.
"""

from collections.abc import Callable, Mapping
from statistics import fmean, pvariance, variance

import torch

from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.case import Settings

#: One number per token, for each row of a batch; 0 where a token has none.
_Numbers = list[list[float]]

#: Name of a reading -> one number per token, for each row of a batch.
Tokens = dict[str, _Numbers]

#: The positions of some tokens, in order, for each row of a batch.
_Positions = list[list[int]]

#: Setting names of a discount and of GAE's decay.
_DISCOUNT, _DECAY = ("discount", "gamma"), ("decay", "lam", "lambd", "lambda")

#: End of a reading's name: an untrained token is a time step like any other.
EVERY_STEP = ", every token of a response a step"

#: End of a reading's name: an untrained token is a time step without value and reward.
WORTHLESS = ", an untrained token without value" + EVERY_STEP

#: End of a reading's name: an untrained token passes credit on, and has no temporal difference.
SILENT = ", an untrained token without a difference" + EVERY_STEP

#: End of a reading's name: an untrained token has no value, no reward and no temporal difference.
SILENT_AND_WORTHLESS = ", an untrained token without value or difference" + EVERY_STEP


def _factor(settings: Settings, names: tuple[str, ...]) -> float:
    """The first of these settings that is stated, 0 if it is None; 1 if none is stated."""
    return next((float(settings[n] or 0) for n in names if n in settings), 1.0)


def _zeros(batch: Batch) -> _Numbers:
    return [[0.0] * batch.width for _ in range(batch.rows)]


def _trained(batch: Batch) -> _Positions:
    """The trained tokens of each row."""
    return [[t for t, trained in enumerate(row) if trained] for row in batch.mask.tolist()]


def _of_responses(batch: Batch) -> _Positions:
    """All tokens of each response."""
    return [[t for t, valid in enumerate(row) if valid] for row in batch.valid.tolist()]


def _time_steps(batch: Batch) -> dict[str, _Positions]:
    """End of the name of a reading -> the tokens that are time steps."""
    return {"": _trained(batch), EVERY_STEP: _of_responses(batch)}


def _gae(batch: Batch, settings: Settings) -> Tokens:
    """GAE, arXiv 1506.02438, with tokens as steps: the advantages as they are, and whitened."""
    readings = Tokens()
    for name, advantage in _gae_of_tokens(batch, settings).items():
        readings |= {f"as they are{name}": advantage} | _normalized(advantage, batch, name, 0.0)
    return readings


def _gae_of_tokens(batch: Batch, settings: Settings) -> Tokens:
    """End of the name of a reading -> discounted sums of temporal differences."""
    steps = {name: [[[t] for t in row] for row in positions] for name, positions in _time_steps(batch).items()}
    advantage = {name: _discounted_differences(batch, settings, of_rows) for name, of_rows in steps.items()}
    names = (WORTHLESS, SILENT, SILENT_AND_WORTHLESS)
    if bool((batch.mask == batch.valid).all()):
        return advantage | dict.fromkeys(names, advantage[""])
    for name in names:
        read = batch if name == SILENT else _worthless_off_mask(batch)
        silent = name != WORTHLESS
        advantage[name] = _discounted_differences(read, settings, steps[EVERY_STEP], silent=silent)
    return advantage


def _worthless_off_mask(batch: Batch) -> Batch:
    """The batch with values and token rewards set to 0 at untrained tokens."""
    value, reward = (torch.where(batch.mask, x, 0.0) for x in (batch.value, batch.token_reward))
    return with_columns(batch, value=value, token_reward=reward)


def _discounted_differences(
    batch: Batch, settings: Settings, steps: list[_Positions], *, silent: bool = False
) -> _Numbers:
    """Discounted sums of temporal differences, one per step, at all tokens of the step.

    Args:
        batch: the batch; the last step of a row has its outcome, besides the rewards of its tokens.
        settings: the discount and the decay.
        steps: the steps of each row, in order; a step has one or more tokens, and the value of its first token.
        silent: a step that begins with an untrained token adds its reward, and has no temporal difference.
    """
    discount, decay = _factor(settings, _DISCOUNT), _factor(settings, _DECAY)
    value, token_reward, mask = batch.value.tolist(), batch.token_reward.tolist(), batch.mask.tolist()
    advantage = _zeros(batch)
    for b, outcome in enumerate(batch.reward.tolist()):
        later, next_value, reward = 0.0, 0.0, outcome
        for step in reversed(steps[b]):
            first = step[0]
            reward += sum(token_reward[b][t] for t in step)
            difference = 0.0 if silent and not mask[b][first] else discount * next_value - value[b][first]
            later = reward + difference + discount * decay * later
            next_value, reward = value[b][first], 0.0
            for t in step:
                advantage[b][t] = later
    return advantage


def _turn_level_gae(batch: Batch, settings: Settings) -> Tokens:
    """GAE with turns as steps: the last turn has the outcome; a turn has the value of its first trained token."""
    turns = [_turns(batch, b) for b in range(batch.rows)]
    advantage = _discounted_differences(batch, settings, turns)
    return {"as they are": advantage} | _normalized(advantage, batch, "", 0.0)


def _turns(batch: Batch, row: int) -> _Positions:
    """The trained tokens of each turn of a row, in order."""
    turns: dict[int, list[int]] = {}
    for t in range(batch.width):
        if batch.mask[row, t]:
            turns.setdefault(int(batch.turn[row, t]), []).append(t)
    return list(turns.values())


def _turn_level_returns(batch: Batch, settings: Settings) -> Tokens:
    returns = _turn_level_gae(batch, settings)["as they are"]
    for b in range(batch.rows):
        for turn in _turns(batch, b):
            for t in turn:
                returns[b][t] += float(batch.value[b, turn[0]])
    return {"advantage, not whitened, above the value of the turn": returns}


def _gae_returns(batch: Batch, settings: Settings) -> Tokens:
    readings, value = Tokens(), batch.value.tolist()
    for name, advantage in _gae_of_tokens(batch, settings).items():
        returns = [[advantage[b][t] + value[b][t] for t in range(batch.width)] for b in range(batch.rows)]
        readings[f"advantage, not whitened, above the value{name}"] = returns
    return readings


def _reinforce_plus_plus(batch: Batch, settings: Settings) -> Tokens:
    """REINFORCE++, arXiv 2501.03262: rewards to go, whitened."""
    epsilon, readings = float(settings.get("epsilon") or 0.0), Tokens()
    for name, steps in _time_steps(batch).items():
        readings |= _normalized(_rewards_to_go(batch, settings, steps), batch, name, epsilon)
    return readings


def _reinforce_plus_plus_returns(batch: Batch, settings: Settings) -> Tokens:
    steps = _time_steps(batch)
    return {f"rewards to go{name}": _rewards_to_go(batch, settings, of_rows) for name, of_rows in steps.items()}


def _rewards_to_go(batch: Batch, settings: Settings, steps: _Positions) -> _Numbers:
    """Discounted sums of the rewards from each step on; the last step of a row has the outcome."""
    discount, to_go, token_reward = _factor(settings, _DISCOUNT), _zeros(batch), batch.token_reward.tolist()
    for b, outcome in enumerate(batch.reward.tolist()):
        later = outcome
        for t in reversed(steps[b]):
            to_go[b][t] = later + token_reward[b][t]
            later = discount * to_go[b][t]
    return to_go


def _optimal_token_baseline(batch: Batch, settings: Settings) -> Tokens:
    """Rewards to go minus their group mean at the same token, weighted by accumulated squared gradients.

    arXiv 2602.07078. The gradient of a token's log-prob with respect to the logits has the squared norm 1 - 2 p + q,
    where p is the token's probability and q the sum of squared probabilities; a batch with q below p squared is not
    compared. All weights are equal if the policy is ``certain`` (a setting), so that there is no gradient. A token that
    only one response reaches has no baseline. If the ratio to the sampler is clamped, each squared norm is multiplied
    by the squared ratio.
    """
    trained = _trained(batch)
    probability, squares = batch.logprob.double().exp().tolist(), batch.pi_squared.tolist()
    if any(probability[b][t] ** 2 > squares[b][t] for b in range(batch.rows) for t in trained[b]):
        return {}
    ratio, weight = _clamped_ratio(batch, settings), _zeros(batch)
    for b, tokens in enumerate(trained):
        norms = [(1 - 2 * probability[b][t] + squares[b][t]) * ratio[b][t] ** 2 for t in tokens]
        for n, t in enumerate(tokens):
            weight[b][t] = 1.0 if settings.get("certain") else sum(norms[: n + 1])
    to_go = _rewards_to_go(batch, {"discount": 1.0}, trained)
    return {"compared at the same of its trained tokens": _less_weighted_mean(to_go, weight, trained, batch)}


def _clamped_ratio(batch: Batch, settings: Settings) -> _Numbers:
    """The ratio to the sampler, clamped as the settings say; 1 without a clamp."""
    most = settings.get("sampler_ratio_at_most")
    ratio = (batch.logprob.double() - batch.rollout_logprob.double()).exp()
    return (ratio.clamp(max=float(most)) if most else torch.ones_like(ratio)).tolist()


def _less_weighted_mean(numbers: _Numbers, weight: _Numbers, trained: _Positions, batch: Batch) -> _Numbers:
    """Numbers of trained tokens minus the weighted mean over the tokens of the group that have the same rank.

    The rank of a token is its index among the trained tokens of its row. If no other token has the same rank, the mean
    is 0.
    """
    group, centered = batch.group.tolist(), _zeros(batch)
    for b, tokens in enumerate(trained):
        siblings = [j for j in range(batch.rows) if group[j] == group[b]]
        for rank, t in enumerate(tokens):
            same = [(j, trained[j][rank]) for j in siblings if rank < len(trained[j])]
            total = sum(weight[j][s] for j, s in same)
            mean = sum(weight[j][s] * numbers[j][s] for j, s in same) / total if total and len(same) > 1 else 0.0
            centered[b][t] = numbers[b][t] - mean
    return centered


def _normalized(numbers: _Numbers, batch: Batch, name: str, epsilon: float) -> Tokens:
    """Normalize over all trained tokens; if every response token is a time step, also over all response tokens."""
    readings = {n + name: x for n, x in _whitened(numbers, _trained(batch), epsilon).items()}
    if name:
        over_responses = _whitened(numbers, _of_responses(batch), epsilon)
        readings |= {f"{n} over responses{name}": x for n, x in over_responses.items()}
    return readings


def _whitened(numbers: _Numbers, positions: _Positions, epsilon: float) -> Tokens:
    """Standardize by the mean and deviation of the numbers at these positions; empty without a deviation."""
    population = [numbers[b][t] for b, row in enumerate(positions) for t in row]
    if len(population) < 2 or len(set(population)) == 1:
        return {}
    mean, readings = fmean(population), Tokens()
    for name, square in (("n - 1", variance(population)), ("n", pvariance(population))):
        for how, scale in (("within the root", (square + 1e-8) ** 0.5), ("beside", square**0.5 + epsilon)):
            readings[f"whitened ({name}), {how}"] = [[(x - mean) / scale for x in row] for row in numbers]
    return readings


#: Algorithm -> advantages per token, by reading; the outcome is added to the reward of the last step.
TEMPORAL: Mapping[str, Callable[[Batch, Settings], Tokens]] = {
    "gae": _gae,
    "turn-level gae": _turn_level_gae,
    "reinforce++": _reinforce_plus_plus,
    "optimal token baseline": _optimal_token_baseline,
}

#: Algorithms whose papers do not define whether an untrained token is a step.
OPEN = frozenset({"gae", "reinforce++"})

#: Algorithm -> returns per token: the targets of the value function, in reward units, never whitened.
RETURNS: Mapping[str, Callable[[Batch, Settings], Tokens]] = {
    "gae": _gae_returns,
    "turn-level gae": _turn_level_returns,
    "reinforce++": _reinforce_plus_plus_returns,
}
