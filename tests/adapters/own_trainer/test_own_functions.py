"""Functions of the user's own in a recipe: what their module claims, and the formula with which they are compared."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from adapters.own_trainer.test_composed_recipe import RECIPE, TARGET, _judged
from rl_sentinel.adapters.kit.prompt_groups import GroupsOf
from rl_sentinel.adapters.own_trainer.composed_recipe import boundaries
from rl_sentinel.adapters.own_trainer.composition import SETTING
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.claims import value_of
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.laws.differs_from_reference import LAW as FORMULA
from rl_sentinel.laws.knob_without_effect import LAW as NO_EFFECT
from rl_sentinel.laws.masked_token_shifts_signal import LAW as UNTRAINED
from rl_sentinel.laws.masking_differs_from_removal import LAW as REMOVAL
from rl_sentinel.laws.valid_input_raises import LAW as CRASHES

#: Most tests try all laws on a function.
pytestmark = pytest.mark.slow

LOSS = """
import functools
import torch
from rl_sentinel.signal.reduce import aggregate
CLAIMS = {claims}
LOW, HIGH = 0.2, 0.28

def _loss(logprob, old_logprob, advantage, *, mask, aggregation):
    ratio = torch.exp(torch.where(mask, logprob - old_logprob, 0.0))
    gain = torch.where(mask, advantage, 0.0)
    clipped = ratio.clamp(1 - LOW, 1 + HIGH) * gain
    return aggregate(-torch.{choice}(ratio * gain, clipped), mask=mask, aggregation=aggregation)

class Loss:
    def __call__(self, logprob, old_logprob, advantage, *, mask, aggregation):
        return _loss(logprob, old_logprob, advantage, mask=mask, aggregation=aggregation)
    def method(self, logprob, old_logprob, advantage, *, mask, aggregation):
        return _loss(logprob, old_logprob, advantage, mask=mask, aggregation=aggregation)

plain, part, instance = _loss, functools.partial(_loss), Loss()
method = instance.method
"""

BY_POSITION = """
import torch
CLAIMS = {"algorithm": "grpo", "standardized": "no"}

def advantages(reward, live, num_generations=4):
    by_prompt = reward.view(-1, num_generations)
    return (by_prompt - by_prompt.mean(1, keepdim=True)).flatten() * live
"""

ADVANTAGES = """
import torch
CLAIMS = {claims}

def advantages(reward, *, group, live):
    same = (group[:, None] == group) & live
    return torch.where(live, reward - torch.where(same, reward, 0.0).sum(1) / same.sum(1).clamp(min=1), 0.0)

def loss(logprob, old_logprob, advantage, *, mask, aggregation):
    from rl_sentinel.signal.reduce import aggregate
    return aggregate(-logprob * torch.where(mask, advantage, 0.0), mask=mask, aggregation=aggregation)
"""


def _module(folder: Path, text: str, **changed: str) -> Path:
    file = folder / "own.py"
    for name, value in changed.items():
        text = text.replace("{" + name + "}", value)
    file.write_text(text, encoding="utf-8")
    return file


def _loss(folder: Path, name: str = "plain", choice: str = "minimum", **more: Any) -> list[Boundary]:
    """The boundaries of the losses of a recipe with a PPO loss of the user's own, with its clip range in globals."""
    file = _module(folder, LOSS, claims=repr(more.pop("claims", {"algorithm": "ppo"})), choice=choice)
    table = {"name": f"{file}:{name}", "aggregation": "token-mean", **more.pop("table", {})}
    return list(boundaries(TARGET, {**RECIPE, "loss": table, **more}))[1:]


@pytest.mark.parametrize("name", ["plain", "part", "instance", "method"])
@pytest.mark.parametrize(("choice", "sound"), [("minimum", True), ("maximum", False)])
def test_claims_and_clip_range_are_found_in_the_code(tmp_path: Path, name: str, choice: str, sound: bool) -> None:
    """A clip range in a global is read by the formula only, so no law asks whether it has an effect."""
    (loss,) = _loss(tmp_path, name, choice)
    assert loss.settings == {SETTING: {"aggregation": "token-mean", "clip_low": 0.2, "clip_high": 0.28}}
    found = _judged(FORMULA, loss)
    assert (found.tried > 0, found.found is None) == (True, sound)
    assert NO_EFFECT.applies(loss) or not _judged(NO_EFFECT, loss).found


