"""TRL's conversations and calls of tools, on a specimen of their call shapes in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, judged_at
from adapters.kit.round_trip import check_calls
from adapters.trl_conversations_specimen import TRANSFORMERS, files
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, chatml, templates, tool_counts, tool_loop
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.conversation_tokens_differ import LAW as TOK001
from rl_sentinel.laws.metric_fits_no_definition import LAW as MET001

APPLY = "trl.data_utils.apply_chat_template"
COLLATOR = "trl.trainer.utils.DataCollatorForChatML.__call__"
RLOO = "trl.trainer.rloo_trainer.RLOOTrainer"
OWNERS = ("trl.trainer.grpo_trainer.GRPOTrainer", "trl.trainer.distillation_trainer.DistillationTrainer")

WORKER = "trl.experimental.async_grpo.async_rollout_worker.AsyncRolloutWorker"

#: Where the tokens after a call of a tool are made.
SUFFIXES = (*(f"{owner}._get_tool_suffix_ids" for owner in OWNERS), f"{WORKER}._build_messages_suffix_ids")

#: Where prompts are tokenized.
PROMPTS = (*(f"{owner}._tokenize_prompts" for owner in OWNERS), f"{RLOO}._generate_single_turn")


def _load(loads: Loads, **choices: str) -> Target:
    return loads(FRAMEWORK, files(**choices), {**overlay(), "transformers.py": TRANSFORMERS})


def _bound(target: Target) -> dict[tuple[str, str], Boundary]:
    """(path, setting) to boundary."""
    every = [b for module in (templates, chatml, tool_loop, tool_counts) for b in module.boundaries(target)]
    return {(b.path, setting): b for b in every if isinstance(b, Boundary) for setting in b.settings}


def _sound(target: Target, path: str, setting: str) -> bool:
    judgement = judged_at(TOK001, _bound(target)[path, setting], setting, target)
    assert judgement.tried > 0
    return judgement.found is None


def test_all_boundaries_answer_and_read_back(loads: Loads) -> None:
    """Each form binds, and every column survives the round trip."""
    target = _load(loads)
    boundaries = _bound(target)
    assert set(boundaries) == {
        *((APPLY, name) for name in ("pairs", "pairs, thoughts", "completions", "completions, thoughts")),
        *((COLLATOR, name) for name in ("conversations", "truncated conversations")),
        *((path, name) for path in SUFFIXES for name in ("plain", "line breaks")),
        *((f"{owner}._tool_call_loop", f"a call{whole}") for owner in OWNERS for whole in ("", ", parsed whole")),
        *((f"{owner}._generate", "logged, tools") for owner in OWNERS),
        *((path, f"{kind} as prompts") for path in PROMPTS for kind in ("conversations", "texts")),
    }
    check_calls(target, boundaries.values())


@pytest.mark.parametrize(("cut", "sound"), [("shared", True), ("commonprefix([question, text])", False)])
def test_prompt_that_one_reply_shortens(loads: Loads, cut: str, sound: bool) -> None:
    """A prompt that gives up its last word for one reply gives it to the other one too."""
    target = _load(loads, cut=cut)
    assert _sound(target, APPLY, "pairs, thoughts") is sound
    assert _sound(target, APPLY, "pairs")


@pytest.mark.parametrize(("asks", "sound"), [("False", True), ("True", False)])
def test_conversation_that_has_ended(loads: Loads, asks: str, sound: bool) -> None:
    """After the last reply nobody is asked for another one."""
    assert _sound(_load(loads, asks=asks), COLLATOR, "conversations") is sound


@pytest.mark.parametrize(("lost", "sound"), [("len(ids) - self.max_length", True), ("0", False)])
def test_prompt_of_a_truncated_conversation(loads: Loads, lost: str, sound: bool) -> None:
    """The reply of a conversation that has lost its beginning starts earlier."""
    target = _load(loads, lost=lost)
    assert _sound(target, COLLATOR, "truncated conversations") is sound
    assert _sound(target, COLLATOR, "conversations")


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize(("among", "sound"), [("called", True), ("rows", False)])
def test_share_of_failed_calls(loads: Loads, owner: str, among: str, sound: bool) -> None:
    """The share is of the calls, not of the completions."""
    target = _load(loads, among=among)
    check_verdict(
        MET001, _bound(target)[f"{owner}._generate", "logged, tools"], "logged, tools", target, found=not sound
    )


@pytest.mark.parametrize("path", SUFFIXES)
@pytest.mark.parametrize(("trims", "sound"), [("True", True), ("False", False)])
def test_line_break_after_a_sampled_reply(loads: Loads, path: str, trims: str, sound: bool) -> None:
    """A sampled reply ends with its end token; the break after it is part of what follows."""
    target = _load(loads, trims=trims)
    assert _sound(target, path, "line breaks") is sound
    assert _sound(target, path, "plain")


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize(("choices", "sound"), [({}, True), ({"samples": "False"}, False), ({"result": "1"}, False)])
def test_sampled_tokens_of_a_call(loads: Loads, owner: str, choices: dict[str, str], sound: bool) -> None:
    """Tokens that were sampled are not tokenized anew, and results of tools do not train."""
    assert _sound(_load(loads, **choices), f"{owner}._tool_call_loop", "a call") is sound


@pytest.mark.parametrize("path", PROMPTS)
@pytest.mark.parametrize(
    ("choices", "broken"),
    [({}, ""), ({"asked": "False"}, "conversations as prompts"), ({"text": 'text + " w5"'}, "texts as prompts")],
)
def test_prompts(loads: Loads, path: str, choices: dict[str, str], broken: str) -> None:
    """A conversation asks for a reply; a text is not changed."""
    target = _load(loads, **choices)
    for setting in ("conversations as prompts", "texts as prompts"):
        assert _sound(target, path, setting) is (setting != broken)


def test_prompts_that_attend_to_padding(loads: Loads) -> None:
    """What the model may attend to is the prompt alone."""
    target = _load(loads, attends="1")
    assert not _sound(target, f"{RLOO}._generate_single_turn", "texts as prompts")
