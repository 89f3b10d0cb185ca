"""The trainer as a recipe composes it: what is read and claimed, and faults in functions of the user's own."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rl_sentinel
from adapters.kit.round_trip import check_round_trips
from rl_sentinel.adapters import own_trainer
from rl_sentinel.adapters.own_trainer.composed_recipe import boundaries
from rl_sentinel.adapters.own_trainer.composition import SETTING
from rl_sentinel.adapters.target import Target
from rl_sentinel.audit.engine.executor import Asker
from rl_sentinel.audit.engine.judge import smoke_check
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.claims import value_of
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.laws.better_response_ranked_below import LAW as RANKED_BELOW
from rl_sentinel.laws.dead_row_shifts_signal import LAW as DEAD_ROW
from rl_sentinel.laws.differs_from_reference import LAW as FORMULA
from rl_sentinel.laws.knob_without_effect import LAW as NO_EFFECT
from rl_sentinel.laws.masking_differs_from_removal import LAW as REMOVAL
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPLIT
from rl_sentinel.laws.rank_split_changes_loss import LAW as RANKS
from specimens import judged

TARGET = Target(root=Path(rl_sentinel.__file__).parents[1], package="rl_sentinel")
FAULTS = Path(__file__).parents[3] / "examples" / "faults.py"

RECIPE: Mapping[str, Any] = {
    "rollout": {"prompts": 2, "responses": 4, "tokens": 3},
    "estimator": {"name": "grpo", "standardize": False, "epsilon": 0.0},
    "loss": {"name": "ppo", "clip_low": 0.2, "clip_high": 0.28, "aggregation": "token-mean"},
    "update": {"prompts": 2, "rate": 1e-2},
}
PLAIN = {"reward", "group", "mask", "length"}
POLICIES = {"old_logprob", "rollout_logprob"}
TURNS = {"prompts": 2, "responses": 4, "tokens": 3, "turns": 2}
CORRECTION = {"weight": "token_weights", "bounds": [{"name": "truncated", "high": 2.0}]}
GAE = {"name": "gae", "discount": 0.9, "decay": 0.5}
TURN_GAE = {"estimator": {**GAE, "name": "turn_level_gae"}, "critic": {"rate": 0.1}, "rollout": TURNS}

#: Recipes, and the columns of which their advantages are made.
COMPOSED: Mapping[str, tuple[Mapping[str, Any], set[str]]] = {
    "plain": ({}, PLAIN),
    "correction": ({"correction": CORRECTION}, PLAIN | POLICIES),
    "kl in the reward": ({"kl": {"reward": 0.1}}, PLAIN | {"old_logprob", "ref_logprob"}),
    "kl that is logged": ({"kl": {}}, PLAIN),
    "critic": ({"estimator": GAE, "critic": {"rate": 0.1}}, PLAIN | {"value"}),
    "turns in a row": (TURN_GAE, PLAIN | {"value", "turn"}),
    "a row per turn": ({"rollout": {**TURNS, "merged": False}}, PLAIN | {"trajectory", "last_step"}),
    "void rewards": ({"rollout": {**RECIPE["rollout"], "unended": "suppress"}}, PLAIN | {"scored"}),
    "greedy baseline": ({"estimator": {"name": "remax"}}, PLAIN | {"reward_baseline"}),
    "squared probabilities": (
        {"estimator": {"name": "optimal_token_baseline"}},
        PLAIN | {"old_logprob", "pi_squared"},
    ),
}


def _bound(more: Mapping[str, Any], parts: tuple[str, ...] = ()) -> tuple[Boundary, Boundary]:
    """The advantages and the loss of a recipe."""
    advantages, loss = boundaries(TARGET, {**RECIPE, **more}, parts)
    return advantages, loss


def _judged(law: Any, boundary: Boundary) -> Any:
    """The judgement of a law under the name that specimens have for a setting."""
    return judged(law, replace(boundary, settings={"default": boundary.settings[SETTING]}), gate=TARGET)


@pytest.mark.parametrize(("more", "reads"), COMPOSED.values(), ids=list(COMPOSED))
def test_recipe_is_bound_and_answers(more: Mapping[str, Any], reads: set[str]) -> None:
    advantages, loss = _bound(more)
    assert advantages.reads == reads
    for boundary in (advantages, loss):
        assert smoke_check(Asker(boundary, {}, gate=TARGET), SETTING) == ""
        check_round_trips(TARGET, [boundary])


def test_parts_of_the_reward_are_as_many_as_the_environment_has() -> None:
    gdpo = {"name": "gdpo", "weight": (1.0, 0.5, 2.0), "epsilon": 0.1}
    advantages, _ = _bound({"estimator": gdpo}, ("a", "b", "c"))
    assert advantages.reads == (PLAIN - {"reward"}) | {"reward_parts"}
    assert smoke_check(Asker(advantages, {}, gate=TARGET), SETTING) == ""
    assert advantages.claims.algorithm is None  # the formula has no weights of the recipe's own


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, ("grpo", "group", "outcome", "relative")),
        ({"reward": {"scale": 2.0}}, (None, "group", "outcome", "relative")),
        ({"reward": {"most": 1.0}}, (None, "group", "outcome", None)),
        (
            {"reward": {"normalization": {"mean": "group", "deviation": "batch"}}},
            (None, "batch", "outcome", "relative"),
        ),
        ({"correction": CORRECTION}, (None, "group", None, None)),
        ({"kl": {"reward": 0.1}}, (None, "group", "outcome", "relative")),
        ({"estimator": {"name": "opo"}, "rollout": TURNS}, (None, "group", "outcome", "relative")),
        (
            {"correction": {**CORRECTION, "bounds": [{"name": "self_normalized"}]}},
            (None, "batch", None, None),
        ),
    ],
    ids=["plain", "scaled", "clipped", "normalized", "weighed", "priced", "trained tokens alone", "self-normalized"],
)
def test_claims_are_those_that_the_composition_keeps(more: Mapping[str, Any], said: tuple[str | None, ...]) -> None:
    claims = _bound(more)[0].claims
    assert tuple(map(value_of, (claims.algorithm, claims.scope, claims.credit, claims.baseline))) == said


def test_loss_has_the_numbers_and_the_aggregation_of_the_recipe() -> None:
    loss = {**RECIPE["loss"], "aggregation": "token-sum", "length": 6}
    _, bound = _bound({"loss": loss, "kl": {"loss": 0.1, "estimator": "k2"}})
    assert bound.settings == {SETTING: {"clip_low": 0.2, "clip_high": 0.28, "length": 6, "kl_loss_coef": 0.1}}
    assert bound.reads == {"logprob", "old_logprob", "ref_logprob", "advantage", "mask"}
    said = bound.claims
    assert [value_of(x) for x in (said.algorithm, said.aggregation, said.rows, said.kl)] == [
        "ppo",
        "token-sum",
        "live",
        "k2",
    ]
    assert value_of(_bound({})[1].claims.aggregation) == "token-mean"


def test_sound_loss_is_cut_over_parts_and_ranks() -> None:
    _, loss = _bound({})
    for law in (SPLIT, RANKS, FORMULA):
        found = _judged(law, loss)
        assert (found.tried > 0, found.found) == (True, None)


@pytest.mark.parametrize("more", [{}, {"kl": {"loss": 0.1}}, {"kl": {"loss": 0.1, "estimator": "absolute"}}])
@pytest.mark.parametrize("aggregation", [{}, {"aggregation": "token-sum", "length": 6}])
def test_numbers_of_the_recipe_have_an_effect_on_the_loss(more: dict[str, Any], aggregation: dict[str, Any]) -> None:
    _, loss = _bound({"loss": {**RECIPE["loss"], **aggregation}, **more})
    found = _judged(NO_EFFECT, loss)
    assert (found.tried > 0, found.found) == (True, None)


def test_loss_that_cannot_be_cut_is_not() -> None:
    _, loss = _bound({"loss": {"name": "training:not_additive", "aggregation": "token-mean"}})
    assert loss.axes & {"micro_batches", "ranks"} == set()


OWN = """
import torch
CLAIMS = {claims}