@pytest.mark.parametrize("algorithm", ["ppo", "PPO", "grpo", "DAPO", "Dr. GRPO"])
def test_a_method_names_the_algorithm_of_its_loss(tmp_path: Path, algorithm: str) -> None:
    (loss,) = _loss(tmp_path, claims={"algorithm": algorithm})
    assert (value_of(loss.claims.algorithm), value_of(loss.claims.aggregation)) == ("ppo", "token-mean")


@pytest.mark.parametrize(
    ("name", "claims"),
    [
        ("plain", {"plain": {"algorithm": "ppo"}, "part": {"algorithm": "cispo"}}),
        ("part", {"plain": {"algorithm": "cispo"}, "algorithm": "ppo"}),
    ],
)
def test_claims_of_one_function_have_its_name(tmp_path: Path, name: str, claims: Mapping[str, Any]) -> None:
    (loss,) = _loss(tmp_path, name, claims=claims)
    assert value_of(loss.claims.algorithm) == "ppo"


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ({"algorithm": "pop"}, r"has algorithm 'pop' in CLAIMS, which does not exist at stage policy-loss: .*'ppo'"),
        (["ppo"], r"has CLAIMS with \['ppo'\], expected a dict of texts"),
        ({"ratio": True}, r"has CLAIMS with 'ratio': True, expected a dict of texts"),
    ],
)
def test_claims_that_cannot_be_used_are_one_line(tmp_path: Path, claims: object, message: str) -> None:
    with pytest.raises(SentinelError, match=rf"^loss '.*own.py:plain' {message}") as error:
        _loss(tmp_path, claims=claims)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("algorithm", "of_loss"), [("opo", None), ("rloo", None), ("RLOO", None), ("dapo", "ppo"), ("ppo", "ppo")]
)
def test_an_algorithm_of_the_estimator_is_not_that_of_a_loss_in_its_file(
    tmp_path: Path, algorithm: str, of_loss: str | None
) -> None:
    """Such a loss is not compared with a formula; the name of a method counts for both functions."""
    file = _module(tmp_path, ADVANTAGES, claims=repr({"algorithm": algorithm}))
    both = {"estimator": {"name": f"{file}:advantages"}, "loss": {"name": f"{file}:loss", "aggregation": "token-mean"}}
    advantages, loss = boundaries(TARGET, {**RECIPE, **both})
    assert (value_of(loss.claims.algorithm) if not loss.undecided else "ppo") == of_loss
    assert value_of(advantages.claims.algorithm) == {"dapo": "grpo", "ppo": None}.get(algorithm, algorithm.lower())


def test_an_algorithm_of_no_loss_is_left_out(tmp_path: Path) -> None:
    (loss,) = _loss(tmp_path, claims={"algorithm": "gae"})
    assert loss.claims.algorithm is None


@pytest.mark.parametrize(("choice", "sound"), [("minimum", True), ("maximum", False)])
@pytest.mark.parametrize(
    "table", [{"aggregation": "token-sum", "length": 3}, {"aggregation": "sequence-mean-token-sum"}], ids=str
)
def test_sums_are_compared(tmp_path: Path, table: Mapping[str, Any], choice: str, sound: bool) -> None:
    (loss,) = _loss(tmp_path, choice=choice, table=table)
    found = _judged(FORMULA, loss)
    assert (found.tried > 0, found.found is None) == (True, sound)


@pytest.mark.parametrize(("choice", "sound"), [("minimum", True), ("maximum", False)])
@pytest.mark.parametrize("estimator", ["k1", "absolute", "k1_plus", "k3_plus", "absolute_plus"])
def test_losses_with_every_kl_are_compared(tmp_path: Path, estimator: str, choice: str, sound: bool) -> None:
    (loss,) = _loss(tmp_path, choice=choice, kl={"loss": 0.05, "estimator": estimator})
    found = _judged(FORMULA, loss)
    assert (found.tried > 0, found.found is None) == (True, sound)


def test_a_clip_range_that_is_in_no_code_is_named(tmp_path: Path) -> None:
    file = _module(tmp_path, LOSS.replace("ratio.clamp(1 - LOW, 1 + HIGH)", "ratio"), claims='{"algorithm": "ppo"}')
    file.write_text(file.read_text().replace("LOW, HIGH = 0.2, 0.28", "").replace("{choice}", "minimum"))
    _, loss = boundaries(TARGET, {**RECIPE, "loss": {"name": f"{file}:plain", "aggregation": "token-mean"}})
    assert loss.undecided == (
        "not compared with the formula of ppo, which needs clip_low and clip_high: make them parameters of the "
        "function, and set loss.clip_low and loss.clip_high in the recipe"
    )


