"""A bound ``token_reward`` has the outcome wherever it is bound, unless something else carries it."""

from typing import Any

import pytest
import torch

from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.user_arguments import arguments_of
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.codec import Inputs

MASK = torch.tensor([[True, True, False], [True, True, True]])
BATCH = batch_of(
    MASK,
    reward=torch.tensor([1.0, 2.0]),
    length=torch.tensor([2, 3]),
    token_reward=torch.tensor([[0.5, 0.0, 0.0], [0.0, 0.25, 0.0]]),
)
RAW = [[0.5, 0.0, 0.0], [0.0, 0.25, 0.0]]
WITH_OUTCOME = [[0.5, 1.0, 0.0], [0.0, 0.25, 2.0]]


def of_dict(batch: Any) -> Any:
    return batch["gains"] * batch["mask"]


def of_outcome(batch: Any) -> Any:
    return batch["gains"] + batch["rewards"]


def of_both(gains: Any, batch: Any) -> Any:
    return gains + batch["rewards"]


def of_rows(items: Any) -> Any:
    return [item["gains"] for item in items]


def _gains(function: Any, bind: dict[str, Any]) -> Any:
    parameter = next(iter(bind)).partition(".")[0]
    value = arguments_of(function, "advantage", bind).codecs[parameter].put(Inputs(BATCH))
    if isinstance(value, list):
        return [item["gains"].tolist() for item in value]
    return (value if isinstance(value, torch.Tensor) else value["gains"]).tolist()


@pytest.mark.parametrize(
    ("function", "bind"),
    [
        (lambda gains: gains, {"gains": "token_reward"}),
        (lambda gains: gains, {"gains": lambda batch: batch.token_reward}),
        (of_dict, {"batch": {"gains": "token_reward", "mask": "mask"}}),
        (of_dict, {"batch": lambda batch: {"gains": batch.token_reward, "mask": batch.mask}}),
        (of_dict, {"batch": {"gains": lambda batch: batch.token_reward, "mask": "mask"}}),
        (of_dict, {"batch.gains": "token_reward"}),
        (of_dict, {"batch.gains": "token_reward[B T]", "batch.mask": "mask"}),
    ],
)
def test_the_outcome_is_at_the_last_token(function: Any, bind: dict[str, Any]) -> None:
    assert _gains(function, bind) == WITH_OUTCOME
    assert "reward" in next(iter(arguments_of(function, "advantage", bind).codecs.values())).columns


@pytest.mark.parametrize("bind", [{"items": [{"gains": "token_reward"}]}, {"items.gains": "token_reward"}])
def test_items_of_a_list_have_it_too(bind: dict[str, Any]) -> None:
    assert _gains(of_rows, bind) == [[0.5, 1.0], [0.0, 0.25, 2.0]]


@pytest.mark.parametrize(
    ("function", "bind"),
    [
        (of_both, {"gains": "token_reward"}),
        (of_outcome, {"batch.gains": "token_reward"}),
        (of_outcome, {"batch": {"gains": "token_reward", "rewards": ...}}),
        (lambda gains, rewards: gains + rewards, {"gains": "token_reward"}),
        (lambda gains, mine: gains + mine, {"gains": "token_reward", "mine": Column("reward")}),
        (lambda gains, mine: gains + mine, {"gains": "token_reward", "mine": lambda batch: batch.reward}),
        (lambda gains, mine: gains + mine, {"gains": "token_reward", "mine": {"x": "reward"}}),
    ],
)
def test_what_has_the_outcome_beside_it_is_the_raw_column(function: Any, bind: dict[str, Any]) -> None:
    assert _gains(function, bind) == RAW
