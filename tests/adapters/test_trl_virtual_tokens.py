"""The metrics of TRL's supervised trainer with virtual tokens, on a specimen of it in words of our own."""

import pytest

from adapters.checks import Loads, by_setting, check_verdict
from adapters.kit.round_trip import check_calls
from adapters.trl_pairs_specimen import TRANSFORMERS, files
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, virtual_tokens
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.knob_with_side_effect import LAW as CFG002

LIBRARIES = {**overlay(), "transformers.py": TRANSFORMERS}

TUNED = """
    Plain = SFTTrainer

    class SFTTrainer(Plain):
        num_virtual_tokens = 0

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            shares = model(inputs["input_ids"]).logits.log_softmax(-1)
            kind = model.peft_config[model.active_adapter].peft_type
            shares = shares[:, self.num_virtual_tokens * ({given}) :]
            per_token_entropy = -(shares.exp() * shares).sum(-1)
            self._metrics["train"]["entropy"].append(per_token_entropy.mean().item())
            return per_token_entropy.mean()
"""

PROMPT, PREFIX = "logged of logits, prompt tuning", "logged of logits, prefix tuning"


def _bound(loads: Loads, given: str) -> tuple[Target, dict[str, Boundary]]:
    tree, place = files(), "trl/trainer/sft_trainer.py"
    target = loads(FRAMEWORK, {**tree, place: tree[place] + TUNED.replace("{given}", given)}, LIBRARIES)
    return target, by_setting(virtual_tokens.boundaries(target))


def test_answers_and_reads_back(loads: Loads) -> None:
    target, named = _bound(loads, "kind != PeftType.PREFIX_TUNING")
    assert set(named) == {PROMPT, PREFIX}
    check_calls(target, named.values())


@pytest.mark.parametrize(
    ("given", "broken"),
    [
        ("kind != PeftType.PREFIX_TUNING", set()),
        ("kind == PeftType.PREFIX_TUNING", {PROMPT, PREFIX}),
        ("kind is PeftType.PREFIX_TUNING and 0", {PROMPT}),  # none is skipped
        ("True or PeftType.PREFIX_TUNING", {PREFIX}),  # as many tokens of the input are skipped
    ],
)
def test_tokens_that_are_not_of_the_input(loads: Loads, given: str, broken: set[str]) -> None:
    """Logits of virtual tokens are skipped, and those of the input are not."""
    target, named = _bound(loads, given)
    for name, boundary in named.items():
        check_verdict(CFG002, boundary, name, target, found=name in broken)


def test_a_release_that_counts_them_on_purpose(loads: Loads) -> None:
    """Its entropy is not expected to skip them; its accuracy is."""
    log = """self._metrics["train"]["mean_token_accuracy"].append(0.0)  # with a virtual_attention_mask"""
    (boundary,) = _bound(loads, f"0) :]\n            {log}\n            shares = shares[:, 0 * (1")[1].values()
    assert set(boundary.outputs) == {"mean_token_accuracy"}


def test_a_release_that_knows_no_kind(loads: Loads) -> None:
    """It is asked with the tokens whose logits are returned; one without virtual tokens is not asked."""
    assert set(_bound(loads, "0")[1]) == {PROMPT}
    assert list(virtual_tokens.boundaries(loads(FRAMEWORK, files(), LIBRARIES))) == []
