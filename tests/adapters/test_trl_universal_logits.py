"""GOLD's distance between tokenizers, on a specimen of its call shape in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, the_only
from adapters.kit.round_trip import check_calls
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, universal_logits
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.differs_from_reference import LAW as REF001

GOLD = """
    import torch

    class ULDLoss:
        def __init__(self, config):
            self.config = config

        def __call__(
            self, student_logits, teacher_logits, student_labels, teacher_labels, student_input_ids, teacher_input_ids,
            student_byte_offsets=None, teacher_byte_offsets=None,
        ):
            sides = [
                (student_logits, student_labels, student_input_ids, student_byte_offsets),
                (teacher_logits, teacher_labels, teacher_input_ids, teacher_byte_offsets),
            ]
            rows = []
            for row in range(len(student_logits)):
                own, other = (self.of_row(*(part[row] for part in side)) for side in sides)
                if self.config.use_extended_uld:
                    ends = [end for end in own[2] if end in other[2]]
                    own, other = (self.merged(*side, ends) for side in (own, other))
                else:
                    own, other = own[0], other[0]
                rows.append((own.sort(1).values - other.sort(1).values).abs().sum() / len(own))
            return torch.stack(rows).mean()

        def of_row(self, logits, labels, ids, offsets):
            trained = (labels != -100).nonzero().flatten()
            probs = (logits[trained - {before}] / self.config.uld_student_temperature).softmax(1)
            return probs, ids[trained].tolist(), offsets[trained, 1].tolist()

        def merged(self, probs, ids, ends, shared):
            merged, start = [], 0
            for end in shared:
                group = list(range(start, ends.index(end) + 1))
                known = torch.ones(())
                for place in group[:-1]:
                    known = known * probs[place, ids[place] + {shift}]
                merged.append(probs[group[{base}]] * known)
                start = group[-1] + 1
            return torch.stack(merged)
"""

SOUND = {"before": "1", "shift": "0", "base": "-1"}


def _bound(loads: Loads, **broken: str) -> tuple[Target, Boundary]:
    text = GOLD
    for name, code in (SOUND | broken).items():
        text = text.replace("{" + name + "}", code)
    tree = {"trl/experimental/gold/gold_trainer.py": text}
    target = loads(FRAMEWORK, tree, overlay())
    return target, the_only(universal_logits.boundaries(target))


def test_answers_and_reads_back(loads: Loads) -> None:
    target, boundary = _bound(loads)
    check_calls(target, [boundary])


@pytest.mark.parametrize("setting", list(universal_logits.SETTINGS))
@pytest.mark.parametrize(
    ("broken", "everywhere"),
    [
        ({}, False),
        ({"before": "0"}, True),  # the logits of the next token
        ({"base": "0"}, False),  # the distribution of the first half in place of the last one
        ({"shift": "1"}, False),  # the probability of another token
    ],
)
def test_faults(loads: Loads, setting: str, broken: dict[str, str], everywhere: bool) -> None:
    """Faults of merging show only where tokens are merged."""
    target, boundary = _bound(loads, **broken)
    check_verdict(REF001, boundary, setting, target, found=(bool(broken) and (everywhere or "halved" in setting)))
