"""The loss of multi-token-prediction heads, on a specimen of the target's call shape in words of our own."""

import pytest

from adapters.checks import Loads, answering, check_verdict
from adapters.kit.round_trip import check_round_trips
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, head_losses
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.degenerate_batch_not_finite import LAW as DEG001
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.masked_token_shifts_signal import LAW as MSK002

SOURCE = """
    import torch
    from megatron.core.transformer.multi_token_prediction import MTPLossAutoScaler, MTPLossLoggingHelper, roll_tensor

    def _megatron_gptmodel_postprocess(
        self, hidden_states, input_ids, position_ids, labels, rotary_pos_emb, rotary_pos_cos, rotary_pos_sin,
        mtp_in_postprocess=None, loss_mask=None, packed_seq_params=None,
    ):
        every = self.mtp(hidden_states=hidden_states) if mtp_in_postprocess else hidden_states
        count = self.config.mtp_num_layers
        hidden_states, *heads = every.chunk(1 + count)
        for number, head in enumerate(heads):
            labels, _ = roll_tensor(labels, packed_seq_params=packed_seq_params) if ROLLED else (labels, None)
            loss_mask, tokens = roll_tensor(loss_mask, packed_seq_params=packed_seq_params)
            shared = self.shared_embedding_or_output_weight() if self.share_embeddings_and_output_weights else None
            logits, _ = self.output_layer(head, weight=SHARED)
            losses = WEIGHT * self.compute_language_model_loss(labels, logits) / DIVISOR
            MTPLossLoggingHelper.save_loss_to_tracker(losses.sum(), number, count)
            hidden_states = MTPLossAutoScaler.apply(hidden_states, losses / count)
        return self.output_layer(hidden_states)[0]
"""

SOUND = {"ROLLED": "True", "SHARED": "shared", "WEIGHT": "loss_mask", "DIVISOR": "tokens.clamp(min=1)"}


def _bound(loads: Loads, **words: str) -> tuple[Target, Boundary]:
    source = SOURCE
    for name, word in {**SOUND, **words}.items():
        source = source.replace(name, word)
    target = loads(FRAMEWORK, {"verl/__init__.py": "", "verl/models/mcore/mtp_patch.py": source})
    (boundary,) = head_losses.boundaries(target)
    assert isinstance(boundary, Boundary)
    return target, boundary


@pytest.mark.parametrize("law", [DEG001, MSK002, REF001], ids=lambda law: law.code)
def test_mean_over_tokens_of_the_mask(loads: Loads, law: Law) -> None:
    target, boundary = _bound(loads)
    assert answering({("heads", setting): boundary for setting in boundary.settings}, target) == []
    for setting in ("packed", "packed, tied embeddings"):
        check_verdict(law, boundary, setting, target, found=False)


def test_weight_of_another_layer(loads: Loads) -> None:
    """With tied embeddings, logits are those of their weight."""
    target, boundary = _bound(loads, SHARED="None")
    check_verdict(REF001, boundary, "packed", target, found=False)
    check_verdict(REF001, boundary, "packed, tied embeddings", target, found=True)


@pytest.mark.parametrize(
    ("words", "law"),
    [
        ({"DIVISOR": "tokens"}, DEG001),
        ({"WEIGHT": "1"}, MSK002),
        ({"DIVISOR": "loss_mask.numel()"}, REF001),
        ({"ROLLED": "False"}, REF001),
    ],
    ids=["no trained token", "without the mask", "mean over all positions", "labels of another head"],
)
def test_other_losses(loads: Loads, words: dict[str, str], law: Law) -> None:
    target, boundary = _bound(loads, **words)
    check_verdict(law, boundary, "packed", target, found=True)


def test_reads_back(loads: Loads) -> None:
    target, boundary = _bound(loads)
    check_round_trips(target, [boundary])
