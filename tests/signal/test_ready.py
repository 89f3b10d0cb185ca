"""What is handed on: advantages of tokens, mini-batches of both storages, and what may still be learned from."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.ready import Ready, prompts_apart, trusted
from rl_sentinel.signal.segments import Segments, packed

NAN = torch.nan
MASK = torch.tensor([[True, False, True], [False, False, False], [True, True, False]])
LENGTH = torch.tensor([3, 1, 2])

OUTCOME = Ready(
    mask=MASK,
    live=torch.tensor([True, True, True]),
    kept=MASK.any(1),
    group=torch.tensor([9, 4, 9]),
    reward=torch.tensor([1.0, 5.0, 0.0]),
    advantage=torch.tensor([0.5, 0.0, -0.5]),
    outcome=True,
)


def test_an_advantage_of_rows_is_put_on_what_trains() -> None:
    """Times the weight of each token; whatever a weight is elsewhere, the number there is exactly 0."""
    assert OUTCOME.token_advantage().tolist() == [[0.5, 0.0, 0.5], [0.0, 0.0, 0.0], [-0.5, -0.5, 0.0]]
    weight = torch.where(MASK, 2.0 + torch.arange(3.0), NAN)
    found = replace(OUTCOME, weight=weight).token_advantage()
    assert found.tolist() == [[1.0, 0.0, 2.0], [0.0, 0.0, 0.0], [-1.0, -1.5, 0.0]]


def test_an_advantage_of_tokens_is_its_own() -> None:
    of_tokens = torch.where(MASK, torch.arange(9.0).view(3, 3), 0.0)
    assert torch.equal(replace(OUTCOME, advantage=of_tokens, outcome=False).token_advantage(), of_tokens)


@pytest.mark.parametrize("stored", ["padded", "packed"])
def test_every_column_is_cut_at_the_same_rows(stored: str) -> None:
    """Prompt 9 has rows 0 and 2: of rows, of tokens, and the mask itself; in order of first rows."""
    wide = {n: torch.arange(9.0).view(3, 3) + k for k, n in enumerate(("kl", "weight", "returns"))}
    kl, weight, returns = wide.values()
    ready = replace(OUTCOME, kl=kl, weight=weight, returns=returns, advantage=kl * 2, outcome=False)
    if stored == "packed":
        kl, weight, returns = (packed(column, length=LENGTH) for column in (kl, weight, returns))
        mask = Segments(packed(MASK, length=LENGTH), LENGTH)
        ready = replace(ready, mask=mask, kl=kl, weight=weight, returns=returns, advantage=kl * 2)
    nine, four = prompts_apart(ready, prompts=1, generator=None)
    assert [part.group.tolist() for part in (nine, four)] == [[9, 9], [4]]
    assert [part.reward.tolist() for part in (nine, four)] == [[1.0, 0.0], [5.0]]
    assert [part.kept.tolist() for part in (nine, four)] == [[True, True], [False]]
    places = [0, 1, 2, 6, 7] if stored == "packed" else [0, 1, 2, 6, 7, 8]
    for name, first in (("kl", 0), ("weight", 1), ("returns", 2)):
        assert getattr(nine, name).flatten().tolist() == [float(n + first) for n in places]
    assert nine.advantage.flatten().tolist() == [2.0 * n for n in places]
    if isinstance(nine.mask, Segments):
        assert nine.mask.length.tolist() == [3, 2]
    else:
        assert torch.equal(nine.mask, MASK[[0, 2]])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"group": torch.tensor([9, 4])}, "group has shape [2], expected [3], as in live"),
        ({"advantage": torch.zeros(3, 3)}, "advantage has shape [3, 3], expected [3], as in live"),
        ({"outcome": False}, "advantage has shape [3], expected [3, 3], as in mask"),
        ({"outcome": 1}, "outcome is 1, expected a bool: True or False"),
        ({"kl": torch.zeros(3, 2)}, "kl has shape [3, 2], expected [3, 3], as in mask"),
        ({"kept": torch.ones(3)}, "kept has dtype float32, expected bool: "),
        ({"mask": MASK[:2]}, "live has shape [3], expected [2], as in mask"),
        ({"mask": Segments(MASK.flatten()[:3], LENGTH[:1])}, "live has shape [3], expected [1], as in mask"),
    ],
)
def test_columns_that_do_not_fit_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as told:
        replace(OUTCOME, **wrong)
    assert str(told.value).startswith(message)


def test_no_prompts_are_refused() -> None:
    with pytest.raises(InputError, match=r"^prompts is 0, expected a whole number of 1 or more$"):
        prompts_apart(OUTCOME, prompts=0, generator=None)


def test_a_response_is_lost_whole_and_once() -> None:
    old, now = torch.where(MASK, -1.0, NAN), torch.where(MASK, -2.0, NAN)
    for ready in (OUTCOME, replace(OUTCOME, advantage=OUTCOME.token_advantage(), outcome=False)):
        found = trusted(ready, now, old, threshold=0.5, denominator=2.0)
        assert found.mask.tolist() == [MASK[0].tolist(), [False] * 3, [False] * 3]  # type: ignore[union-attr]  # padded
        assert found.dropped_fraction.item() == 0.5
        near = trusted(ready, now, old, threshold=1.5, denominator=2.0)
        assert torch.equal(near.mask, MASK)  # type: ignore[arg-type]  # padded
        assert near.dropped_fraction.item() == 0.0
