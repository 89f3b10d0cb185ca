"""TRL's data sets, from conversations to packed rows, and distillation over micro-batches, on a specimen of our own."""

import pytest

from adapters.checks import Loads, judged_at
from adapters.kit.round_trip import check_calls
from adapters.trl_data_specimen import DATASETS, TRANSFORMERS, files
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, dataset_preparation, distillation_steps, packing, reply_collator
from rl_sentinel.adapters.trl.dataset_preparation import PLAIN, STARTED
from rl_sentinel.adapters.trl.reply_collator import TURNS
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.conversation_tokens_differ import LAW as TOK001
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001
from rl_sentinel.laws.sample_lost_or_repeated import LAW as DAT002

DPO = "trl.trainer.dpo_trainer.DPOTrainer"
PACK = "trl.data_utils.pack_dataset"
COLLATOR = "trl.trainer.utils.DataCollatorForCompletionOnlyLM.torch_call"
GKD = "trl.trainer.gkd_trainer.GKDTrainer"
SAMPLED = "accumulated, sampled completions"


def _load(loads: Loads, **choices: str) -> Target:
    return loads(FRAMEWORK, files(**choices), {**overlay(), "transformers.py": TRANSFORMERS, "datasets.py": DATASETS})


def _bound(target: Target) -> dict[tuple[str, str], Boundary]:
    """(path, setting) to boundary."""
    modules = (packing, reply_collator, dataset_preparation, distillation_steps)
    every = [b for module in modules for b in module.boundaries(target)]
    return {(b.path, setting): b for b in every if isinstance(b, Boundary) for setting in b.settings}


def _sound(target: Target, law: Law, path: str, setting: str) -> bool:
    """Whether a law holds at a boundary, on one case at least."""
    judgement = judged_at(law, _bound(target)[path, setting], setting, target)
    assert judgement.tried > 0
    return judgement.found is None


def test_all_boundaries_answer_and_read_back(loads: Loads) -> None:
    """Each form binds, and every column survives the round trip."""
    target = _load(loads)
    boundaries = _bound(target)
    assert set(boundaries) == {
        *((DPO, name) for name in ("conversations", STARTED, *PLAIN)),
        *((PACK, name) for name in ("bfd", "wrapped")),
        *((COLLATOR, name) for name in TURNS),
        (f"{GKD}.compute_loss", "accumulated"),
        (f"{GKD}.compute_loss", "data-parallel"),
        (f"{GKD}.training_step", SAMPLED),
    }
    check_calls(target, boundaries.values())


@pytest.mark.parametrize(("ends", "sound"), [("not chat and ids[-1] != tokenizer.eos_token_id", True), ("True", False)])
def test_end_of_a_conversation(loads: Loads, ends: str, sound: bool) -> None:
    """The template ends a conversation: an end of one's own is a token too many. Plain text gets one, but no second."""
    target = _load(loads, ends=ends)
    assert _sound(target, TOK001, DPO, "conversations") is sound
    assert _sound(target, TOK001, DPO, "plain text with its end token") is sound
    assert _sound(target, TOK001, DPO, "plain text")


@pytest.mark.parametrize(("special", "sound"), [("not chat", True), ("True", False)])
def test_start_of_a_conversation(loads: Loads, special: str, sound: bool) -> None:
    """The template has the token that starts a text: the tokenizer must not add it again."""
    target = _load(loads, special=special)
    assert _sound(target, TOK001, DPO, STARTED) is sound
    assert _sound(target, TOK001, DPO, "conversations")


@pytest.mark.parametrize(("kept", "sound"), [("", True), (" // seq_length * seq_length", False)])
def test_tokens_of_packs(loads: Loads, kept: str, sound: bool) -> None:
    """The last pack has what is left."""
    target = _load(loads, kept=kept)
    assert _sound(target, DAT002, PACK, "wrapped") is sound
    assert _sound(target, DAT002, PACK, "bfd")


@pytest.mark.parametrize(("again", "sound"), [("False", True), ("inside", False)])
def test_questions_after_a_reply(loads: Loads, again: str, sound: bool) -> None:
    """A second question is no part of the first reply."""
    target = _load(loads, again=again)
    assert _sound(target, TOK001, COLLATOR, "several turns") is sound
    assert _sound(target, TOK001, COLLATOR, "several turns, other tokens at the start") is sound
    assert _sound(target, TOK001, COLLATOR, "one turn")


@pytest.mark.parametrize(
    ("cuts", "broken"),
    [
        ("", set()),
        ("if self.response[0] not in one['input_ids']: row = list(one['input_ids'])", {"several turns, truncated"}),
    ],
)
def test_truncated_conversations(loads: Loads, cuts: str, broken: set[str]) -> None:
    """A conversation without any reply is not trained."""
    target = _load(loads, cuts=cuts)
    assert {name for name in TURNS if not _sound(target, TOK001, COLLATOR, name)} == broken


@pytest.mark.parametrize(("side", "sound"), [("self.tokenizer.padding_side", True), ("'right'", False)])
def test_padding_side_of_conversations(loads: Loads, side: str, sound: bool) -> None:
    """Labels are at the side of the tokens."""
    target = _load(loads, side=side)
    assert _sound(target, TOK001, COLLATOR, "several turns, padded at the left") is sound
    assert _sound(target, TOK001, COLLATOR, "several turns")


@pytest.mark.parametrize(("denominator", "sound"), [("num_items_in_batch", True), ("trained.sum()", False)])
def test_tokens_of_all_micro_batches(loads: Loads, denominator: str, sound: bool) -> None:
    """A micro-batch that divides by its own tokens makes the loss of a step larger."""
    assert _sound(_load(loads, denominator=denominator), SPL001, f"{GKD}.compute_loss", "accumulated") is sound


@pytest.mark.parametrize(("sampled", "sound"), [("(labels != -100).sum()", True), ("num_items_in_batch", False)])
def test_tokens_of_sampled_completions(loads: Loads, sampled: str, sound: bool) -> None:
    """The tokens of the data set's own completions say nothing about those that the student samples."""
    assert _sound(_load(loads, sampled=sampled), REF001, f"{GKD}.training_step", SAMPLED) is sound


@pytest.mark.parametrize("law", [REF001, SPL001])
def test_completions_sampled_before_tokens_are_counted(loads: Loads, law: Law) -> None:
    """Micro-batches that are all sampled before their tokens are counted give the loss of one large batch."""
    assert _sound(_load(loads, ahead="True"), law, f"{GKD}.training_step", SAMPLED)
