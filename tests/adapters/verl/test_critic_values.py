"""The padding of the critic's values: GAE and the dispatch are given them as the critic returns them."""

import pytest
import torch

from adapters.checks import Loads, bound
from adapters.verl_specimen import files
from rl_sentinel.adapters.kit.execution import execute, inputs_of
from rl_sentinel.adapters.verl import FRAMEWORK
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.case import Case

CORE = "verl/trainer/ppo/core_algos.py"
CRITIC = "verl/workers/critic/dp_critic.py"


@pytest.mark.parametrize(
    ("critic", "expected"),
    [
        ("", [[1.0, 2.0, 0.0], [4.0, 5.0, 6.0]]),
        ("kept = values * attention_mask[:, -response_length:]", [[1.0, 2.0, 0.0], [4.0, 5.0, 6.0]]),
        ("kept = values * attention_mask[:, -response_length - 1:-1]", [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
        ("kept = values * attention_mask[:, -response_length - 1 : -1]", [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
    ],
)
@pytest.mark.parametrize("place", [("compute_gae_advantage_return", "discounted"), ("compute_advantage", "gae")])
def test_padding_of_values(loads: Loads, critic: str, expected: list[list[float]], place: tuple[str, str]) -> None:
    """0, except where the critic multiplies by the mask of the positions before the tokens."""
    core = files()[CORE].replace("return (later - values) * response_mask, later", "return values, values")
    texts = files() | {CORE: core} | ({CRITIC: f"'''{critic}'''"} if critic else {})
    target = loads(FRAMEWORK, texts)
    boundary = bound(FRAMEWORK, target)[place]
    mask = torch.tensor([[True, True, False], [True, True, True]])
    values = torch.arange(1.0, 7.0).reshape(2, 3)
    case = Case(batch_of(mask, value=values, length=torch.tensor([2, 3])), place[1])
    answer = execute(target, boundary, inputs_of(boundary, case)).values["advantage"]
    assert answer.tolist() == expected
