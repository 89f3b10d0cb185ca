"""verl's adapter, on a specimen of its call shapes in words of our own."""

import pytest
import torch

from adapters.checks import Loads, answering, bound, check_verdict, judged_at
from adapters.kit.round_trip import check_round_trips
from adapters.verl_specimen import CUSTOM, files
from rl_sentinel.adapters.kit.execution import execute, inputs_of
from rl_sentinel.adapters.verl import FRAMEWORK
from rl_sentinel.adapters.verl.trajectories import TrajectoryKeys, batch_keys
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Unbound
from rl_sentinel.core.case import Case
from rl_sentinel.core.codec import Sizes
from rl_sentinel.laws.dead_row_in_declared_mean import LAW as MSK005
from rl_sentinel.laws.dead_row_shifts_signal import LAW as MSK001
from rl_sentinel.laws.gradient_off_mask import LAW as PLC002
from rl_sentinel.laws.gradient_through_weight import LAW as GRD001
from rl_sentinel.laws.knob_without_effect import LAW as CFG001
from rl_sentinel.laws.metric_fits_no_definition import LAW as MET001
from rl_sentinel.laws.nonsense_accepted import LAW as CFG003
from rl_sentinel.laws.quantity_answers_to_wrong_input import LAW as MET004
from rl_sentinel.laws.trained_token_without_signal import LAW as PLC001


def test_all_boundaries_answer(loads: Loads) -> None:
    """Each family binds, and its outputs move."""
    target = loads(FRAMEWORK, files())
    boundaries = bound(FRAMEWORK, target)
    assert [pair for pair in answering(boundaries, target) if pair[0] != "FSDPActorConfig"] == []
    assert {name for name, _ in boundaries} == {
        "FSDPActorConfig",
        "NaiveRewardManager",
        "compute_entropy_loss",
        "compute_offpolicy_metrics",
        "compute_rollout_correction_and_rejection_mask",
        "agg_loss",
        "apply_kl_penalty",
        "compute_advantage",
        "compute_advantage_for_multi_trajectories",
        "compute_data_metrics",
        "compute_gae_advantage_return",
        "compute_gdpo_outcome_advantage",
        "compute_grpo_outcome_advantage",
        "compute_pf_ppo_reweight_data",
        "compute_policy_loss_vanilla",
        "compute_rloo_outcome_advantage",
        "compute_value_loss",
        "kl_penalty",
        "select_idxs",
    }


@pytest.mark.slow
def test_every_call_reads_back(loads: Loads) -> None:
    """Columns, settings and arguments of every boundary survive the round trip."""
    target = loads(FRAMEWORK, files())
    check_round_trips(target, bound(FRAMEWORK, target).values())


@pytest.mark.parametrize("place", ["verl/house.py", "recipe/house/rules.py"])
def test_custom_pieces_are_audited_unasked(loads: Loads, place: str) -> None:
    """An estimator and a loss that a module of the tree registers are found, called and judged."""
    target = loads(FRAMEWORK, files() | {place: CUSTOM})
    boundaries = bound(FRAMEWORK, target)
    assert not {"house_rule", "house_loss", "compute_advantage"} & {name for name, _ in answering(boundaries, target)}
    estimator, dispatch = boundaries["house_rule", "default"], boundaries["compute_advantage", "house_rule"]
    assert "group" in estimator.reads
    for boundary, setting in ((estimator, "default"), (dispatch, "house_rule")):
        check_verdict(MSK001, boundary, setting, found=True)
    check_verdict(PLC002, boundaries["house_loss", "default"], "default", found=True)


def test_custom_pieces_that_cannot_be_imported_are_told(loads: Loads) -> None:
    """A module that would register something, and fails, is unbound by its name."""
    tree = files() | {"recipe/house.py": CUSTOM + "\n    raise RuntimeError('no luck')\n"}
    unbound = [b for b in FRAMEWORK.boundaries(loads(FRAMEWORK, tree)) if isinstance(b, Unbound)]
    assert {(b.path.rpartition(" -> ")[2], b.stage) for b in unbound} == {
        ("recipe.house", "advantage"),
        ("recipe.house", "policy-loss"),
        ("recipe.house.house_rule", "advantage"),
        ("recipe.house.house_loss", "policy-loss"),
    }
    assert all("no luck" in b.reason for b in unbound)


