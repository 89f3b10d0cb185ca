"""Training samples of an agent's session, on a specimen of slime's call shape in words of our own."""

import pytest
import torch

from adapters.checks import Loads, by_setting, check_verdict, outputs_of
from adapters.kit.round_trip import check_round_trip
from adapters.slime_trajectory_specimen import MANAGER, TYPES
from rl_sentinel.adapters.slime import FRAMEWORK
from rl_sentinel.adapters.slime.trajectories import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004


def _bound(loads: Loads, aligned: str = "row.reply", divisor: str = "1") -> tuple[Target, dict[str, Boundary]]:
    manager = MANAGER.replace("ALIGNED", aligned).replace("DIVISOR", divisor)
    files = {"slime/__init__.py": "", "slime/utils/types.py": TYPES, "slime/agent/trajectory.py": manager}
    target = loads(FRAMEWORK, files)
    return target, by_setting(boundaries(target))


@pytest.mark.parametrize("setting", ["replies repeated", "a reply tokenized again", "a reply tokenized again, forked"])
def test_by_hand(loads: Loads, setting: str) -> None:
    """Two replies of two tokens and of one, and a tool's answer between them."""
    target, bound = _bound(loads)
    mask = torch.tensor([[True, True, False, True]])
    tokens, logprobs = torch.tensor([[5, 6, 7, 8]]), torch.tensor([[-1.0, -2.0, 0.0, -3.0]])
    batch = batch_of(mask, token=tokens, rollout_logprob=logprobs, reward=torch.tensor([0.5]))
    outputs = outputs_of(target, bound[setting], setting, batch)
    assert outputs["token"].tolist() == tokens.tolist()
    assert outputs["mask"].tolist() == mask.tolist()
    assert outputs["rollout_logprob"].tolist() == logprobs.tolist()
    assert outputs["reward"].tolist() == [0.5]


@pytest.mark.parametrize(
    ("setting", "broken"),
    [
        ("a reply tokenized again", {"aligned": "0"}),
        ("a reply tokenized again, forked", {"divisor": "len(rows)"}),
        ("replies repeated", {"divisor": "2"}),
    ],
)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(loads: Loads, setting: str, broken: dict[str, str], found: bool) -> None:
    """Earlier replies that are masked with a later one, and a reward that is shared among samples."""
    target, bound = _bound(loads, **(broken if found else {}))
    check_verdict(PLC004, bound[setting], setting, target, found=found)


def test_round_trip(loads: Loads) -> None:
    target, bound = _bound(loads)
    check_round_trip(target, bound["replies repeated"])
