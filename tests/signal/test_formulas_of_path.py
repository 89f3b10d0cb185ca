"""The composed path and its storage equal the formulas, stage after stage, on random rollouts."""

import math
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from draws import Draw, cases
from formula_pairs import on_live, on_mask, trained_numbers
from test_formulas_of_sequences import conversation, steps_of
from torch import Tensor

from rl_sentinel.core.batch import Batch, take_rows, with_columns
from rl_sentinel.formulas.algorithms import ADVANTAGES
from rl_sentinel.formulas.corrections import CORRECTIONS
from rl_sentinel.formulas.kl_terms import KL_USES
from rl_sentinel.formulas.kl_tokens import KL
from rl_sentinel.formulas.path_quantities import LAID_OUT
from rl_sentinel.formulas.rewards import REWARDS
from rl_sentinel.formulas.temporal import RETURNS, TEMPORAL
from rl_sentinel.formulas.trajectories import merge_turns
from rl_sentinel.signal import kl, ratios, reduce, scan, segments
from rl_sentinel.signal.advantage import gae, rloo
from rl_sentinel.signal.choices import Choices, is_outcome
from rl_sentinel.signal.correction import bounds, rejection, weights
from rl_sentinel.signal.normalization import Normalization
from rl_sentinel.signal.path import loss_ready
from rl_sentinel.signal.ready import Ready, prompts_apart, trusted
from rl_sentinel.signal.rollout import Rollout, laid_out
from rl_sentinel.signal.segments import Segments

CASES = 200

NORMALIZED: dict[str, Any] = {
    "mean": "group",
    "deviation": "none",
    "leave_one_out": False,
    "biased": False,
    "epsilon": 0.0,
}

#: Every stage: rejection of rows, weights of rows, a reward that is moved, clipped and normalized, a KL with a price.
EVERY_STAGE: dict[str, Any] = {
    "rejections": (partial(rejection.rows_kept, estimator="k1", over="sum", low=-1.5, high=1.5),),
    "weight": weights.sequence_weights,
    "bounds": (partial(bounds.truncated, high=1.4),),
    "bias": 0.3,
    "scale": 1.7,
    "least": -2.0,
    "most": 2.5,
    "normalization": Normalization(**NORMALIZED),
    "kl": kl.k1,
    "kl_coefficient": 0.2,
}


def _assert_close(found: object, expected: Any) -> None:
    assert isinstance(found, Tensor)
    numbers = torch.as_tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(found.double(), numbers, rtol=1e-9, atol=1e-11)


def _drawn(source: random.Random) -> Draw:
    (x,) = cases(1, seed=source.randint(0, 2**31))
    return x


def _rollout(batch: Batch, *, steps: bool) -> Rollout:
    names = ("group", "mask", "scored", "token_reward", "rollout_logprob", "ref_logprob", "value", "reward_baseline")
    return Rollout(
        reward=torch.where(batch.scored, batch.reward, torch.nan),
        old_logprob=batch.logprob,
        **{n: getattr(batch, n) for n in names},
        **({"trajectory": batch.trajectory, "last": batch.last_step} if steps else {}),
    )


def _shaped(final: Batch) -> Tensor:
    """The reward of each last step of the trajectories that count: moved, clipped, then less its group's mean."""
    for name, settings in (
        ("rescaled", {"bias": 0.3, "scale": 1.7}),
        ("clipped", {"least": -2.0, "most": 2.5}),
        ("normalized", NORMALIZED),
    ):
        final = with_columns(final, reward=REWARDS[name](final, settings))
    return final.reward


