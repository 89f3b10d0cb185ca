"""The path and its storage against the oracle: 2,000 draws of each."""

import math
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from oracle import choices, corrections, paths, rows, storage, tokens, trajectories
from oracle.draws import CASES, Draw, cases
from torch import Tensor

from rl_sentinel.signal import kl, ratios, reduce, scan, segments
from rl_sentinel.signal.advantage import gae, rloo
from rl_sentinel.signal.correction import bounds, rejection, weights
from rl_sentinel.signal.merging import Step
from rl_sentinel.signal.normalisation import Normalisation
from rl_sentinel.signal.path import Choices, is_outcome, loss_ready
from rl_sentinel.signal.ready import Ready, prompts_apart, trusted
from rl_sentinel.signal.rollout import Rollout, laid_out
from rl_sentinel.signal.segments import Segments

#: Every stage: rejection of rows, weights of rows, a reward that is moved, cut and normalised, a KL with a price.
EVERY: dict[str, Any] = {
    "rejections": (partial(rejection.rows_kept, estimator="k1", over="sum", low=-1.5, high=1.5),),
    "weight": weights.sequence_weights,
    "bounds": (partial(bounds.truncated, high=1.4),),
    "bias": 0.3,
    "scale": 1.7,
    "least": -2.0,
    "most": 2.5,
    "normalisation": Normalisation(mean="group", deviation="none", leave_one_out=False, biased=False, epsilon=0.0),
    "kl": kl.k1,
    "kl_coefficient": 0.2,
}


def _same(found: Tensor, expected: object) -> bool:
    numbers = torch.tensor(expected, dtype=torch.float64)
    return found.shape == numbers.shape and torch.allclose(found.double(), numbers, rtol=1e-9, atol=1e-11)


def _drawn(source: random.Random) -> Draw:
    (x,) = cases(1, seed=source.randint(0, 2**31))
    return x


def _rollout(x: Draw, trajectory: list[int], last: list[bool]) -> Rollout:
    steps = {} if all(last) else {"trajectory": torch.tensor(trajectory), "last": torch.tensor(last)}
    return Rollout(
        reward=torch.where(x.scored, x.reward.nan_to_num(9.0), torch.nan),
        group=x.group[torch.tensor(trajectory)],
        mask=x.mask,
        scored=x.scored,
        token_reward=x.token_reward,
        old_logprob=x.logprob,
        rollout_logprob=x.rollout,
        ref_logprob=x.ref,
        value=x.value,
        reward_baseline=x.baseline,
        **steps,
    )


def _loss_ready(source: random.Random) -> None:
    """Rows are steps of trajectories in half of the cases; the other half goes to a temporal estimator too."""
    x = _drawn(source)
    count = len(x.live)
    trajectory = sorted(source.randrange(count) for _ in range(count)) if source.random() < 0.5 else list(range(count))
    last = [n == count - 1 or trajectory[n + 1] != t for n, t in enumerate(trajectory)]
    rollout = _rollout(x, trajectory, last)
    group = rollout.group.tolist()
    reward, scored = rollout.reward.nan_to_num(0.0).tolist(), x.scored.tolist()
    mask = paths.after_rejection(x.logprob.tolist(), x.rollout.tolist(), x.mask.tolist(), -1.5, 1.5)
    live = [any(row) for row in mask]
    raw = tokens.kl("k1", x.logprob.tolist(), x.ref.tolist(), mask)
    paid = paths.priced(x.token_reward.tolist(), raw, mask, 0.2)
    final = dict(zip(sorted(set(trajectory)), trajectories.last_steps(trajectory, last), strict=True))

    def judge(told: list[float], of: list[int], alive: list[bool]) -> list[float]:
        return rows.rloo(told, of, alive)

    def shaped(told: list[float], of: list[int], alive: list[bool]) -> list[float]:
        ends = [scored[b] for b in final.values()]
        return paths.shaped(told, of, alive, ends, 0.3, 1.7, (-2.0, 2.5))

    ready = loss_ready(rollout, by=Choices(estimator=rloo.advantages, **EVERY))
    compared = trajectories.over_trajectories(reward, group, live, trajectory, last, shaped)
    whole = _at_rows(reward, group, live, trajectory, final, shaped)
    gained = paths.totals(paid, mask, trajectory)
    expected = paths.outcome_advantages(whole, gained, group, live, trajectory, last, judge)
    assert _same(ready.advantage, expected)
    assert _same(ready.reward, [c + g if on else 0.0 for c, g, on in zip(compared, gained, live, strict=True)])
    assert ready.kl is not None
    assert ready.weight is not None
    assert segments.trained(ready.mask).tolist() == mask
    assert ready.kept.tolist() == live
    assert _same(ready.kl, raw)
    weight = paths.weights(x.logprob.tolist(), x.rollout.tolist(), mask, 1.4)
    assert _same(ready.weight, weight)
    spread = tokens.spread(expected, mask)
    assert _same(
        ready.token_advantage(),
        [[a * w for a, w in zip(*both, strict=True)] for both in zip(spread, weight, strict=True)],
    )
    if all(last):
        _temporal(rollout, x, paid, shaped(reward, group, live), mask)