@pytest.mark.parametrize("old", [False, True])
def test_what_cannot_be_imported_is_told_by_the_names_in_its_source(loads: Loads, old: bool) -> None:
    """Each registered function, or, before there were registries, each function of such a name."""
    place = "verl/trainer/ppo/core_algos.py"
    core = files()[place]
    if old:
        core = "\n".join(line for line in core.splitlines() if "@register" not in line)
    tree = files() | {place: core + "\n    raise RuntimeError('no luck')\n"}
    unbound = [b for b in FRAMEWORK.boundaries(loads(FRAMEWORK, tree)) if isinstance(b, Unbound)]
    ours = {b.path.rpartition(".")[2]: b.stage for b in unbound if ".core_algos." in b.path and "->" not in b.path}
    assert ours == {
        "compute_grpo_outcome_advantage": "advantage",
        "compute_rloo_outcome_advantage": "advantage",
        "compute_gdpo_outcome_advantage": "advantage",
        "compute_gae_advantage_return": "advantage",
        "compute_pf_ppo_reweight_data": "batch",
        "compute_policy_loss" if old else "compute_policy_loss_vanilla": "policy-loss",
        "compute_value_loss": "value-loss",
        "compute_entropy_loss": "aggregate",
        "agg_loss": "aggregate",
        "kl_penalty": "kl",
    }
    assert all("no luck" in b.reason for b in unbound)


def test_what_cannot_even_be_read_is_told_by_the_names_of_every_release(loads: Loads) -> None:
    """A file that is no Python."""
    tree = files() | {"verl/trainer/ppo/core_algos.py": "def def"}
    unbound = {b.path for b in FRAMEWORK.boundaries(loads(FRAMEWORK, tree)) if isinstance(b, Unbound)}
    home = "verl.trainer.ppo.core_algos."
    assert {home + "compute_grpo_outcome_advantage", home + "compute_policy_loss"} <= unbound


def test_outputs_of_one_trajectory(loads: Loads) -> None:
    """What all outputs get is sound; what the last one alone would get by its positions is found."""
    pair = ("compute_advantage_for_multi_trajectories", "grpo")
    sound = bound(FRAMEWORK, loads(FRAMEWORK, files()))[pair]
    check_verdict(PLC001, sound, "grpo", found=False)


def test_broadcast_by_position_is_found(loads: Loads) -> None:
    """The last output's advantages laid over longer ones leave their later tokens at zero."""
    boundaries = bound(FRAMEWORK, loads(FRAMEWORK, files(broadcast="answers[owner] * mask")))
    check_verdict(PLC001, boundaries["compute_advantage_for_multi_trajectories", "grpo"], "grpo", found=True)


def test_keys() -> None:
    """Prompt, trajectory and the number of the output; the last one has the greatest number."""
    batch = batch_of(
        torch.ones(3, 1, dtype=torch.bool),
        group=torch.tensor([7, 7, 2]),
        trajectory=torch.tensor([4, 4, 1]),
        step=torch.tensor([1, 0, 0]),
        last_step=torch.tensor([True, False, True]),
    )
    assert batch_keys(batch) == ["prompt-7_4_2", "prompt-7_4_0", "prompt-2_1_2"]
    columns = TrajectoryKeys().take(["a_b_4_0", "a_b_4_2", "c_4_0"], Sizes())
    assert {name: column.tolist() for name, column in columns.items()} == {
        "group": [0, 0, 1],
        "trajectory": [0, 0, 1],
        "step": [0, 1, 0],
        "last_step": [False, True, True],
    }


@pytest.mark.parametrize(("checked", "found"), [(True, False), (False, True)])
def test_nonsense_in_a_class(loads: Loads, checked: bool, found: bool) -> None:
    """What a class lets through is one finding; what it refuses is none."""
    boundaries = bound(FRAMEWORK, loads(FRAMEWORK, files(checked=checked)))
    judgement = judged_at(CFG003, boundaries["FSDPActorConfig", "default"], "default")
    assert (judgement.found is not None) is found
    if judgement.found is not None:
        assert "kl_loss_type unknown" in judgement.found.expectation.sentence()


@pytest.mark.parametrize(("fed", "found"), [("current", False), ("rewards.sum().item()", True)])
def test_controller_is_fed_with_the_kl(loads: Loads, fed: str, found: bool) -> None:
    """A coefficient that follows the shaped reward answers to the wrong input."""
    boundaries = bound(FRAMEWORK, loads(FRAMEWORK, files(fed=fed)))
    judgement = judged_at(MET004, boundaries["apply_kl_penalty", "adaptive"], "adaptive")
    assert (judgement.found is not None) is found
    if judgement.found is not None:
        assert judgement.found.expectation.name == "coefficient"