def advantages(reward, *, group, live):
    same = (group.unsqueeze(1) == group) & {counted}
    mean = torch.where(same, reward, 0.0).sum(dim=1) / same.sum(dim=1).clamp(min=1)
    return torch.where(live, {sign}(reward - mean), 0.0)
"""
COMPARED = '{"algorithm": "grpo", "scope": "group", "baseline": "relative", "standardized": "no"}'


def _own(folder: Path, *, claims: str = COMPARED, counted: str = "live", sign: str = "") -> Mapping[str, Any]:
    """A recipe with an estimator of the user's own."""
    file = folder / "own.py"
    file.write_text(OWN.format(claims=claims, counted=counted, sign=sign), encoding="utf-8")
    return {"estimator": {"name": f"{file}:advantages"}}


@pytest.mark.parametrize("law", [RANKED_BELOW, REMOVAL, FORMULA], ids=lambda law: law.code)
def test_own_estimator_that_is_sound_holds(law: Any, tmp_path: Path) -> None:
    found = _judged(law, _bound(_own(tmp_path))[0])
    assert (found.tried > 0, found.found) == (True, None)


@pytest.mark.parametrize(
    ("law", "fault"),
    [(RANKED_BELOW, {"sign": "-"}), (FORMULA, {"sign": "-"}), (REMOVAL, {"counted": "True"})],
    ids=["ranked below", "formula", "removal"],
)
def test_fault_in_an_own_estimator_is_found(law: Any, fault: Mapping[str, str], tmp_path: Path) -> None:
    assert _judged(law, _bound(_own(tmp_path, **fault))[0]).found is not None