def _loss_ready(source: random.Random) -> None:
    """Rows are steps of trajectories in half of the cases; the others are compared with a temporal estimator too."""
    x = _drawn(source)
    count = len(x.live)
    ids = sorted(source.randrange(count) for _ in range(count)) if source.random() < 0.5 else list(range(count))
    trajectory = torch.tensor(ids)
    last = torch.tensor([n == count - 1 or ids[n + 1] != own for n, own in enumerate(ids)])
    reward = x.reward.nan_to_num(9.0)  # a last step counts where it does not train itself
    batch = x.batch(reward=reward, trajectory=trajectory, last_step=last, group=x.group[trajectory])
    rollout = _rollout(batch, steps=not bool(last.all()))

    kept = CORRECTIONS["rows kept"](batch, {"estimator": "k1", "over": "sum", "low": -1.5, "high": 1.5})
    batch = with_columns(batch, mask=batch.mask & (kept > 0).unsqueeze(1))
    paid = KL_USES["k1 in the reward"](with_columns(batch, reward=torch.zeros(count)), {"coefficient": 0.2})
    ends = torch.nonzero(last).flatten()
    alive = torch.stack([(batch.live & (trajectory == trajectory[b])).any() for b in ends])
    gained = torch.stack([paid[trajectory == trajectory[b]].sum() for b in ends])
    final = with_columns(take_rows(batch, ends), mask=alive.unsqueeze(1).expand(len(ends), batch.width))
    shaped = _shaped(with_columns(final, mask=final.mask & final.scored.unsqueeze(1)))
    judged = ADVANTAGES["rloo"](with_columns(final, reward=shaped + gained), {})["against the others' mean"]
    own = torch.tensor([(trajectory[ends] == one).nonzero().item() for one in trajectory])
    weight = CORRECTIONS["truncated"](batch, {"level": "sequence", "high": 1.4}).unsqueeze(1).expand(batch.mask.shape)

    after = replace(x, mask=batch.mask, live=batch.live)
    advantage = on_live(after, torch.tensor(judged, dtype=torch.float64)[own])
    ready = loss_ready(rollout, by=Choices(estimator=rloo.advantages, **EVERY_STAGE))
    assert torch.equal(segments.trained(ready.mask), batch.mask)
    assert torch.equal(ready.kept, batch.live)
    _assert_close(ready.advantage, advantage)
    _assert_close(ready.reward, on_live(after, (shaped + gained)[own]))
    _assert_close(ready.kl, on_mask(after, KL["k1"](batch)["k1"]))
    _assert_close(ready.weight, on_mask(after, weight))
    _assert_close(ready.token_advantage(), on_mask(after, advantage.unsqueeze(1) * weight))
    if last.all():
        _temporal(rollout, with_columns(batch, token_reward=paid, reward=shaped))


def _temporal(rollout: Rollout, batch: Batch) -> None:
    by = Choices(estimator=partial(gae.advantages, discount=0.9, decay=0.8), **EVERY_STAGE)
    ready, settings = loss_ready(rollout, by=by), {"gamma": 0.9, "lam": 0.8}
    _assert_close(ready.advantage, TEMPORAL["gae"](batch, settings)["as they are"])
    returns = torch.tensor(next(iter(RETURNS["gae"](batch, settings).values())), dtype=torch.float64)
    _assert_close(ready.returns, torch.where(batch.mask, returns, 0.0))


def _ready(x: Draw, *, outcome: bool) -> Ready:
    advantage = x.reward if outcome else x.advantage
    known = {"mask": x.mask, "live": x.live, "kept": x.live, "group": x.group, "reward": x.reward, "kl": x.value}
    return Ready(**known, advantage=advantage, outcome=outcome)


def _prompts_apart(source: random.Random) -> None:
    x, prompts, outcome = _drawn(source), source.randint(1, 3), source.random() < 0.5
    ready = _ready(x, outcome=outcome)
    turn = LAID_OUT["mini-batches of prompts in turn"](x.batch(), {"prompts": prompts})
    found = list(prompts_apart(ready, prompts=prompts, generator=None))
    assert len(found) == int(turn.max()) + 1
    for number, part in enumerate(found):
        rows = turn == number
        assert part.outcome == outcome
        for name in ("group", "live", "mask", "advantage", "kl"):
            mine, whole = getattr(part, name), getattr(ready, name)
            torch.testing.assert_close(mine, whole[rows], rtol=0, atol=0, equal_nan=True)