@pytest.mark.parametrize("name", ["num_generations=4", "n=4", "SIZE"])
@pytest.mark.parametrize(("axis", "sound"), [("1", True), ("0", False)])
def test_an_estimator_that_groups_by_position_gets_whole_groups(
    tmp_path: Path, name: str, axis: str, sound: bool
) -> None:
    """The number of responses may be a parameter or a constant."""
    text = BY_POSITION.replace("num_generations=4", name).replace("num_generations", name.partition("=")[0])
    text = (
        text.replace("live, SIZE)", "live)")
        .replace("import torch", "import torch\nSIZE = 4")
        .replace("mean(1", f"mean({axis}")
    )
    advantages, _ = boundaries(TARGET, {**RECIPE, "estimator": {"name": f"{_module(tmp_path, text)}:advantages"}})
    assert (_judged(FORMULA, advantages).found is None) is sound
    crashes = _judged(CRASHES, advantages)
    assert (crashes.tried > 0, crashes.found) == (True, None)


@pytest.mark.parametrize("claims", [{"algorithm": "grpo", "standardized": "no"}, {}], ids=["claimed", "unknown"])
@pytest.mark.parametrize(("count", "sound"), [("used.sum(1, keepdim=True)", True), ("4", False)])
def test_rejected_responses_of_a_fixed_group_are_compared_with_the_formula(
    tmp_path: Path, claims: Mapping[str, str], count: str, sound: bool
) -> None:
    """The mean may divide by the live responses, or count a rejected one as a reward of 0."""
    text = f"""
import torch
CLAIMS = {claims!r}

def advantages(reward, live):
    used = live.view(-1, 4)
    kept = torch.where(used, reward.view(-1, 4), 0.0)
    return torch.where(live, (kept - kept.sum(1, keepdim=True) / ({count} + 1e-12)).flatten(), 0.0)
"""
    rollout = {**RECIPE["rollout"], "unended": "reject"}
    estimator = {"name": f"{_module(tmp_path, text)}:advantages"}
    advantages, _ = boundaries(TARGET, {**RECIPE, "rollout": rollout, "estimator": estimator})
    found = _judged(REMOVAL, advantages)
    assert (found.tried > 0) is bool(claims)
    assert (found.found is None) is (sound or not claims)


@pytest.mark.parametrize(
    ("claims", "scope"),
    [
        ({"algorithm": "grpo"}, "group"),
        ({"algorithm": "Dr. GRPO"}, "group"),
        ({"algorithm": "grpo", "scope": "batch"}, "batch"),
        ({"algorithm": "grpo", "deviation-of": "batch"}, "batch"),
        ({"algorithm": "grpo", "scope": "none"}, None),
        ({"scope": "none"}, None),
        ({}, None),
    ],
)
def test_an_algorithm_implies_the_scope_that_it_has(
    tmp_path: Path, claims: Mapping[str, str], scope: str | None
) -> None:
    file = _module(tmp_path, ADVANTAGES, claims=repr(claims))
    advantages, _ = boundaries(TARGET, {**RECIPE, "estimator": {"name": f"{file}:advantages"}})
    assert value_of(advantages.claims.scope) == scope


@pytest.mark.parametrize(
    ("more", "value"),
    [
        ("", "(reward.view(-1, 4) - reward.view(-1, 4).mean(1, keepdim=True)).flatten()"),
        ("", "torch.cat([part - part.mean() for part in reward.split(4)])"),
        ("", "(reward.view(-1, 4) - reward.mean()).flatten()"),
        ("group, size=4", "(reward.view(-1, size) - reward.view(-1, size).mean(1, keepdim=True)).flatten()"),
    ],
    ids=["view", "split", "view of a batch", "unread ids"],
)
def test_groups_by_position_are_seen_without_claims(tmp_path: Path, more: str, value: str) -> None:
    file = _module(tmp_path, f"import torch\n\ndef advantages(reward, live, {more}):\n    return {value} * live\n")
    advantages, _ = boundaries(TARGET, {**RECIPE, "estimator": {"name": f"{file}:advantages"}})
    found = _judged(CRASHES, advantages)
    assert (found.tried > 0, found.found) == (True, None)
    assert GroupsOf(4) in advantages.requires


