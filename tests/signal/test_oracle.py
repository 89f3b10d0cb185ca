"""Every public function of the library against an oracle of plain loops, on 2,000 random cases each.

Where rows or groups do not touch each other, the cases are rows or groups of one batch; a function of the whole
batch is called for each case. Whatever may not be looked at is NaN.
"""

import ast
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
import torch
from oracle import corrections, rows, tokens
from oracle.draws import Draw, cases, together
from pairs import APART as MORE_APART
from pairs import WHOLE as MORE_WHOLE
from pairs_of_metrics import WHOLE as OF_METRICS
from torch import Tensor

import rl_sentinel.signal
from rl_sentinel.signal import align, groups, kl, minibatches, normalisation, penalty, reduce, reward, scan
from rl_sentinel.signal.advantage import (
    gae,
    gpg,
    grpo,
    opo,
    passk,
    reinforce,
    reinforce_plus_plus,
    reinforce_plus_plus_baseline,
    remax,
    rloo,
)
from rl_sentinel.signal.controller import Adaptive
from rl_sentinel.signal.correction import bounds, rejection, trust, weights
from rl_sentinel.signal.segments import trained

#: The library's call and the oracle's, on one draw.
Pair = tuple[Callable[[Draw], Tensor], Callable[[Draw], object]]

MODES: tuple[reduce.Mode, ...] = get_args(reduce.Mode)


#: What stands alone, but for the draws.
ORACLE = Path(__file__).parent / "oracle"


def _facts(x: Draw) -> tuple[list[float], list[int], list[bool]]:
    return x.reward.tolist(), x.group.tolist(), x.live.tolist()


def _policies(x: Draw) -> tuple[tokens.Grid, tokens.Grid, tokens.Mask]:
    return x.logprob.tolist(), x.rollout.tolist(), x.mask.tolist()


