"""The metrics of TRL's supervised trainer under label smoothing, on a specimen of it in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, the_only
from adapters.kit.round_trip import check_calls
from adapters.trl_pairs_specimen import TRANSFORMERS, files
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, smoothed_labels
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.metric_logged_elsewhere import LAW as MET006

LIBRARIES = {**overlay(), "transformers.py": TRANSFORMERS}

SMOOTHED = """
    Plain = SFTTrainer

    class SFTTrainer(Plain):
        def __init__(self, model, args, train_dataset, processing_class):
            super().__init__(model, args, train_dataset, processing_class)
            self.label_smoother = args.label_smoothing_factor or None

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            logits, labels = model(inputs["input_ids"]).logits[:, :-1], inputs["labels"][:, 1:]
            if self.label_smoother:
                del inputs["labels"]
            if {known}:
                right = (logits.argmax(-1) == labels) & (labels != -100)
                self._metrics["train"]["mean_token_accuracy"].append(right.float().mean().item())
            return logits.sum()
"""

FIELD = "        label_smoothing_factor: float = 0.0\n"


def _target(loads: Loads, known: str, field: str = FIELD) -> Target:
    tree, place, config = files(), "trl/trainer/sft_trainer.py", "trl/trainer/sft_config.py"
    tree[place] += SMOOTHED.replace("{known}", known)
    tree[config] = tree[config].rstrip() + "\n" + field
    return loads(FRAMEWORK, tree, LIBRARIES)


def _bound(loads: Loads, known: str) -> tuple[Target, Boundary]:
    target = _target(loads, known)
    return target, the_only(smoothed_labels.boundaries(target))


@pytest.mark.parametrize(("known", "found"), [("labels is not None", False), ("'labels' in inputs", True)])
def test_metrics_are_logged(loads: Loads, known: str, found: bool) -> None:
    """A metric whose labels the loss has taken out of the inputs is not logged."""
    target, boundary = _bound(loads, known)
    check_calls(target, [boundary])
    (setting,) = boundary.settings
    check_verdict(MET006, boundary, setting, target, found=found)


def test_without_the_field(loads: Loads) -> None:
    """A configuration without label smoothing has no such boundary."""
    assert list(smoothed_labels.boundaries(_target(loads, "True", ""))) == []


def test_with_a_fused_pass(loads: Loads) -> None:
    """A release with a fused forward pass has no such boundary."""
    assert list(smoothed_labels.boundaries(_target(loads, "dict(fused_lm_head=True)"))) == []
