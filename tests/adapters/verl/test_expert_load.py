"""verl's counts of the experts of a rollout, on a specimen of them in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict
from adapters.kit.round_trip import check_calls
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, expert_load
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.sample_lost_or_repeated import LAW as DAT002

COUNTS = """

    import torch

    def _compute_rollout_moe_load_counts(routed_experts, response_mask, num_experts):
        width = response_mask.shape[1]
        later = response_mask.flip(1).cumsum(1).flip(1)
        kept = KEPT
        if not kept.any():
            return None
        chosen = routed_experts[:, FIRST][kept]
        return torch.stack([torch.bincount(layer.flatten(), minlength=num_experts) for layer in chosen.unbind(1)])
"""

#: Sampled tokens after which another one was sampled.
KEPT = "response_mask.bool() & (later > 1)"


def _bound(loads: Loads, kept: str = KEPT, first: str = "-width:") -> tuple[Target, list[Boundary]]:
    tree = files()
    path = "verl/trainer/ppo/metric_utils.py"
    tree[path] = tree.get(path, "") + COUNTS.replace("KEPT", kept).replace("FIRST", first)
    target = loads(FRAMEWORK, tree)
    return target, [b for b in expert_load.boundaries(target) if isinstance(b, Boundary)]


def test_answers_and_reads_back(loads: Loads) -> None:
    """Lengths survive the round trip."""
    target, (boundary,) = _bound(loads)
    check_calls(target, [boundary])


@pytest.mark.parametrize(
    ("choices", "sound"),
    [
        ({}, True),
        ({"kept": "response_mask.bool()"}, False),  # the last token, which has no record, counts as expert 0
        ({"kept": "later > 1"}, False),  # a tool's tokens count
        ({"kept": "response_mask.bool() & (later > 2)"}, False),  # a record is lost
        ({"first": ":width"}, False),  # records of the token before
    ],
)
def test_tokens_that_count(loads: Loads, choices: dict[str, str], sound: bool) -> None:
    """The records of sampled tokens count, and nothing that is written where there is no record."""
    target, (boundary,) = _bound(loads, **choices)
    check_verdict(DAT002, boundary, next(iter(boundary.settings)), target, found=not sound)


def test_releases_without_the_counts(loads: Loads) -> None:
    """Have no such boundary."""
    assert not list(expert_load.boundaries(loads(FRAMEWORK, files())))