#: Functions whose rows or groups do not touch each other.
APART: dict[str, Pair] = {
    **MORE_APART,
    "groups.group_sums": (
        lambda x: groups.group_sums(x.reward, group=x.group, live=x.live),
        lambda x: rows.group_sums(*_facts(x)),
    ),
    "groups.group_counts": (
        lambda x: groups.group_counts(group=x.group, live=x.live),
        lambda x: rows.group_counts(x.group.tolist(), x.live.tolist()),
    ),
    "groups.group_maxima": (
        lambda x: groups.group_maxima(x.reward, group=x.group, live=x.live),
        lambda x: rows.group_maxima(*_facts(x)),
    ),
    "groups.centred": (
        lambda x: groups.centred(x.reward, group=x.group, live=x.live, weight=x.length.double()),
        lambda x: rows.centred(*_facts(x), x.length.tolist()),
    ),
    "groups.moments": (
        lambda x: torch.cat(groups.moments(x.reward, group=x.group, live=x.live)),
        lambda x: [*rows.centred(*_facts(x)), *rows.deviations(*_facts(x))],
    ),
    "groups.deviations": (
        lambda x: groups.deviations(x.reward, group=x.group, live=x.live, biased=True),
        lambda x: rows.deviations(*_facts(x), biased=True),
    ),
    "advantage.grpo.advantages": (
        lambda x: grpo.advantages(x.reward, group=x.group, live=x.live, standardise=True, epsilon=1e-3),
        lambda x: rows.grpo(*_facts(x), 1e-3),
    ),
    "advantage.grpo.advantages, centred": (
        lambda x: grpo.advantages(x.reward, group=x.group, live=x.live, standardise=False, epsilon=1e-3),
        lambda x: rows.grpo(*_facts(x), None),
    ),
    "advantage.rloo.advantages": (
        lambda x: rloo.advantages(x.reward, group=x.group, live=x.live),
        lambda x: rows.rloo(*_facts(x)),
    ),
    "advantage.reinforce.advantages": (
        lambda x: reinforce.advantages(x.reward, live=x.live),
        lambda x: rows.reinforce(x.reward.tolist(), x.live.tolist()),
    ),
    "advantage.opo.advantages": (
        lambda x: opo.advantages(x.reward, group=x.group, live=x.live, length=x.length),
        lambda x: rows.opo(*_facts(x), x.length.tolist()),
    ),
    "advantage.passk.advantages": (
        lambda x: passk.advantages(x.reward, group=x.group, live=x.live),
        lambda x: rows.passk(*_facts(x)),
    ),
    "advantage.remax.advantages": (
        lambda x: remax.advantages(x.reward, x.baseline, live=x.live),
        lambda x: rows.remax(x.reward.tolist(), x.baseline.tolist(), x.live.tolist()),
    ),
    "reward.rescaled": (
        lambda x: reward.rescaled(x.reward, live=x.live, bias=0.7, scale=1.3),
        lambda x: rows.rescaled(x.reward.tolist(), x.live.tolist(), 0.7, 1.3),
    ),
    "reward.clipped": (
        lambda x: reward.clipped(x.reward, live=x.live, least=-0.5, most=1.1),
        lambda x: rows.clipped(x.reward.tolist(), x.live.tolist(), -0.5, 1.1),
    ),
    "reward.suppressed": (
        lambda x: reward.suppressed(x.reward, live=x.live, scored=x.scored),
        lambda x: rows.suppressed(x.reward.tolist(), x.live.tolist(), x.scored.tolist()),
    ),
    "reward.overlong_penalty": (
        lambda x: reward.overlong_penalty(x.length, limit=4, buffer=3, factor=0.7),
        lambda x: rows.overlong_penalty(x.length.tolist(), 4, 3, 0.7),
    ),
    "reduce.selected": (
        lambda x: reduce.selected(x.value, mask=x.mask),
        lambda x: tokens.selected(x.value.tolist(), x.mask.tolist()),
    ),
    "reduce.row_sums": (
        lambda x: reduce.row_sums(x.value, mask=x.mask),
        lambda x: tokens.row_sums(x.value.tolist(), x.mask.tolist()),
    ),
    "reduce.row_means": (
        lambda x: reduce.row_means(x.value, mask=x.mask),
        lambda x: tokens.row_means(x.value.tolist(), x.mask.tolist()),
    ),
    "align.spread": (
        lambda x: align.spread(x.reward, mask=x.mask),
        lambda x: tokens.spread(x.reward.tolist(), x.mask.tolist()),
    ),
    "align.at_last": (
        lambda x: align.at_last(x.reward, mask=x.mask),
        lambda x: tokens.at_last(x.reward.tolist(), x.mask.tolist()),
    ),
    "scan.discounted_suffix_sums": (
        lambda x: scan.discounted_suffix_sums(x.value.nan_to_num(), discount=0.9),
        lambda x: tokens.discounted_suffix_sums(x.value.nan_to_num().tolist(), 0.9),
    ),
    "scan.trained_first": (
        lambda x: _order(x.mask),
        lambda x: tokens.trained_first(x.mask.tolist()),
    ),
    "advantage.gae.advantages": (
        lambda x: gae.advantages(x.token_reward, x.value, mask=x.mask, discount=0.9, decay=0.8),
        lambda x: tokens.gae(x.token_reward.tolist(), x.value.tolist(), x.mask.tolist(), 0.9, 0.8),
    ),
    "kl.importance_weighted": (
        lambda x: kl.importance_weighted(x.value, x.logprob, x.old, mask=x.mask),
        lambda x: tokens.importance_weighted(x.value.tolist(), x.logprob.tolist(), x.old.tolist(), x.mask.tolist()),
    ),
    "penalty.in_reward": (
        lambda x: penalty.in_reward(x.token_reward, x.value, mask=x.mask, coefficient=0.3).token_reward,
        lambda x: tokens.in_reward(x.token_reward.tolist(), x.value.tolist(), x.mask.tolist(), 0.3),
    ),
    "correction.weights.log_ratios": (
        lambda x: weights.log_ratios(x.logprob, x.rollout, mask=x.mask),
        lambda x: corrections.log_ratios(*_policies(x)),
    ),
    "correction.weights.token_weights": (
        lambda x: weights.token_weights(x.logprob, x.rollout, mask=x.mask),
        lambda x: corrections.token_weights(*_policies(x)),
    ),
    "correction.weights.sequence_weights": (
        lambda x: weights.sequence_weights(x.logprob, x.rollout, mask=x.mask),
        lambda x: corrections.sequence_weights(*_policies(x)),
    ),
    "correction.weights.geometric_weights": (
        lambda x: weights.geometric_weights(x.logprob, x.rollout, mask=x.mask),
        lambda x: corrections.geometric_weights(*_policies(x)),
    ),
    "correction.bounds.truncated": (
        lambda x: bounds.truncated(x.weight, mask=x.mask, high=1.5),
        lambda x: corrections.bounded("truncated", x.weight.tolist(), x.mask.tolist(), 0.0, 1.5),
    ),
    "correction.bounds.clipped": (
        lambda x: bounds.clipped(x.weight, mask=x.mask, low=0.6, high=1.5),
        lambda x: corrections.bounded("clipped", x.weight.tolist(), x.mask.tolist(), 0.6, 1.5),
    ),
    "correction.bounds.masked": (
        lambda x: bounds.masked(x.weight, mask=x.mask, low=0.6, high=1.5),
        lambda x: corrections.bounded("masked", x.weight.tolist(), x.mask.tolist(), 0.6, 1.5),
    ),
    "correction.rejection.vetoed": (
        lambda x: rejection.vetoed(x.logprob, x.rollout, mask=x.mask, floor=0.2),
        lambda x: corrections.vetoed(*_policies(x), 0.2),
    ),
    "correction.trust.off_policy_sequences_kept": (
        lambda x: trust.off_policy_sequences_kept(x.logprob, x.old, x.advantage, mask=x.mask, threshold=0.3),
        lambda x: corrections.off_policy_sequences_kept(
            x.logprob.tolist(), x.old.tolist(), x.advantage.tolist(), x.mask.tolist(), 0.3
        ),
    ),
}