def _trusted(source: random.Random) -> None:
    x, outcome = _drawn(source), source.random() < 0.5
    found = trusted(_ready(x, outcome=outcome), x.logprob, x.old, threshold=0.3, denominator=4.0)
    kept = CORRECTIONS["off policy sequences kept"](x.batch(), {"threshold": 0.3, "per_response": outcome})
    assert torch.equal(segments.trained(found.mask), x.mask & (kept > 0).unsqueeze(1))
    assert found.dropped_fraction.item() == pytest.approx(float((x.live & (kept == 0)).sum()) / 4)


def _laid_out(source: random.Random) -> None:
    turns = [turn for name in ("a", "b") for turn in conversation(source, name)]
    merged = source.random() < 0.7
    known: dict[str, Any] = {
        "reward": {"a": 1.5, "b": -0.5},
        "group": {"a": 7, "b": -3},
        "scored": {"a": True, "b": False},
    }
    laid = laid_out(steps_of(turns), **known, merged=merged, padding=-1)
    rows = merge_turns(turns) if merged else turns
    ends = [step.last for step in steps_of(rows)]
    width, longest = max(len(p) + len(o) for _, p, o, _ in rows), max(len(o) for _, _, o, _ in rows)
    rollout = laid.rollout
    assert rollout.trajectory is not None
    assert rollout.last is not None
    assert rollout.last.tolist() == ends
    for b, (name, prompt, own, values) in enumerate(rows):
        assert laid.token[b].tolist() == prompt + own + [-1] * (width - len(prompt) - len(own))
        assert (laid.prompt_length[b].item(), laid.length[b].item()) == (len(prompt), len(own))
        for column, plain in zip((rollout.mask, rollout.token_reward, rollout.rollout_logprob), values, strict=True):
            assert isinstance(column, Tensor)
            assert column[b].tolist() == pytest.approx(plain + [0.0] * (longest - len(own)), rel=1e-6)
        for field, expected in known.items():
            assert getattr(rollout, field)[b].item() == expected[name]
        assert rollout.trajectory[b].item() == ["a", "b"].index(name)


def _is_outcome(source: random.Random) -> None:
    names = source.sample(["reward", "group", "live", "length", "mask", "value"], 3)
    function: Callable[..., Tensor] = eval(f"lambda {', '.join(names)}: None")  # noqa: S307 - names of this list
    assert is_outcome(function) == ("mask" not in names)


def _stored(source: random.Random) -> tuple[Draw, Segments, list[tuple[int, int]]]:
    """A draw, its mask packed, and row and position of each packed token; rows that train nothing may be empty."""
    x = _drawn(source)
    length = [0 if not on and source.random() < 0.5 else n for n, on in zip(x.length.tolist(), x.live, strict=True)]
    at = [(b, t) for b, n in enumerate(length) for t in range(n)]
    packed = Segments(torch.tensor([bool(x.mask[place]) for place in at]).bool(), torch.tensor(length))
    return replace(x, length=packed.length), packed, at


def _packed(source: random.Random) -> None:
    x, mask, at = _stored(source)
    values = x.value.nan_to_num()
    flat = torch.stack([values[place] for place in at]) if at else values.new_zeros(0)
    wide = torch.full(values.shape, -1.0).double()
    for place, number in zip(at, flat, strict=True):
        wide[place] = number
    assert torch.equal(segments.packed(values, length=mask.length), flat)
    assert torch.equal(segments.padded(flat, length=mask.length, width=5, fill=-1.0), wide)
    assert mask.row.tolist() == [b for b, _ in at]
    narrow = mask.length.to(torch.uint8)
    assert torch.equal(segments.lengths(narrow), mask.length)