@pytest.mark.parametrize(("live", "found"), [("count > 0", False), ("count >= 0", True)])
def test_rows_that_hold_no_token_in_a_metric(loads: Loads, live: str, found: bool) -> None:
    """A perplexity of sequences does not count the empty ones."""
    boundaries = bound(FRAMEWORK, loads(FRAMEWORK, files(live=live)))
    check_verdict(MSK005, boundaries["compute_offpolicy_metrics", "default"], "default", found=found)


@pytest.mark.parametrize(("detached", "found"), [("detach()", False), ("clone()", True)])
def test_weights_of_the_current_policy(loads: Loads, detached: str, found: bool) -> None:
    """A weight that is not detached is found."""
    boundaries = bound(FRAMEWORK, loads(FRAMEWORK, files(detached=detached)))
    pair = ("compute_rollout_correction_and_rejection_mask", "weight of the current policy")
    check_verdict(GRD001, boundaries[pair], pair[1], found=found)


@pytest.mark.parametrize(("whose", "found"), [("old_log_prob", False), ("rollout_log_prob", True)])
def test_whose_perplexity(loads: Loads, whose: str, found: bool) -> None:
    """What is logged as the trained policy's is not that of the sampler."""
    tree, helper = files(), "verl/trainer/ppo/rollout_corr_helper.py"
    tree[helper] = tree[helper].replace("each = (-(old_log_prob", f"each = (-({whose}")
    boundary = bound(FRAMEWORK, loads(FRAMEWORK, tree))["compute_offpolicy_metrics", "default"]
    check_verdict(MET001, boundary, "default", found=found)


def test_a_knob_of_newer_releases(loads: Loads) -> None:
    """Only a release whose trainer names the knob is asked whether it does anything."""
    tree, trainer = files(), "verl/trainer/ppo/ray_trainer.py"
    older = tree | {trainer: tree[trainer].replace("norm_adv_by_std_in_grpo=", "unnamed=")}
    for files_of, known in ((tree, True), (older, False)):
        boundary = bound(FRAMEWORK, loads(FRAMEWORK, files_of))["compute_advantage", "grpo"]
        assert ("norm_adv_by_std_in_grpo" in {knob.name for knob in boundary.claims.knobs}) is known


def test_a_knob_that_is_not_connected(loads: Loads) -> None:
    """The documented clip range is there, and another one is read."""
    boundaries = bound(FRAMEWORK, loads(FRAMEWORK, files()))
    judgement = judged_at(CFG001, boundaries["compute_policy_loss_vanilla", "default"], "default")
    assert judgement.found is not None
    assert judgement.found.expectation.name == "actor.clip_ratio"


def test_scores_land_on_the_last_token(loads: Loads) -> None:
    """A manager's answer holds each row's score at the end of its response."""
    target = loads(FRAMEWORK, files())
    boundary = bound(FRAMEWORK, target)["NaiveRewardManager", "default"]
    mask = torch.ones(2, 3, dtype=torch.bool)
    batch = batch_of(mask, reward=torch.tensor([1.0, 2.0]), length=torch.tensor([2, 3]))
    values = execute(target, boundary, inputs_of(boundary, Case(batch))).values
    assert values["token_reward"].tolist() == [[0.0, 1.0, 0.0], [0.0, 0.0, 2.0]]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ('"token_k2", "seq_mean_k1"', {"reject token_k2": "token", "reject seq_mean_k1": "sequence"}),
        (
            '"token", "sequence", "geometric"',
            {"reject token": "token", "reject seq": "sequence", "reject seq mean": "sequence"},
        ),
    ],
)
def test_rejections_that_a_release_knows(loads: Loads, options: str, found: dict[str, str]) -> None:
    """Options by the names of newer and of the first releases, each answering; a sequence's is one decision."""
    path = "verl/trainer/ppo/rollout_corr_helper.py"
    tree = files()
    tree[path] = tree[path].replace('"token_k2", "seq_mean_k1"', options)
    boundaries = bound(FRAMEWORK, loads(FRAMEWORK, tree))
    mine = {pair: b for pair, b in boundaries.items() if pair[1].startswith("reject ")}
    assert {setting: b.outputs["keep"].scope for (_, setting), b in mine.items()} == found
    assert answering(mine) == []


#: A step of the trainer in words of our own: what its batch holds afterwards is what trains.
STEP = """
    def compute_rollout_correction_and_add_to_batch(batch, rollout_corr_config):
        columns = (batch.batch[n] for n in ("old_log_probs", "rollout_log_probs", "response_mask"))
        weights, kept, metrics = compute_rollout_correction_and_rejection_mask(*columns, **vars(rollout_corr_config))
        KEPT
        WEIGHED
        return batch, metrics
"""