def _order(mask: Tensor) -> Tensor:
    found = scan.trained_first(mask=mask)
    assert found is not None
    return found


def _kl(kind: str) -> Pair:
    """The value of a kind with a plus is that of the kind."""
    plain = kind.removesuffix("_plus")
    function = getattr(kl, kind)
    return (
        lambda x: function(x.logprob, x.ref, mask=x.mask),
        lambda x: tokens.kl(plain, x.logprob.tolist(), x.ref.tolist(), x.mask.tolist()),
    )


def _kept(estimator: rejection.Estimator, over: rejection.Over) -> Pair:
    bound = {"low": -0.9, "high": 0.9}
    return (
        lambda x: rejection.rows_kept(x.logprob, x.rollout, mask=x.mask, estimator=estimator, over=over, **bound),
        lambda x: corrections.rows_kept(estimator, over, *_policies(x), -0.9, 0.9),
    )


def _tokens_kept(estimator: rejection.Estimator) -> Pair:
    return (
        lambda x: rejection.tokens_kept(x.logprob, x.rollout, mask=x.mask, estimator=estimator, low=-0.4, high=0.4),
        lambda x: corrections.tokens_kept(estimator, *_policies(x), -0.4, 0.4),
    )


ESTIMATORS: tuple[rejection.Estimator, ...] = ("k1", "k2", "k3")
OVERS: tuple[rejection.Over, ...] = ("sum", "mean", "max")
APART |= {f"kl.{kind}": _kl(kind) for kind in ("k1", "k2", "k3", "absolute", "absolute_plus", "k1_plus", "k3_plus")}
APART |= {f"correction.rejection.rows_kept, {e} {o}": _kept(e, o) for e in ESTIMATORS for o in OVERS}
APART |= {f"correction.rejection.tokens_kept, {e}": _tokens_kept(e) for e in ESTIMATORS}


