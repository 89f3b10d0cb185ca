"""SkyRL's model on FSDP, on a specimen of its pass in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, rewritten, the_bound
from adapters.kit.round_trip import check_calls
from rl_sentinel.adapters.skyrl import FRAMEWORK, model_forward
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.differs_from_reference import LAW as REF001

MODEL = """
    import torch

    def chunked_entropy_from_logits(logits, **_about):
        log_probs = logits.log_softmax(-1)
        return -(log_probs.exp() * log_probs).sum(-1)

    class HFModelWrapper:
        def forward(self, sequences, num_actions, attention_mask=None, temperature=1.0, return_output=False,
                    compute_entropy=False):
            ids, mask, places = sequences, attention_mask, (attention_mask.cumsum(-1) - FIRST).clamp(min=0)
            if PACKED:
                ids, where, *_ = unpad_input(sequences.unsqueeze(-1), mask)
                places = unpad_input(places.unsqueeze(-1), mask)[0].T
                ids, mask = ids.T, None
            output = self.model(ids, attention_mask=mask, position_ids=places)
            logits, labels = output["logits"] / HEAT, ids.roll(-1, 1)
            numbers = [logits.log_softmax(-1).gather(-1, labels[..., None])[..., 0]]
            numbers.append(self.chunked_entropy_from_logits_fn(logits))
            if PACKED:
                rows, width = sequences.shape
                numbers = [pad_input(x.T, indices=where, batch=rows, seqlen=width).squeeze(-1) for x in numbers]
            output["entropy"] = numbers[1]
            return numbers[0][:, -num_actions - 1 : -1], output
"""

SOUND = {"FIRST": "1", "PACKED": "self.use_sample_packing", "HEAT": "temperature"}


def _bound(loads: Loads, **broken: str) -> tuple[Target, Boundary]:
    source = rewritten(MODEL, SOUND | broken)
    target = loads(FRAMEWORK, {"skyrl/backends/skyrl_train/workers/model_wrapper.py": source})
    boundary = the_bound(model_forward.boundaries(target))
    return target, boundary


def test_answers_and_reads_back(loads: Loads) -> None:
    """Packed and padded."""
    target, boundary = _bound(loads)
    check_calls(target, [boundary])
    for setting in boundary.settings:
        check_verdict(REF001, boundary, setting, target, found=False)


@pytest.mark.parametrize(
    ("broken", "setting"),
    [
        ({"HEAT": "1.0"}, "packed"),
        ({"FIRST": "0"}, "padded"),
        ({"ids.roll(-1, 1)": "ids"}, "padded"),
        ({"unpad_input(places.unsqueeze(-1), mask)[0].T": "torch.arange(len(ids))[None]"}, "packed"),
    ],
)
def test_broken(loads: Loads, broken: dict[str, str], setting: str) -> None:
    """Temperature, positions, labels that are not shifted, positions that do not restart."""
    target, boundary = _bound(loads, **broken)
    check_verdict(REF001, boundary, setting, target, found=True)