def _at_rows(  # noqa: PLR0913 - columns of rows
    reward: list[float],
    group: list[int],
    live: list[bool],
    trajectory: list[int],
    final: dict[int, int],
    shaped: Callable[[list[float], list[int], list[bool]], list[float]],
) -> list[float]:
    """The shaped outcome at the last row of each trajectory, whether that row trains or not."""
    alive = [any(live[b] for b, t in enumerate(trajectory) if t == one) for one in final]
    found = shaped([reward[b] for b in final.values()], [group[b] for b in final.values()], alive)
    at = dict(zip(final.values(), found, strict=True))
    return [at.get(b, 0.0) for b in range(len(reward))]


def _temporal(rollout: Rollout, x: Draw, paid: tokens.Grid, outcome: list[float], mask: tokens.Mask) -> None:
    by = Choices(estimator=partial(gae.advantages, discount=0.9, decay=0.8), **EVERY)
    ready = loss_ready(rollout, by=by)
    placed = tokens.at_last(outcome, mask)
    reward = [[a + b for a, b in zip(*both, strict=True)] for both in zip(paid, placed, strict=True)]
    found = tokens.gae(reward, x.value.tolist(), mask, 0.9, 0.8)
    assert _same(ready.advantage, found)
    returns = [
        [a + v if on else 0.0 for a, v, on in zip(*row, strict=True)]
        for row in zip(found, x.value.tolist(), mask, strict=True)
    ]
    assert ready.returns is not None
    assert _same(ready.returns, returns)


def _ready(x: Draw, *, outcome: bool) -> Ready:
    return Ready(
        mask=x.mask,
        live=x.live,
        kept=x.live,
        group=x.group,
        reward=x.reward,
        advantage=x.reward if outcome else x.advantage,
        outcome=outcome,
        kl=x.value,
    )


def _prompts_apart(source: random.Random) -> None:
    x, prompts, outcome = _drawn(source), source.randint(1, 3), source.random() < 0.5
    found = prompts_apart(_ready(x, outcome=outcome), prompts=prompts, generator=None)
    expected = choices.prompt_minibatches(x.group.tolist(), prompts)
    for part, places in zip(found, expected, strict=True):
        assert part.outcome == outcome
        assert part.kl is not None
        for mine, theirs in ((part.group, x.group), (segments.trained(part.mask), x.mask), (part.live, x.live)):
            assert mine.tolist() == [theirs.tolist()[b] for b in places]
        for mine, theirs in ((part.advantage, x.reward if outcome else x.advantage), (part.kl, x.value)):
            assert torch.equal(mine.nan_to_num(7.0), theirs[places].nan_to_num(7.0))


def _trusted(source: random.Random) -> None:
    x, outcome = _drawn(source), source.random() < 0.5
    found = trusted(_ready(x, outcome=outcome), x.logprob, x.old, threshold=0.3, denominator=4.0)
    weight = tokens.spread(x.reward.tolist(), x.mask.tolist()) if outcome else x.advantage.tolist()
    kept = corrections.off_policy_sequences_kept(x.logprob.tolist(), x.old.tolist(), weight, x.mask.tolist(), 0.3)
    keep = [bool(k) for k in kept]
    assert segments.trained(found.mask).tolist() == storage.narrowed(x.mask.tolist(), keep)
    assert found.dropped_fraction.item() == pytest.approx(corrections.rejected_fraction(keep, x.live.tolist(), 4.0))


