"""TRL's adapter, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, answering, check_verdict
from adapters.kit.round_trip import check_calls, check_round_trips
from adapters.trl_specimen import early_files, files, files_with_own_loss, overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.laws.columns_out_of_step import LAW as DAT001
from rl_sentinel.laws.metric_depends_on_split import LAW as MET005
from rl_sentinel.laws.metric_fits_no_definition import LAW as MET001
from rl_sentinel.laws.metric_logged_elsewhere import LAW as MET006
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001
from rl_sentinel.laws.on_policy_identity_broken import LAW as ONP001
from rl_sentinel.laws.rank_split_changes_loss import LAW as SPL002

GRPO = "trl.trainer.grpo_trainer.GRPOTrainer"


def _bound(target: Target) -> dict[tuple[str, str], Boundary]:
    """(path, setting) to boundary: both trainers have methods of the same names."""
    every = list(FRAMEWORK.boundaries(target))
    assert [b.reason for b in every if isinstance(b, Unbound)] == []
    return {(b.path, setting): b for b in every if isinstance(b, Boundary) for setting in b.settings}


def test_all_boundaries_answer(loads: Loads) -> None:
    """Each form that the release names binds, and its outputs move."""
    target = loads(FRAMEWORK, files(), overlay())
    boundaries = _bound(target)
    losses = {setting for path, setting in boundaries if path.endswith("GRPOTrainer._compute_loss")}
    assert losses == {"default", "dapo", "grpo", "dr_grpo", "KL", "vLLM, capped"}
    assert answering(boundaries, target) == []


@pytest.mark.slow
def test_every_call_reads_back(loads: Loads) -> None:
    """Columns, settings and arguments of every boundary survive the round trip."""
    target = loads(FRAMEWORK, files(), overlay())
    check_round_trips(target, _bound(target).values())


@pytest.mark.parametrize("weighs", [True, False])
def test_logged_reward_is_weighted(loads: Loads, weighs: bool) -> None:
    """A mean of rewards as their functions give them is no mean of the outcome."""
    target = loads(FRAMEWORK, files(weighs=weighs), overlay())
    boundary = _bound(target)[f"{GRPO}._generate_and_score_completions", "logged, weighted"]
    check_verdict(MET001, boundary, "logged, weighted", target, found=not weighs)


@pytest.mark.parametrize("apart", [True, False])
def test_numbers_of_evaluation(loads: Loads, apart: bool) -> None:
    """What evaluation logs under the numbers of training is not there."""
    target = loads(FRAMEWORK, files(apart=apart), overlay())
    boundary = _bound(target)[f"{GRPO}.prediction_step", "evaluation"]
    check_verdict(MET001, boundary, "evaluation", target, found=not apart)


@pytest.mark.parametrize("apart", [True, False])
def test_where_evaluation_logs(loads: Loads, apart: bool) -> None:
    """What an evaluation logs has the names of evaluations."""
    target = loads(FRAMEWORK, files(apart=apart), overlay())
    boundary = _bound(target)[f"{GRPO}.prediction_step -> {GRPO}.log", "evaluation"]
    check_verdict(MET006, boundary, "evaluation", target, found=not apart)


@pytest.mark.parametrize("together", [True, False])
def test_columns_of_a_row(loads: Loads, together: bool) -> None:
    """Log-probs of a row are those of its completion."""
    target = loads(FRAMEWORK, files(together=together), overlay())
    boundary = _bound(target)[f"{GRPO}._generate_and_score_completions", "columns of rows"]
    check_verdict(DAT001, boundary, "columns of rows", target, found=not together)


@pytest.mark.parametrize(("filtered", "sound"), [("True", True), ('name != "old_per_token_logps"', False)])
def test_columns_of_a_filtered_row(loads: Loads, filtered: str, sound: bool) -> None:
    """A derived trainer that keeps some rows keeps them of all columns."""
    target = loads(FRAMEWORK, files(filtered=filtered), overlay())
    path = "trl.experimental.filter.filter_trainer.FilterTrainer._generate_and_score_completions"
    check_verdict(DAT001, _bound(target)[path, "columns of rows"], "columns of rows", target, found=not sound)


@pytest.mark.parametrize(("parts", "sound"), [("self.current_gradient_accumulation_steps", True), ("1", False)])
def test_loss_of_a_derived_trainer(loads: Loads, parts: str, sound: bool) -> None:
    """The loss of a derived trainer is divided by the number of micro-batches of a step."""
    target = loads(FRAMEWORK, files_with_own_loss(parts), overlay())
    path = "trl.experimental.own.own_trainer.OwnTrainer._compute_loss"
    bound = {place: boundary for place, boundary in _bound(target).items() if place[0] == path}
    assert set(bound) == {(path, "grpo")}
    check_verdict(SPL001, bound[path, "grpo"], "grpo", target, found=not sound)


@pytest.mark.parametrize("divided", [True, False])
def test_losses_that_transformers_divides(loads: Loads, divided: bool) -> None:
    """Before the loss divided by the micro-batches itself, transformers did so for a trainer that declares it."""
    tree, place = files(), "trl/trainer/grpo_trainer.py"
    declared = """scales = True

        def __init__(self, *passed, **options):
            super().__init__(*passed, **options)
            self.model_accepts_loss_kwargs = False
    """
    source = tree[place].replace("parts = self.current_gradient_accumulation_steps", "parts = 1")
    tree[place] = source.replace("scales = True", declared) if divided else source
    target = loads(FRAMEWORK, tree, overlay())
    check_verdict(SPL001, _bound(target)[f"{GRPO}._compute_loss", "grpo"], "grpo", target, found=not divided)


@pytest.mark.parametrize("setting", ["grpo", "dapo", "vLLM, capped"])
def test_micro_batches_of_a_step(loads: Loads, setting: str) -> None:
    """Denominators, and weights of the sampler, are those of the whole step."""
    target = loads(FRAMEWORK, files(), overlay())
    check_verdict(SPL001, _bound(target)[f"{GRPO}._compute_loss", setting], setting, target, found=False)


@pytest.mark.parametrize(
    ("path", "setting"), [("GRPOTrainer", "default"), ("GRPOTrainer", "KL"), ("RLOOTrainer", "default")]
)
def test_ranks_of_a_step(loads: Loads, path: str, setting: str) -> None:
    """Denominators are those of all ranks, and micro-batches are those of one rollout."""
    target = loads(FRAMEWORK, files(), overlay())
    (boundary,) = [b for (p, s), b in _bound(target).items() if p.endswith(f"{path}.training_step") and s == setting]
    for law in (SPL001, SPL002, ONP001):
        check_verdict(law, boundary, setting, target, found=False)


@pytest.mark.parametrize("reduces", [True, False])
def test_numbers_over_ranks(loads: Loads, reduces: bool) -> None:
    """A number of the first rank alone depends on how many ranks there are."""
    target = loads(FRAMEWORK, files(reduces=reduces), overlay())
    boundary = _bound(target)[f"{GRPO}.training_step", "logged over ranks"]
    check_verdict(MET005, boundary, "logged over ranks", target, found=not reduces)


def test_a_loss_that_samples(loads: Loads) -> None:
    """The loss of an early release binds as it is, reads back, and logs what it computes."""
    target = loads(FRAMEWORK, early_files(), overlay())
    boundaries = _bound(target)
    assert set(boundaries) == {(f"{GRPO}.compute_loss", "default"), (f"{GRPO}.compute_loss", "accumulated")}
    check_calls(target, boundaries.values())
    check_verdict(MET001, boundaries[f"{GRPO}.compute_loss", "default"], "default", target, found=False)


@pytest.mark.parametrize(("steps", "sound"), [("self.current_gradient_accumulation_steps", True), ("1", False)])
def test_accumulation_of_a_loss_that_samples(loads: Loads, steps: str, sound: bool) -> None:
    """A loss that no step divides is as many times too large as there are micro-batches."""
    target = loads(FRAMEWORK, early_files(steps), overlay())
    check_verdict(SPL001, _bound(target)[f"{GRPO}.compute_loss", "accumulated"], "accumulated", target, found=not sound)


def test_a_tree_without_trainers_is_unbound(loads: Loads) -> None:
    """It fails with the name of what is missing."""
    tree = files()
    del tree["trl/trainer/grpo_trainer.py"]
    unbound = [b for b in FRAMEWORK.boundaries(loads(FRAMEWORK, tree, overlay())) if isinstance(b, Unbound)]
    assert [b.stage for b in unbound] == ["advantage", "policy-loss"]


@pytest.mark.parametrize(
    ("version", "pin"),
    [
        ("0.9.6", "4.57.6"),
        ("0.14.0.dev0", "4.51.3"),
        ("0.19.1", "4.51.3"),
        ("0.22.2", "4.57.6"),
        ("1.16.0", "5.23.0"),
        ("", "5.23.0"),
    ],
)
def test_packages_follow_the_release(version: str, pin: str) -> None:
    """Releases before 1.0 run on a transformers 4 that they allow; a tree without a version is a newest one."""
    assert f"transformers=={pin}" in FRAMEWORK.light(version).split()
    assert f"transformers=={pin}" in FRAMEWORK.installation(version).packages
