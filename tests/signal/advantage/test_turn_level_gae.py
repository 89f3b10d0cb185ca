"""GAE of turns: what a step is, and that it is GAE of tokens where each turn has one."""

import pytest
import torch

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.advantage import gae
from rl_sentinel.signal.advantage.turn_level_gae import advantages, turn_values
from rl_sentinel.signal.segments import Segments, packed

#: Turns 4, 7 and 9 of the first row, with a tool between 4 and 7 and a masked token within 9; one turn of the second.
MASK = torch.tensor([[1, 1, 0, 1, 1, 0, 1], [1, 1, 0, 0, 0, 0, 0]]).bool()
TURN = torch.tensor([[4, 4, 0, 7, 9, 1, 9], [2, 2, 0, 0, 0, 0, 0]])
NAN = torch.nan


def test_by_hand() -> None:
    """Differences 1 - 1/2, 2 + 1/2 * 2 - 1 and 1/2 * 1 - 1/4 with discount 1/2, each faded by 1/4 per turn."""
    reward = torch.tensor([[-0.5, 0.5, NAN, 2.0, 0.25, NAN, 0.75], [1.0, 1.0, NAN, NAN, NAN, NAN, NAN]])
    value = torch.tensor([[0.25, 9.0, NAN, 1.0, 2.0, NAN, 9.0], [1.5, 9.0, NAN, NAN, NAN, NAN, NAN]])
    found = advantages(reward, value, mask=MASK, turn=TURN, discount=0.5, decay=0.5)
    last = 1.0 - 2.0
    second = 2.0 + 0.5 * 2.0 - 1.0 + 0.25 * last
    first = 0.5 * 1.0 - 0.25 + 0.25 * second
    assert found[0].tolist() == [first, first, 0.0, second, last, 0.0, last]
    assert found[1].tolist() == [0.5, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0]
    judged = turn_values(value, mask=MASK, turn=TURN)
    assert judged[0].tolist() == [0.25, 0.25, 0.0, 1.0, 2.0, 0.0, 2.0]


def test_turns_of_one_token_are_tokens() -> None:
    draw = torch.Generator().manual_seed(0)
    mask, turn = torch.rand(7, 40, generator=draw) < 0.7, torch.arange(40).expand(7, 40)
    mask[3] = False
    reward, value = torch.randn(2, 7, 40, generator=draw, dtype=torch.float64)
    how = {"discount": 0.9, "decay": 0.8}
    expected = gae.advantages(reward, value, mask=mask, **how)
    torch.testing.assert_close(advantages(reward, value, mask=mask, turn=turn, **how), expected, rtol=0, atol=1e-12)
    length = torch.where(mask.any(1), 40, 0)
    reward, value, turn, expected = (packed(x, length=length) for x in (reward, value, turn, expected))
    segments = Segments(packed(mask, length=length), length)
    found = advantages(reward, value, mask=segments, turn=turn, **how)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_length_of_a_turn_does_not_count() -> None:
    how = {"discount": 0.9, "decay": 0.8}
    reward, value, two = torch.tensor([[0.0, 1.0]]), torch.tensor([[0.25, 0.5]]), torch.ones(1, 2).bool()
    short = advantages(reward, value, mask=two, turn=torch.tensor([[0, 1]]), **how)
    turn = torch.arange(30).unsqueeze(0) // 10
    reward, value = torch.zeros(1, 30), torch.full((1, 30), 77.0)
    reward[0, -1], value[0, 0], value[0, 20] = 1.0, 0.25, 0.5
    found = advantages(reward, value, mask=turn != 1, turn=turn, **how)
    assert found[0, :10].tolist() == [short[0, 0].item()] * 10
    assert found[0, 20:].tolist() == [short[0, 1].item()] * 10


def test_rewards_of_a_long_turn_do_not_drift() -> None:
    """The sum of 50,000 tenths of float32, which are added up one after the other, to its last bits."""
    ones = torch.full((1, 50_000), 0.1)
    told = {"mask": torch.ones_like(ones).bool(), "turn": torch.zeros_like(ones).long()}
    found = advantages(ones, torch.zeros_like(ones), **told, discount=1.0, decay=1.0)
    assert found[0, 7].item() == pytest.approx(5000.0, rel=2**-22)


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (2, 4)])
def test_nothing_trained(shape: tuple[int, int]) -> None:
    nothing = torch.full(shape, NAN)
    told = {"mask": torch.zeros(shape).bool(), "turn": torch.zeros(shape).long()}
    assert torch.equal(advantages(nothing, nothing, **told, discount=1.0, decay=1.0), torch.zeros(shape))
    assert torch.equal(turn_values(nothing, **told), torch.zeros(shape))


def test_refusals() -> None:
    zeros, how = torch.zeros(2, 3), {"discount": 1.0, "decay": 1.0}
    mask, turn = torch.tensor([[True, True, True], [True, False, True]]), torch.tensor([[0, 0, 2], [5, 9, 3]])
    told = (
        r"^turn falls from 5 to 3 in row 1, expected numbers that never fall along a row: a later token belongs to the "
        r"same turn or a later one$"
    )
    with pytest.raises(InputError, match=told):
        advantages(zeros, zeros, mask=mask, turn=turn, **how)
    segments = Segments(mask.flatten(), torch.tensor([3, 3]))
    with pytest.raises(InputError, match=told):
        turn_values(zeros.flatten(), mask=segments, turn=turn.flatten())
    turn[1] = 5
    value = zeros.clone()
    value[0, 1] = value[1, 2] = NAN
    assert advantages(zeros, value, mask=mask, turn=turn, **how).tolist() == zeros.tolist()
    value[1, 0] = torch.inf
    with pytest.raises(InputError, match=r"^value\[1, 0\] is inf, expected a finite number"):
        advantages(zeros, value, mask=mask, turn=turn, **how)
    with pytest.raises(InputError, match=r"^token_reward\[0, 1\] is nan, expected a finite number"):
        advantages(torch.tensor([[0.0, NAN, 0.0], [0.0, NAN, 0.0]]), zeros, mask=mask, turn=turn, **how)
    with pytest.raises(InputError, match=r"^decay is 1\.5, expected a number of 0 or more and at most 1$"):
        advantages(zeros, zeros, mask=mask, turn=turn, discount=1.0, decay=1.5)