@pytest.mark.parametrize("sound", [True, False])
def test_a_row_per_turn_keeps_the_order_of_rows(tmp_path: Path, sound: bool) -> None:
    """An estimator that takes any number of rows, four at a time."""
    value = "torch.cat([part - part.mean() for part in reward.split(4)])" if sound else "reward - reward.mean()"
    text = "import torch\nCLAIMS = {'algorithm': 'grpo', 'standardized': 'no'}\n"
    file = _module(tmp_path, f"{text}\ndef advantages(reward, live):\n    return {value} * live\n")
    more = {"rollout": {**RECIPE["rollout"], "turns": 2, "merged": False}, "estimator": {"name": f"{file}:advantages"}}
    advantages, _ = boundaries(TARGET, {**RECIPE, **more})
    formula = _judged(FORMULA, advantages)
    assert (formula.tried > 0, formula.found is None) == (True, sound)


@pytest.mark.parametrize(("axis", "sound"), [("1", True), ("0", False)])
def test_a_row_per_turn_gives_groups_of_trajectories(tmp_path: Path, axis: str, sound: bool) -> None:
    """The trainer passes one reward per trajectory, in order."""
    file = _module(tmp_path, BY_POSITION.replace("mean(1", f"mean({axis}"))
    more = {"rollout": {**RECIPE["rollout"], "turns": 2, "merged": False}, "estimator": {"name": f"{file}:advantages"}}
    advantages, _ = boundaries(TARGET, {**RECIPE, **more})
    crashes, formula = _judged(CRASHES, advantages), _judged(FORMULA, advantages)
    assert (crashes.tried > 0, crashes.found) == (True, None)
    assert (formula.tried > 0, formula.found is None) == (True, sound)


@pytest.mark.parametrize(
    "value", ["reward - reward.mean()", "torch.where(group[:, None] == group, reward, 0.0).sum(1)"]
)
def test_an_estimator_of_rows_or_ids_gets_groups_of_all_sizes(tmp_path: Path, value: str) -> None:
    file = _module(tmp_path, f"import torch\n\ndef advantages(reward, group, live):\n    return {value}\n")
    advantages, _ = boundaries(TARGET, {**RECIPE, "estimator": {"name": f"{file}:advantages"}})
    assert not advantages.requires


@pytest.mark.parametrize(("low", "high", "sound"), [("LOW", "HIGH", True), ("HIGH", "LOW", False)])
def test_numbers_in_globals_have_the_roles_of_their_names(tmp_path: Path, low: str, high: str, sound: bool) -> None:
    swapped = LOSS.replace("1 - LOW, 1 + HIGH", f"1 - {low}, 1 + {high}").replace("LOW", "CLIP_LOW")
    file = _module(tmp_path, swapped.replace("HIGH", "CLIP_HIGH"), claims='{"algorithm": "ppo"}', choice="minimum")
    _, loss = boundaries(TARGET, {**RECIPE, "loss": {"name": f"{file}:plain", "aggregation": "token-mean"}})
    found = _judged(FORMULA, loss)
    assert (found.tried > 0, found.found is None) == (True, sound)


@pytest.mark.parametrize(("choice", "sound"), [("minimum", True), ("maximum", False)])
@pytest.mark.parametrize(
    ("bounds", "table"),
    [
        ("CLIP_LOW, CLIP_HIGH", {}),
        ("1 - low_side, 1 + high_side", {"low_side": 0.1, "high_side": 0.35}),
    ],
    ids=["bounds in globals", "values of the recipe"],
)
def test_numbers_are_tried_in_their_other_forms(
    tmp_path: Path, bounds: str, table: Mapping[str, float], choice: str, sound: bool
) -> None:
    """Globals that are bounds of the ratio, and parameters whose names are not known."""
    text = LOSS.replace("1 - LOW, 1 + HIGH", bounds).replace("LOW, HIGH = 0.2, 0.28", "CLIP_LOW, CLIP_HIGH = 0.8, 1.28")
    text = text.replace("mask, aggregation):", "".join(f"{n}=0.2, " for n in table).join(("mask, ", "aggregation):")))
    file = _module(tmp_path, text, claims='{"algorithm": "ppo"}', choice=choice)
    loss_table = {"name": f"{file}:_loss", "aggregation": "token-mean", **table}
    _, loss = boundaries(TARGET, {**RECIPE, "loss": loss_table})
    found = _judged(FORMULA, loss) if not loss.undecided else None
    assert (found is not None and found.found is None) is sound