OWN_PPO = """
import torch
from rl_sentinel.signal.reduce import aggregate
CLAIMS = {{"algorithm": "ppo", "ratio": "yes"}}

def loss(logprob, old_logprob, advantage, *, mask, {parameters}, aggregation):
    ratio = torch.exp(torch.where(mask, logprob - old_logprob, 0.0))
    gain = torch.where(mask, advantage, 0.0)
    clipped = ratio.clamp(1 - {low}, 1 + {high}) * gain
    return aggregate(-torch.{choice}(ratio * gain, clipped), mask=mask, aggregation=aggregation)
"""

#: Names of the clip ranges of an own loss: its parameters, and their values in the recipe.
CLIPS: Sequence[Mapping[str, float]] = (
    {"clip_low": 0.2, "clip_high": 0.28},
    {"eps_low": 0.2, "eps_high": 0.28},
    {"cliprange": 0.2},
    {"eps": 0.2},
    {"cliprange": 0.2, "clip_high": 0.28},
)


@pytest.mark.parametrize("clips", CLIPS, ids=" ".join)
@pytest.mark.parametrize(("choice", "sound"), [("minimum", True), ("maximum", False)])
def test_own_loss_is_compared_whatever_its_clip_ranges_are_called(
    clips: Mapping[str, float], choice: str, *, sound: bool, tmp_path: Path
) -> None:
    file, low, high = tmp_path / "own.py", next(iter(clips)), [*clips][-1]
    text = OWN_PPO.format(parameters=", ".join(clips), low=low, high=high, choice=choice)
    file.write_text(text, encoding="utf-8")
    _, loss = _bound({"loss": {"name": f"{file}:loss", "aggregation": "token-mean", **clips}})
    assert set(loss.settings[SETTING]) == {"clip_low", "clip_high"}
    found = _judged(FORMULA, loss)
    assert (found.tried > 0, found.found is None) == (True, sound)
    assert (FORMULA.level_at(loss, found.found.case) if found.found else "") == ("" if sound else "fault")
    if sound:
        assert _judged(NO_EFFECT, loss).found is None


