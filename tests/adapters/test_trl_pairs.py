"""TRL's trainers of pairs, of distillation and of PPO, on a specimen of their call shapes in words of our own."""

import pytest

from adapters.checks import Loads, answering, check_verdict, judged_at
from adapters.kit.round_trip import check_round_trips
from adapters.trl_pairs_specimen import TRANSFORMERS, files
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import (
    FRAMEWORK,
    distillation,
    kto,
    logit_metrics,
    nash_md,
    ppo,
    preferences,
    supervised,
)
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.metric_depends_on_split import LAW as MET005
from rl_sentinel.laws.metric_fits_no_definition import LAW as MET001
from rl_sentinel.laws.metric_logged_elsewhere import LAW as MET006
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001
from rl_sentinel.laws.rank_split_changes_loss import LAW as SPL002
from rl_sentinel.laws.row_order_matters import LAW as PRM001
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

MODULES = (preferences, kto, logit_metrics, supervised, nash_md, distillation, ppo)

DPO = "trl.trainer.dpo_trainer.DPOTrainer.compute_loss"
KTO = "trl.trainer.kto_trainer.KTOTrainer.compute_loss"
GKD = "trl.trainer.gkd_trainer.GKDTrainer"
GOLD = "trl.experimental.gold.gold_trainer.GOLDTrainer"
PPO = "trl.trainer.ppo_trainer.PPOTrainer"
SFT = "trl.trainer.sft_trainer.SFTTrainer.compute_loss"


def _bound(target: Target) -> dict[tuple[str, str], Boundary]:
    """(path, setting) to boundary."""
    every = [b for module in MODULES for b in module.boundaries(target)]
    return {(b.path, setting): b for b in every if isinstance(b, Boundary) for setting in b.settings}


def _load(loads: Loads, **choices: str) -> Target:
    return loads(FRAMEWORK, files(**choices), {**overlay(), "transformers.py": TRANSFORMERS})


def test_all_boundaries_answer(loads: Loads) -> None:
    """Each form that the release names binds, and its outputs move."""
    target = _load(loads)
    boundaries = _bound(target)
    losses = {setting for path, setting in boundaries if path == DPO}
    assert losses == {
        "default",
        "ipo",
        *(f"{n}, {cut}" for n in ("default", "ipo") for cut in ("keep_start", "keep_end")),
    }
    assert {setting for path, setting in boundaries if path.startswith(PPO)} == {
        "default",
        "row by row",
        "padding at the right",
        "reference, queries",
        "reference, one query",
        "response masks",
        *(f"{name}{ends}" for name in ("decoder", "encoder and decoder") for ends in ("", ", with end tokens")),
        "policy",
        "value",
        *(f"kl_penalty={name}" for name in ppo.PENALTIES),
    }
    assert answering(boundaries, target) == []


@pytest.mark.slow
def test_every_call_reads_back(loads: Loads) -> None:
    """Columns, settings and arguments of every boundary survive the round trip."""
    target = _load(loads)
    check_round_trips(target, _bound(target).values())


@pytest.mark.parametrize("law", [REF001, SPL001, PRM001])
def test_pairs_in_micro_batches(loads: Loads, law: Law) -> None:
    """A sound loss on pairs is that of its formula, in parts and in any order of the pairs."""
    target = _load(loads)
    check_verdict(law, _bound(target)[DPO, "default"], "default", target, found=False)


@pytest.mark.parametrize(("shift", "sound"), [("[:, 1:]", True), ("", False)])
def test_length_of_a_truncated_response(loads: Loads, shift: str, sound: bool) -> None:
    """A mean over tokens counts those that are scored: the first one kept of a sequence is not."""
    target = _load(loads, shift=shift)
    check_verdict(REF001, _bound(target)[DPO, "ipo, keep_end"], "ipo, keep_end", target, found=not sound)


@pytest.mark.parametrize(("detach", "sound"), [(".detach()", True), ("", False)])
def test_reference_point_of_kto(loads: Loads, detach: str, sound: bool) -> None:
    """No gradient flows to the KL term that responses are compared with."""
    target = _load(loads, detach=detach)
    check_verdict(REF001, _bound(target)[KTO, "weighted"], "weighted", target, found=not sound)


@pytest.mark.parametrize(("share", "sound"), [("beta", True), ("1 - beta", False)])
def test_share_of_the_teacher(loads: Loads, share: str, sound: bool) -> None:
    """The mixture has beta of the teacher."""
    target = _load(loads, share=share)
    check_verdict(
        REF001, _bound(target)[f"{GKD}.generalized_jsd_loss", "beta 0.1"], "beta 0.1", target, found=not sound
    )


@pytest.mark.parametrize(
    ("path", "setting"),
    [("generalized_jsd_loss", "beta 0.1"), ("compute_loss", "beta 0.1"), ("compute_loss", "sampled")],
)
@pytest.mark.parametrize(("share", "sound"), [("beta", True), ("1 - beta", False)])
def test_share_of_the_teacher_of_a_relative(loads: Loads, path: str, setting: str, share: str, *, sound: bool) -> None:
    """GKD's relatives are held to the same divergence, beside GKD itself."""
    target = _load(loads, gold_share=share)
    at_half = setting == "sampled"  # both shares are equal there
    assert _sound(target, REF001, f"{GOLD}.{path}", setting) is (sound or at_half)
    assert _sound(target, REF001, f"{GKD}.{path}", setting)


@pytest.mark.parametrize(("ended", "sound"), [("", True), (" | (tokens == 1)", False)])
def test_end_of_a_sampled_completion_of_a_relative(loads: Loads, ended: str, *, sound: bool) -> None:
    """A method of the trainer, with texts after the labels, labels the end that is the padding, too."""
    target = _load(loads, gold_ended=ended)
    assert _sound(target, PLC004, f"{GOLD}.generate_on_policy_outputs", "default") is sound


