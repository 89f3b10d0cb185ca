"""TRL's simple self-distillation, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, rewritten, the_only
from adapters.kit.round_trip import check_calls
from adapters.trl_async_specimen import files
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, ssd
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001
from rl_sentinel.laws.padding_shifts_signal import LAW as PAD001

TRAINER = """
    import torch

    def selective_log_softmax(logits, ids):
        return torch.gather(logits.log_softmax(-1), -1, ids.unsqueeze(-1)).squeeze(-1)

    class SSDTrainer:
        def compute_loss(self, model, inputs):
            ids, mask = inputs["completion_ids"], inputs["completion_mask"]
            whole = torch.cat([inputs["prompt_ids"], ids], 1)
            logits = model(input_ids=whole, logits_to_keep=ids.shape[1] + 1).logits[:, PLACES]
            tokens = -selective_log_softmax(logits, ids)
            return (tokens * mask).sum() / COUNT.sum().clamp(min=1) / PARTS
"""

SOUND = {"PLACES": ":-1", "COUNT": "mask", "PARTS": "self.current_gradient_accumulation_steps"}


def _bound(loads: Loads, **broken: str) -> tuple[Target, Boundary]:
    source = rewritten(TRAINER, SOUND | broken)
    target = loads(FRAMEWORK, {**files(), "trl/experimental/ssd/ssd_trainer.py": source}, overlay())
    return target, the_only(ssd.boundaries(target))


def test_answers_and_reads_back(loads: Loads) -> None:
    """The loss moves with the log-probs."""
    target, boundary = _bound(loads)
    check_calls(target, [boundary])


@pytest.mark.parametrize("sound", [True, False])
@pytest.mark.parametrize(
    ("law", "broken"),
    [
        (REF001, {"PLACES": "1:"}),
        (PAD001, {"COUNT": "torch.ones_like(mask)"}),
        (SPL001, {"PARTS": "1"}),
    ],
)
def test_faults(loads: Loads, law: Law, broken: dict[str, str], *, sound: bool) -> None:
    """Logits of the token itself, a mean over padding, and losses added up."""
    target, boundary = _bound(loads, **({} if sound else broken))
    check_verdict(law, boundary, "default", target, found=not sound)
