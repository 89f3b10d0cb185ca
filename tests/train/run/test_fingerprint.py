"""Which keys of a recipe change a run's numbers."""

import json
import math
from typing import Any

import pytest

from rl_sentinel.train.config.recipe import Recipe, made
from rl_sentinel.train.run.fingerprint import differing, digest
from training import recipe

#: What may differ between those who go on in one folder.
FREE: list[dict[str, Any]] = [
    {"steps": 77},
    {"checkpoint": {"every": 3, "keep": 5}},
    {"rollout": {"url": "http://127.0.0.1:9"}},
]


@pytest.mark.parametrize("more", FREE)
def test_where_how_fast_and_how_long_change_nothing(more: dict[str, Any]) -> None:
    """Nor the folder."""
    assert digest(recipe("a")) == digest(recipe("b", **more))
    assert differing(recipe("a"), recipe("b", **more)) == []


def test_all_else_does() -> None:
    """With its table; and steps where the rate falls towards the last."""
    assert differing(recipe(), recipe(seed=5, rollout={"temperature": 0.5})) == ["rollout.temperature", "seed"]
    assert differing(recipe(), recipe(threads=3)) == ["threads"]
    falling = [recipe(steps=n, update={"schedule": "cosine"}) for n in (3, 4)]
    assert differing(*falling) == ["steps"]
    assert digest(falling[0]) != digest(falling[1])


def test_recipe_that_went_through_json_is_the_same() -> None:
    """Bounds without an end, lists and numbers beside a name."""
    more: dict[str, Any] = {"reward": {"least": -2.0}, "update": {"betas": (0.5, 0.75)}}
    one = recipe(**more, correction={"bounds": ({"name": "truncated", "most": math.inf},)})
    told = json.loads(json.dumps(one.model_dump(mode="json", exclude_none=True)))
    assert digest(made(told, where="here")) == digest(one)


def test_a_default_that_is_written_out_is_the_default() -> None:
    """So that a key of a later release, at its default, makes no other run."""
    assert digest(recipe(rollout={"temperature": 1.0, "merged": True})) == digest(recipe())
    assert isinstance(recipe(), Recipe)
