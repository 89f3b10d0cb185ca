"""The accuracy of TRL's supervised trainer over parts of sequences, on a specimen of it in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, the_only
from adapters.kit.round_trip import check_calls
from adapters.trl_pairs_specimen import TRANSFORMERS, files
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, supervised_parts
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.differs_from_reference import LAW as REF001

LIBRARIES = {**overlay(), "transformers.py": TRANSFORMERS}

SPLIT = """
    Plain = SFTTrainer

    class SFTTrainer(Plain):  {support}
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            logits, labels = model(inputs["input_ids"]).logits, inputs.get("{labels}")
            if labels is None:
                logits, labels = logits[:, :-1], inputs["labels"][:, 1:]
            trained = labels != -100
            counts = torch.stack([((logits.argmax(-1) == labels) & trained).sum(), trained.sum()])
            right, of = {gathers}(counts).reshape(-1, 2).sum(0)
            self._metrics["train"]["mean_token_accuracy"].append((right / of.clamp(min=1)).item())
            return logits.sum()
"""

FIELD = "        pad_to_multiple_of: object = None\n"


def _target(
    loads: Loads, labels: str, gathers: str, field: str = FIELD, support: str = "# for context parallelism"
) -> Target:
    tree, place, config = files(), "trl/trainer/sft_trainer.py", "trl/trainer/sft_config.py"
    tree[place] += SPLIT.replace("{labels}", labels).replace("{gathers}", gathers).replace("{support}", support)
    tree[config] = tree[config].rstrip() + "\n" + field
    return loads(FRAMEWORK, tree, LIBRARIES)


def _bound(
    loads: Loads, labels: str = "shift_labels", gathers: str = "self.accelerator.gather"
) -> tuple[Target, Boundary]:
    target = _target(loads, labels, gathers)
    return target, the_only(supervised_parts.boundaries(target))


def test_answers_and_reads_back(loads: Loads) -> None:
    target, boundary = _bound(loads)
    check_calls(target, [boundary])


@pytest.mark.parametrize(
    ("choices", "found"),
    [
        ({}, False),
        ({"labels": "missing"}, True),  # shifts within each part, so that its last token is left out
        ({"labels": "labels"}, True),
        ({"gathers": ""}, True),
    ],
)
def test_faults(loads: Loads, choices: dict[str, str], found: bool) -> None:
    target, boundary = _bound(loads, **choices)
    (setting,) = boundary.settings
    check_verdict(REF001, boundary, setting, target, found=found)


@pytest.mark.parametrize("lacks", ["field", "support"])
def test_only_releases_that_can_pad_and_support_it(loads: Loads, lacks: str) -> None:
    assert list(supervised_parts.boundaries(_target(loads, "labels", "", **{lacks: ""}))) == []