def test_own_numbers_keep_their_names_if_they_are_weights_or_offsets(tmp_path: Path) -> None:
    """A weight of an own loss is not the KL of the recipe, and a small offset is no clip range."""
    file = tmp_path / "own.py"
    text = OWN_PPO.format(parameters="beta, eps, cliprange", low="cliprange", high="cliprange", choice="minimum")
    file.write_text(text.replace("-torch.", "-beta * torch."), encoding="utf-8")
    numbers = {"beta": 1.0, "eps": 1e-4, "cliprange": 0.2}
    loss = {"name": f"{file}:loss", "aggregation": "token-mean", **numbers}
    _, bound = _bound({"loss": loss, "kl": {"loss": 0.02, "estimator": "k3"}})
    given = {"beta": 1.0, "eps": 1e-4, "clip_low": 0.2, "clip_high": 0.2, "kl_loss_coef": 0.02}
    assert bound.settings == {SETTING: given}
    found = _judged(FORMULA, bound)
    assert (found.tried > 0, found.found) == (True, None)


def test_own_path_leaves_the_numbers_of_the_estimator_their_names(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from rl_sentinel.signal.path import loss_ready\ndef path(rollout, by): return loss_ready(rollout, by=by)\n"
    )
    more = {"estimator": GAE, "critic": {"rate": 0.1}, "path": f"{tmp_path}/own.py:path"}
    advantages, _ = _bound(more)
    assert advantages.settings == {SETTING: {"discount": 0.9, "decay": 0.5}}
    assert _judged(NO_EFFECT, advantages).found is None
    assert advantages.claims.algorithm is None  # the path may change what the estimator returns


@pytest.mark.parametrize(
    ("clips", "knobs"), [({"eps_low": 0.2, "eps_high": 0.28}, ["clip_low"]), ({"eps": 0.2}, [])], ids=["one", "both"]
)
def test_own_knob_has_the_name_of_its_number_in_formulas(
    clips: Mapping[str, float], knobs: list[str], tmp_path: Path
) -> None:
    file, low, high = tmp_path / "own.py", next(iter(clips)), [*clips][-1]
    text = OWN_PPO.format(parameters=", ".join(clips), low=low, high=high, choice="minimum")
    file.write_text(text.replace('"ratio": "yes"', f'"ratio": "yes", "knob:{low}": "0.1|0.4"'), encoding="utf-8")
    _, loss = _bound({"loss": {"name": f"{file}:loss", "aggregation": "token-mean", **clips}})
    assert [knob.name for knob in loss.claims.knobs] == knobs
    for law in (NO_EFFECT, FORMULA):
        found = _judged(law, loss)
        assert (found.tried > 0, found.found) == (True, None)


@pytest.mark.skipif(not FAULTS.exists(), reason="examples lie in the source tree, not in the wheel")
def test_fault_in_an_own_path_is_found() -> None:
    assert _judged(DEAD_ROW, _bound({"path": f"{FAULTS}:rejected_in_baseline"})[0]).found is not None


def test_wrong_claim_is_one_line(tmp_path: Path) -> None:
    more = _own(tmp_path, claims='{"scope": "galaxy"}')
    with pytest.raises(SentinelError, match=r"^estimator '.*own.py:advantages' has wrong CLAIMS \(.*galaxy") as error:
        _bound(more)
    assert "\n" not in str(error.value)


def test_framework_has_the_boundaries_of_the_recipe_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(own_trainer.RECIPE_VARIABLE, json.dumps({"tables": RECIPE, "parts": []}))
    found = list(own_trainer.FRAMEWORK.boundaries(TARGET))
    assert [list(b.settings) for b in found if isinstance(b, Boundary)] == [[SETTING], [SETTING]]