def test_a_value_that_a_recipe_refuses_is_no_error_of_a_law(tmp_path: Path) -> None:
    """A lower clip range of 1 is allowed, and 8 times this number is not."""
    text = LOSS.replace("mask, aggregation):", "mask, aggregation, clip_low=1.0):").replace("1 - LOW", "1 - clip_low")
    file = _module(tmp_path, text, claims='{"algorithm": "ppo"}', choice="minimum")
    table = {"name": f"{file}:_loss", "aggregation": "token-mean", "clip_low": 1.0}
    _, loss = boundaries(TARGET, {**RECIPE, "loss": table})
    assert _judged(NO_EFFECT, loss).found is None


GAE = """
import torch
CLAIMS = {"algorithm": "gae"}

def advantages(token_reward, value, mask, discount=0.9, decay=0.8):
    found, later, following = torch.zeros_like(value), torch.zeros(len(value)), torch.zeros(len(value))
    for t in reversed(range(value.shape[1])):
        trained = mask[:, t]
        now = token_reward[:, t] + {first} * following - value[:, t] + discount * decay * later
        later, following = torch.where(trained, now, later), torch.where(trained, value[:, t], following)
        found[:, t] = torch.where(trained, now, 0.0)
    return found
"""


@pytest.mark.parametrize(("first", "sound"), [("discount", True), ("1.0", False), ("decay", False)])
def test_numbers_called_as_in_this_library_are_known(tmp_path: Path, first: str, sound: bool) -> None:
    more = {"estimator": {"name": f"{_module(tmp_path, GAE, first=first)}:advantages"}, "critic": {"rate": 0.1}}
    advantages, _ = boundaries(TARGET, {**RECIPE, **more})
    found = _judged(FORMULA, advantages)
    assert (found.tried > 0, found.found is None) == (True, sound)


WITHOUT_MASK = """
CLAIMS = {"algorithm": "reinforce"}

def loss(logprob, advantage, *, mask, aggregation):
    return -(logprob.nan_to_num() * advantage).sum() / aggregation.denominator
"""


def test_advantages_of_untrained_tokens_are_0_as_in_training(tmp_path: Path) -> None:
    """So a loss may leave out the mask."""
    table = {"name": f"{_module(tmp_path, WITHOUT_MASK)}:loss", "aggregation": "token-mean"}
    _, loss = boundaries(TARGET, {**RECIPE, "loss": table})
    for law in (UNTRAINED, FORMULA):
        found = _judged(law, loss)
        assert (found.tried > 0, found.found) == (True, None)


@pytest.mark.parametrize(
    ("more", "rejects"),
    [
        ({}, False),
        ({"rollout": {**RECIPE["rollout"], "unended": "suppress"}}, False),
        ({"rollout": {**RECIPE["rollout"], "unended": "reject"}}, True),
        ({"correction": {"reject": [{"name": "tokens_kept", "estimator": "k1", "low": -1.0, "high": 1.0}]}}, True),
    ],
    ids=["plain", "suppress", "reject", "correction"],
)
def test_recipes_that_reject_have_rows_without_a_trained_token(more: Mapping[str, Any], rejects: bool) -> None:
    advantages, _ = boundaries(TARGET, {**RECIPE, **more})
    assert advantages.has_dead_rows is rejects


@pytest.mark.parametrize("number", [3, 8])
def test_the_dry_run_has_as_many_responses_as_the_recipe(tmp_path: Path, number: int) -> None:
    estimator = {"name": f"{_module(tmp_path, BY_POSITION)}:advantages", "num_generations": number}
    rollout = {**RECIPE["rollout"], "responses": number}
    advantages, _ = boundaries(TARGET, {**RECIPE, "estimator": estimator, "rollout": rollout})
    assert _judged(FORMULA, advantages).found is None


def test_the_number_of_responses_must_be_that_of_the_rollout(tmp_path: Path) -> None:
    file = _module(tmp_path, BY_POSITION)
    with pytest.raises(SentinelError, match=r"^estimator.num_generations is 2, expected 4, the value of rollout.resp"):
        list(boundaries(TARGET, {**RECIPE, "estimator": {"name": f"{file}:advantages", "num_generations": 2}}))