@pytest.mark.parametrize(
    ("count", "sound"), [("math.ceil(len(queries) / size)", True), ("len(queries) // size", False)]
)
def test_last_mini_batch_of_a_pass(loads: Loads, count: str, sound: bool) -> None:
    """A pass keeps the rows of a last, smaller mini-batch."""
    target = _load(loads, count=count)
    check_verdict(PLC004, _bound(target)[f"{PPO}.batched_forward_pass", "default"], "default", target, found=not sound)


@pytest.mark.parametrize(("end", "sound"), [({}, True), ({"end": "len(ids[j])"}, False)])
def test_responses_before_padding(loads: Loads, end: dict[str, str], *, sound: bool) -> None:
    """A response ends where its row stops attending, at either side of the padding."""
    target = _load(loads, **end)
    assert _sound(target, PLC004, f"{PPO}.batched_forward_pass", "padding at the right") is sound
    assert _sound(target, PLC004, f"{PPO}.batched_forward_pass", "default")


@pytest.mark.parametrize(("cut", "sound"), [("True", True), ("False", False)])
def test_padding_after_the_end(loads: Loads, cut: str, *, sound: bool) -> None:
    """Padding after the end token of a generated response is no part of it."""
    target = _load(loads, cut=cut)
    assert _sound(target, PLC004, f"{PPO}._generate_batched", "decoder, with end tokens") is sound
    assert _sound(target, PLC004, f"{PPO}._generate_batched", "decoder")


@pytest.mark.parametrize(("refers", "sound"), [("self.ref_model", True), ("self.model", False)])
def test_responses_of_the_reference(loads: Loads, refers: str, *, sound: bool) -> None:
    """The reference generates the reference's response, for one query as for a list."""
    target = _load(loads, refers=refers)
    assert _sound(target, PLC004, f"{PPO}.generate", "reference, one query") is sound
    assert _sound(target, PLC004, f"{PPO}.generate", "reference, queries")


def _sound(target: Target, law: Law, path: str, setting: str) -> bool:
    """Whether a law holds at a boundary, on one case at least."""
    judgement = judged_at(law, _bound(target)[path, setting], setting, target)
    assert judgement.tried > 0
    return judgement.found is None


@pytest.mark.parametrize("setting", ["default", "dft"])
def test_supervised_loss(loads: Loads, setting: str) -> None:
    """A mean over the tokens of all micro-batches and ranks is that of its formula."""
    target = _load(loads)
    assert all(_sound(target, law, SFT, setting) for law in (REF001, SPL001, SPL002))


def test_denominator_of_a_micro_batch(loads: Loads) -> None:
    """A micro-batch that divides by its own tokens weighs them by its size."""
    assert not _sound(_load(loads, denominator="trained.sum()"), SPL001, SFT, "default")


@pytest.mark.parametrize(("counted", "sound"), [("trained", True), ("torch.ones_like(trained)", False)])
def test_entropy_of_trained_tokens(loads: Loads, counted: str, sound: bool) -> None:
    """Tokens of the prompt and padding have no part in the logged entropy."""
    assert _sound(_load(loads, counted=counted), REF001, SFT, "logged of logits") is sound


@pytest.mark.parametrize(
    ("evaluates", "sound"), [("not self.model.training", True), ("self.control.should_evaluate", False)]
)
def test_mode_of_logged_numbers(loads: Loads, evaluates: str, sound: bool) -> None:
    """An evaluation is what the model is in, not what is due."""
    assert _sound(_load(loads, evaluates=evaluates), MET006, SFT, "evaluation") is sound


@pytest.mark.parametrize(("kept", "sound"), [("self.mode()", True), ("'train'", False)])
def test_step_before_an_evaluation(loads: Loads, kept: str, sound: bool) -> None:
    """With one log for both, an evaluation is averaged with the steps that are not logged yet."""
    assert _sound(_load(loads, kept=kept), MET006, SFT, "evaluation") is sound


@pytest.mark.parametrize(("encoded", "sound"), [("1", True), ("1 + n", False)])
def test_responses_after_padded_queries(loads: Loads, encoded: str, sound: bool) -> None:
    """The padding of an encoder's input is no part of what its decoder wrote."""
    target = _load(loads, encoded="0" if sound else encoded)
    assert _sound(target, PLC004, f"{PPO}._generate_batched", "encoder and decoder") is sound


@pytest.mark.parametrize(
    ("gathered", "sound"),
    [
        ("self.accelerator.gather(torch.stack(rewards))", True),
        ("self.accelerator.reduce(torch.stack(rewards))", False),
    ],
)
def test_rewards_of_all_ranks(loads: Loads, gathered: str, sound: bool) -> None:
    """The deviation of rewards that are averaged over ranks is not that of all rewards."""
    assert _sound(_load(loads, gathered=gathered), MET005, f"{PPO}.log_stats", "default") is sound


@pytest.mark.parametrize(("decay", "sound"), [("self.config.lam", True), ("1.0", False)])
def test_advantages_of_ppo(loads: Loads, decay: str, sound: bool) -> None:
    """Advantages decay by lambda."""
    assert _sound(_load(loads, decay=decay), REF001, f"{PPO}.compute_advantages", "default") is sound


@pytest.mark.parametrize("setting", ["policy", "value"])
def test_losses_of_ppo(loads: Loads, setting: str) -> None:
    """Both losses, and what is logged beside them, are those of their formulas."""
    target = _load(loads)
    assert all(_sound(target, law, f"{PPO}.loss", setting) for law in (REF001, MET001))