def _denominator(x: Draw) -> float:
    return float(trained(x.mask).sum()) + 1


def _by(mode: reduce.Mode, x: Draw) -> reduce.Aggregation:
    of_prompts = minibatches.aggregation("prompt-mean", mask=x.mask, group=x.group).prompt_tokens
    return reduce.Aggregation(mode, _denominator(x), of_prompts if mode == "prompt-mean" else None)


def _aggregated(mode: reduce.Mode) -> Pair:
    return (
        lambda x: reduce.aggregate(x.value, mask=x.mask, aggregation=_by(mode, x)),
        lambda x: tokens.aggregate(x.value.tolist(), x.mask.tolist(), mode, _denominator(x), x.group.tolist()),
    )


def _as_loss(x: Draw) -> Tensor:
    aggregation = reduce.Aggregation("token-mean", _denominator(x))
    return penalty.as_loss(x.value, mask=x.mask, coefficient=0.3, aggregation=aggregation)


def _observed(x: Draw) -> float:
    return float(x.value.nan_to_num().sum()) / 4


#: Functions of the whole batch.
WHOLE: dict[str, Pair] = {
    **MORE_WHOLE,
    **OF_METRICS,
    "advantage.gpg.advantages": (
        lambda x: gpg.advantages(x.reward, group=x.group, live=x.live),
        lambda x: rows.gpg(*_facts(x)),
    ),
    "advantage.reinforce_plus_plus.advantages": (
        lambda x: reinforce_plus_plus.advantages(x.token_reward, mask=x.mask, discount=0.9, epsilon=1e-3),
        lambda x: tokens.reinforce_plus_plus(x.token_reward.tolist(), x.mask.tolist(), 0.9, 1e-3),
    ),
    "advantage.reinforce_plus_plus_baseline.advantages": (
        lambda x: reinforce_plus_plus_baseline.advantages(x.reward, group=x.group, live=x.live, epsilon=1e-3),
        lambda x: rows.reinforce_plus_plus_baseline(*_facts(x), 1e-3),
    ),
    "penalty.as_loss": (
        _as_loss,
        lambda x: 0.3 * tokens.aggregate(x.value.tolist(), x.mask.tolist(), "token-mean", _denominator(x)),
    ),
    "correction.bounds.self_normalised": (
        lambda x: bounds.self_normalised(x.weight, mask=x.mask),
        lambda x: corrections.self_normalised(x.weight.tolist(), x.mask.tolist()),
    ),
    "correction.trust.second_moment_kept": (
        lambda x: trust.second_moment_kept(x.logprob, x.old, mask=x.mask, threshold=0.8),
        lambda x: corrections.second_moment_kept(x.logprob.tolist(), x.old.tolist(), x.mask.tolist(), 0.8),
    ),
    "correction.trust.rejected_fraction": (
        lambda x: trust.rejected_fraction(x.scored, live=x.live, denominator=_denominator(x)),
        lambda x: corrections.rejected_fraction(x.scored.tolist(), x.live.tolist(), _denominator(x)),
    ),
    "controller.Adaptive": (
        lambda x: torch.tensor(
            Adaptive(0.3, target=0.2, horizon=40.0).after(_observed(x), samples=len(x.live)).coefficient
        ).double(),
        lambda x: tokens.adapted(0.3, 0.2, 40.0, _observed(x), len(x.live)),
    ),
}
WHOLE |= {f"reduce.aggregate, {mode}": _aggregated(mode) for mode in MODES}