SETTINGS = """
    @dataclass
    class RolloutCorrectionConfig:
        rollout_is: str | None = None
        rollout_is_threshold: float = 2.0
        rollout_rs: str | None = None
        rollout_rs_threshold: str | None = None
"""


def test_a_module_that_cannot_be_imported(loads: Loads) -> None:
    """What needs it is told by name, a loss with its weights too; what does not need it is there."""
    tree, helper = files() | {"verl/house.py": CUSTOM}, "verl/trainer/ppo/rollout_corr_helper.py"
    tree[helper] += '\n    raise RuntimeError("at the import")\n'
    found = list(FRAMEWORK.boundaries(loads(FRAMEWORK, tree)))
    told = {b.path: b.reason for b in found if isinstance(b, Unbound)}
    home = "verl.trainer.ppo.rollout_corr_helper."
    both = f"{home}compute_rollout_correction_and_rejection_mask"
    assert {both, f"{both} -> verl.house.house_loss", f"{home}compute_offpolicy_metrics"} <= set(told)
    assert all("at the import" in reason for reason in told.values())
    assert "verl.trainer.ppo.core_algos.compute_policy_loss_vanilla" in {b.path for b in found} - set(told)


@pytest.mark.parametrize("without", ["", "KEPT", "WEIGHED"])
def test_correction_as_a_step(loads: Loads, without: str) -> None:
    """A mask or weights that never reach the trainer's batch are told, each at its own boundary."""
    tree, helper = files(), "verl/trainer/ppo/rollout_corr_helper.py"
    lines = {
        "KEPT": 'batch.batch["response_mask"] = kept',
        "WEIGHED": "batch.batch.update(weights.batch if weights else {})",
    }
    step = STEP
    for word, line in lines.items():
        step = step.replace(word, "pass" if word == without else line)
    tree[helper] += step
    tree["verl/trainer/config/algorithm.py"] += SETTINGS
    boundaries = bound(FRAMEWORK, loads(FRAMEWORK, tree))
    name = "compute_rollout_correction_and_add_to_batch"
    mine = {pair: b for pair, b in boundaries.items() if pair[0] == name}
    assert {setting for _, setting in mine} == {"weight token", "reject seq_mean_k1"}
    for pair, boundary in mine.items():
        if pair[1] == "weight token" and without == "WEIGHED":
            with pytest.raises(KeyError, match="rollout_is_weights"):
                answering({pair: boundary})
        else:
            assert bool(answering({pair: boundary})) == (pair[1] == "reject seq_mean_k1" and without == "KEPT"), pair


def test_metrics_in_other_quotes(loads: Loads) -> None:
    """What is logged is found however its names are quoted; a function that logs none of them is told as unbound."""
    path, old = "verl/trainer/ppo/metric_utils.py", '"critic/score/mean"'
    tree = files()
    quoted = tree | {path: tree[path].replace(old, old.replace('"', "'"))}
    boundary = bound(FRAMEWORK, loads(FRAMEWORK, quoted))["compute_data_metrics", "default"]
    assert "critic/score/mean" in boundary.outputs
    named = ("critic/score/mean", "response_length/mean", "critic/advantages/mean")
    for name in named:
        tree[path] = tree[path].replace(name, name.replace("/", "."))
    unbound = [b for b in FRAMEWORK.boundaries(loads(FRAMEWORK, tree)) if isinstance(b, Unbound)]
    assert ["names none of the 22 known metrics" in b.reason for b in unbound if "data_metrics" in b.path] == [True]


WHITENING = """
    @register_adv_est("reinforce_plus_plus_baseline")
    def compute_reinforce_plus_plus_baseline_outcome_advantage(token_level_rewards, response_mask, index, config=None):
        advantage = centered(token_level_rewards.sum(1), index)[:, None] * response_mask
        count = response_mask.sum().clamp(min=1)
        advantage = (advantage - advantage.sum() / count - 0.5)ZEROED
        return advantage, advantage

    @register_adv_est("rloo")"""


@pytest.mark.parametrize(("zeroed", "found"), [(" * response_mask", False), ("", True)])
def test_whitening_moves_untrained_tokens(loads: Loads, zeroed: str, found: bool) -> None:
    tree, path = files(), "verl/trainer/ppo/core_algos.py"
    tree[path] = tree[path].replace('\n    @register_adv_est("rloo")', WHITENING.replace("ZEROED", zeroed))
    target = loads(FRAMEWORK, tree)
    boundary = bound(FRAMEWORK, target)["compute_reinforce_plus_plus_baseline_outcome_advantage", "default"]
    check_verdict(PLC002, boundary, "default", target, found=found)