def _masks(source: random.Random) -> None:
    x, mask, at = _stored(source)
    turns = x.mask.cumsum(1) - 1
    flat_turns = [int(turns[place]) for place in at if x.mask[place]]
    assert segments.trained(x.mask) is x.mask
    assert torch.equal(segments.turns(x.mask)[x.mask], turns[x.mask])
    assert segments.turns(mask)[mask.mask].tolist() == flat_turns
    keep = torch.tensor([source.random() < 0.5 for _ in mask.length])
    kept = x.mask & keep.unsqueeze(1)
    assert torch.equal(segments.trained(segments.narrowed(x.mask, keep, of_rows=True)), kept)
    assert torch.equal(segments.trained(segments.narrowed(x.mask, kept, of_rows=False)), kept)
    assert segments.trained(segments.narrowed(mask, keep, of_rows=True)).tolist() == [bool(kept[place]) for place in at]
    rows = [b for b in range(len(mask.length)) if source.random() < 0.7]
    part, places = segments.rows_taken(mask, torch.tensor(rows, dtype=torch.long))
    assert isinstance(part, Segments)
    assert torch.equal(part.length, mask.length[rows])
    assert places.tolist() == [n for b in rows for n, (of, _) in enumerate(at) if of == b]
    assert torch.equal(part.mask, mask.mask[places])


def _rows(source: random.Random) -> None:
    x, mask, _ = _stored(source)
    numbers = trained_numbers(x.value, x.mask)
    for stored, column in ((x.mask, x.value), (mask, segments.packed(x.value, length=mask.length))):
        assert reduce.row_counts(mask=stored).tolist() == [len(row) for row in numbers]
        assert reduce.live_rows(stored).tolist() == [bool(row) for row in numbers]
        assert reduce.row_maxima(column, mask=stored).tolist() == [max(row, default=-math.inf) for row in numbers]
        order = scan.trained_first(mask=stored)
        up = scan.lined_up(reduce.selected(column, mask=stored), mask=stored, order=order)
        assert up.tolist() == [row + [0.0] * (up.shape[1] - len(row)) for row in numbers]
        assert torch.equal(scan.put_back(up, mask=stored, order=order), reduce.selected(column, mask=stored))


def _ratios(source: random.Random) -> None:
    ratio = [source.choice((0.0, 1.0, math.inf, source.random())) for _ in range(5)]
    gain = [source.choice((0.0, source.uniform(-1, 1))) for _ in ratio]
    expected = [0.0 if g == 0 else r * g for r, g in zip(ratio, gain, strict=True)]
    assert ratios.weighed(*(torch.tensor(x, dtype=torch.float64) for x in (ratio, gain))).tolist() == expected
    found = ratios.exponential(torch.tensor(gain, dtype=torch.float64))
    assert found.tolist() == pytest.approx([math.exp(g) for g in gain])


#: Function -> one comparison on random input.
COMPARED: dict[str, Callable[[random.Random], None]] = {
    "path.loss_ready": _loss_ready,
    "choices.is_outcome": _is_outcome,
    "ready.prompts_apart": _prompts_apart,
    "ready.trusted": _trusted,
    "rollout.laid_out": _laid_out,
    **dict.fromkeys([f"segments.{n}" for n in ("packed", "padded", "lengths")], _packed),
    **dict.fromkeys([f"segments.{n}" for n in ("trained", "narrowed", "turns", "rows_taken")], _masks),
    **dict.fromkeys([f"reduce.{n}" for n in ("row_counts", "live_rows", "row_maxima")], _rows),
    **dict.fromkeys(("scan.lined_up", "scan.put_back"), _rows),
    **dict.fromkeys([f"ratios.{n}" for n in ("weighed", "exponential")], _ratios),
}


def _named() -> list[Any]:
    """Each comparison once, under the names of its functions."""
    names: dict[Callable[[random.Random], None], list[str]] = {}
    for name, compare in COMPARED.items():
        names.setdefault(compare, []).append(name)
    return [pytest.param(compare, id=" ".join(own)) for compare, own in names.items()]


@pytest.mark.parametrize("compare", _named())
def test_random_input(compare: Callable[[random.Random], None]) -> None:
    source = random.Random(0)
    for _ in range(CASES):
        compare(source)