def _normalised(by: normalisation.Normalisation) -> Pair:
    def plain(x: Draw) -> list[float]:
        return rows.normalised(
            *_facts(x),
            over_mean=by.mean,
            over_deviation=by.deviation,
            leave_one_out=by.leave_one_out,
            biased=by.biased,
            epsilon=by.epsilon,
        )

    return lambda x: normalisation.normalised(x.reward, group=x.group, live=x.live, by=by), plain


OVER: tuple[normalisation.Over, ...] = ("batch", "group", "none")
WHOLE |= {
    f"normalisation.normalised, {mean} {deviation} {left} {biased}": _normalised(
        normalisation.Normalisation(mean=mean, deviation=deviation, leave_one_out=left, biased=biased, epsilon=1e-3)
    )
    for mean in OVER
    for deviation in OVER
    for left in (False, True)
    for biased in (False, True)
    if not (left and mean == "none")
}


def _same(found: Tensor, expected: object) -> bool:
    numbers = torch.tensor(expected, dtype=torch.float64)
    return found.shape == numbers.shape and torch.allclose(found.double(), numbers, rtol=1e-7, atol=1e-9)


@pytest.fixture(scope="module")
def batch() -> Draw:
    """2,000 groups of one to six rows; long enough for sums in several blocks."""
    return together(width=40)


@pytest.fixture(scope="module")
def drawn() -> list[Draw]:
    """2,000 small batches."""
    return list(cases())


@pytest.mark.parametrize("name", APART)
def test_rows_and_groups(name: str, batch: Draw) -> None:
    call, plain = APART[name]
    assert len(set(batch.group.tolist())) == 2000
    assert _same(call(batch), plain(batch))


@pytest.mark.parametrize("name", WHOLE)
def test_batches(name: str, drawn: list[Draw]) -> None:
    """One after the other; what a function may be told besides shares its 2,000."""
    call, plain = WHOLE[name]
    own = name.partition(",")[0]
    siblings = [n for n in WHOLE if n.partition(",")[0] == own]
    for i, one in enumerate(drawn[siblings.index(name) :: len(siblings)]):
        found, expected = call(one), plain(one)
        assert _same(found, expected), (i, found, expected)


@pytest.mark.parametrize("predicts_next", [False, True])
def test_response_aligned(predicts_next: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Prompts and responses of any length within sequences of 12 positions."""
    length = torch.randint(0, 6, (2000,), generator=torch.Generator().manual_seed(0))
    prompt = torch.randint(1, 7, (2000,), generator=torch.Generator().manual_seed(1))
    values = torch.arange(2000 * 12).double().view(2000, 12)
    found = align.response_aligned(values, prompt_length=prompt, length=length, width=5, predicts_next=predicts_next)
    expected = tokens.response_aligned(
        values.tolist(), prompt.tolist(), length.tolist(), 5, predicts_next=predicts_next
    )
    assert _same(found, expected)


def _public() -> set[str]:
    """Every public function below the library, by its path."""
    root = Path(rl_sentinel.signal.__path__[0])
    return {
        f"{'.'.join(path.relative_to(root).with_suffix('').parts)}.{node.name}"
        for path in root.rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
        if path.stem not in {"requirements", "validation"} and path.parent.name != "kernels"
    }


def test_every_function_has_an_oracle() -> None:
    losses = set(importlib.import_module("oracle.losses").LOSSES)
    drawn = [n for m in ("draws", "path") for n in importlib.import_module(f"test_oracle_{m}").HELD]
    known = {name.split(",")[0] for name in (*APART, *WHOLE, *drawn)} | {f"loss.{name}.loss" for name in losses}
    assert _public() - known == {"align.response_aligned"}  # whose test stands above


@pytest.mark.parametrize("module", [p.stem for p in sorted(ORACLE.glob("*.py")) if p.stem != "draws"])
def test_oracle_stands_alone(module: str) -> None:
    path = ORACLE / f"{module}.py"
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            found.add(str(node.module).split(".")[0])
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    assert found <= {"math", "collections", "oracle"}