def _laid_out(source: random.Random) -> None:
    """Turns of two trajectories, each reading all before it or something else."""
    told: list[trajectories.Told] = []
    for name in ("a", "b"):
        history, turns = [source.randint(0, 2)], source.randint(1, 3)
        for turn in range(turns):
            own = [source.randint(0, 2) for _ in range(source.randint(1, 3))]
            gains, chances = ([source.gauss(0, 1) for _ in own] for _ in range(2))
            told.append((name, history, own, [source.random() < 0.8 for _ in own], gains, chances, turn == turns - 1))
            history = (history + own if source.random() < 0.7 else [9]) + [5]
    steps = [Step(n, tuple(p), tuple(o), tuple(k), tuple(g), tuple(c), e) for n, p, o, k, g, c, e in told]
    merged = source.random() < 0.7
    known: dict[str, Any] = {
        "reward": {"a": 1.5, "b": -0.5},
        "group": {"a": 7, "b": -3},
        "scored": {"a": True, "b": False},
    }
    laid = laid_out(steps, **known, merged=merged, padding=-1)
    rows_told = trajectories.merge(told) if merged else told
    wide, most = max(len(p) + len(o) for _, p, o, *_ in rows_told), max(len(o) for _, _, o, *_ in rows_told)
    for b, (name, prompt, own, kept, gains, chances, last) in enumerate(rows_told):
        fill = most - len(own)
        assert laid.token[b].tolist() == prompt + own + [-1] * (wide - len(prompt) - len(own))
        assert (laid.prompt_length[b].item(), laid.length[b].item()) == (len(prompt), len(own))
        assert segments.trained(laid.rollout.mask)[b].tolist() == kept + [False] * fill
        for column, plain in ((laid.rollout.token_reward, gains), (laid.rollout.rollout_logprob, chances)):
            assert column is not None
            assert column[b].tolist() == pytest.approx(plain + [0.0] * fill, rel=1e-6)
        assert laid.rollout.reward[b].item() == known["reward"][name]
        assert laid.rollout.group[b].item() == known["group"][name]
        for column, plain_word in ((laid.rollout.scored, known["scored"][name]), (laid.rollout.last, last)):
            assert column is not None
            assert column[b].item() is plain_word
        assert laid.rollout.trajectory is not None
        assert laid.rollout.trajectory[b].item() == ["a", "b"].index(name)


def _is_outcome(source: random.Random) -> None:
    wanted = source.sample(["reward", "group", "live", "length", "mask", "value"], 3)
    function: Callable[..., Tensor] = eval(f"lambda {', '.join(wanted)}: None")  # noqa: S307 - names of our own
    assert is_outcome(function) == ("mask" not in wanted)


def _stored(source: random.Random) -> tuple[Draw, Segments, list[int]]:
    """A draw, and its mask packed; rows that train nothing may have no token at all."""
    x = _drawn(source)
    length = [0 if not on and source.random() < 0.5 else n for n, on in zip(x.length.tolist(), x.live, strict=True)]
    packed = Segments(torch.tensor(storage.packed(x.mask.tolist(), length), dtype=torch.bool), torch.tensor(length))
    return replace(x, length=packed.length), packed, length


def _packed(source: random.Random) -> None:
    x, mask, length = _stored(source)
    values = x.value.nan_to_num()
    flat = storage.packed(values.tolist(), length)
    assert segments.packed(values, length=mask.length).tolist() == flat
    wide = storage.padded(flat, length, 5, -1.0)
    assert (
        segments.padded(torch.tensor(flat, dtype=torch.float64), length=mask.length, width=5, fill=-1.0).tolist()
        == wide
    )
    assert mask.row.tolist() == [b for b, n in enumerate(length) for _ in range(n)]


