"""Cases go through JSON and come back the same, non-finite numbers too."""

import json
import math

import pytest
import torch

from rl_sentinel.cases.random import random_case
from rl_sentinel.core.batch import COLUMNS, with_columns
from rl_sentinel.core.case import Case
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.storage import case_as_json, case_from_json


@pytest.mark.parametrize("seed", range(5))
def test_round_trip(seed: int) -> None:
    """All columns, the draw and the seed survive."""
    case = Case(random_case(seed).batch, "x", {"a": 1}, {"row": 2}, 7)
    back = case_from_json(json.loads(json.dumps(case_as_json(case, COLUMNS))))
    assert all(torch.equal(getattr(case.batch, n), getattr(back.batch, n)) for n in COLUMNS)
    assert (back.setting, dict(back.override), dict(back.draw), back.seed) == ("x", {"a": 1}, {"row": 2}, 7)


def test_not_a_number_has_a_word() -> None:
    """JSON has no NaN."""
    case = random_case(1)
    odd = torch.full_like(case.batch.reward, math.nan)
    text = json.dumps(case_as_json(Case(with_columns(case.batch, reward=odd)), ["reward"]), allow_nan=False)
    assert case_from_json(json.loads(text)).batch.reward.isnan().all()


def test_damage_is_told() -> None:
    """A column of the wrong shape is named."""
    data = case_as_json(random_case(1), ["reward"])
    data["batch"]["reward"]["values"] = [1.0]
    with pytest.raises(SentinelError, match=r"case is damaged .*batch\[reward\] has shape \[1\], expected axes B"):
        case_from_json(data)