def _masks(source: random.Random) -> None:
    x, mask, length = _stored(source)
    plain = x.mask.tolist()
    assert segments.trained(x.mask) is x.mask
    assert segments.lengths(torch.tensor(length, dtype=torch.uint8)).tolist() == length
    assert segments.trained(mask).tolist() == storage.packed(plain, length)
    turns = storage.packed(storage.turns(plain), length)
    assert torch.where(mask.mask, segments.turns(mask), 0).tolist() == turns
    assert torch.where(x.mask, segments.turns(x.mask), 0).tolist() == storage.turns(plain)
    keep = [source.random() < 0.5 for _ in length]
    kept = storage.narrowed(plain, keep)
    assert segments.trained(segments.narrowed(x.mask, torch.tensor(keep), of_rows=True)).tolist() == kept
    assert segments.trained(segments.narrowed(x.mask, torch.tensor(kept), of_rows=False)).tolist() == kept
    told = segments.narrowed(mask, torch.tensor(keep), of_rows=True)
    assert isinstance(told, Segments)
    assert told.mask.tolist() == storage.packed(kept, length)
    index = [b for b in range(len(length)) if source.random() < 0.7]
    part, places = segments.rows_taken(mask, torch.tensor(index, dtype=torch.long))
    assert isinstance(part, Segments)
    assert part.length.tolist() == [length[b] for b in index]
    assert places.tolist() == [n for b in index for n, of in enumerate(mask.row.tolist()) if of == b]
    assert part.mask.tolist() == mask.mask[places].tolist()


def _rows(source: random.Random) -> None:
    x, mask, _ = _stored(source)
    values, plain = x.value, x.mask.tolist()
    flat = segments.packed(values, length=mask.length)
    for stored, column in ((x.mask, values), (mask, flat)):
        assert reduce.row_counts(mask=stored).tolist() == storage.row_counts(plain)
        assert reduce.live_rows(stored).tolist() == [n > 0 for n in storage.row_counts(plain)]
        assert reduce.row_maxima(column, mask=stored).tolist() == storage.row_maxima(values.tolist(), plain)
        order = scan.trained_first(mask=stored)
        up = scan.lined_up(reduce.selected(column, mask=stored), mask=stored, order=order)
        expected = torch.tensor(storage.lined_up(values.tolist(), plain), dtype=torch.float64)
        assert torch.equal(up, expected[:, : up.shape[1]])
        assert not expected[:, up.shape[1] :].any()
        back = scan.put_back(up, mask=stored, order=order)
        assert torch.equal(back, reduce.selected(column, mask=stored))


#: Function -> one draw of it.
def _ratios(source: random.Random) -> None:
    """One by one; what weighs nothing is nothing."""
    ratio = [source.choice((0.0, 1.0, math.inf, source.random())) for _ in range(5)]
    gain = [source.choice((0.0, source.uniform(-1, 1))) for _ in ratio]
    wanted = [0.0 if g == 0 else r * g for r, g in zip(ratio, gain, strict=True)]
    assert ratios.weighed(*(torch.tensor(x, dtype=torch.float64) for x in (ratio, gain))).tolist() == wanted
    found = torch.tensor(gain, dtype=torch.float64)
    assert ratios.exponential(found).tolist() == pytest.approx([math.exp(g) for g in gain])


HELD: dict[str, Callable[[random.Random], None]] = {
    "path.loss_ready": _loss_ready,
    "path.is_outcome": _is_outcome,
    "ready.prompts_apart": _prompts_apart,
    "ready.trusted": _trusted,
    "rollout.laid_out": _laid_out,
    **dict.fromkeys(("segments.packed", "segments.padded"), _packed),
    **dict.fromkeys([f"segments.{n}" for n in ("trained", "narrowed", "turns", "rows_taken", "lengths")], _masks),
    **dict.fromkeys([f"reduce.{n}" for n in ("row_counts", "live_rows", "row_maxima")], _rows),
    **dict.fromkeys(("scan.lined_up", "scan.put_back"), _rows),
    **dict.fromkeys([f"ratios.{n}" for n in ("weighed", "exponential")], _ratios),
}


@pytest.mark.parametrize("draw", list(dict.fromkeys(HELD.values())))
def test_draws(draw: Callable[[random.Random], None]) -> None:
    source = random.Random(0)
    for _ in range(CASES):
        draw(source)
