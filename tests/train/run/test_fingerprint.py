"""Which keys of a recipe change a run's numbers."""

import json
import math
from typing import Any

import pytest

from rl_sentinel.train.config.recipe import Recipe, parse_recipe
from rl_sentinel.train.run.fingerprint import differing_keys, fingerprint
from training import recipe

#: Keys that may change on resume.
FREE: list[dict[str, Any]] = [
    {"steps": 77},
    {"checkpoint": {"every": 3, "keep": 5}},
    {"rollout": {"url": "http://127.0.0.1:9"}},
]


@pytest.mark.parametrize("more", FREE)
def test_free_keys_do_not_change_the_fingerprint(more: dict[str, Any]) -> None:
    assert fingerprint(recipe("a")) == fingerprint(recipe("b", **more))
    assert differing_keys(recipe("a"), recipe("b", **more)) == []


def test_all_other_keys_do() -> None:
    assert differing_keys(recipe(), recipe(seed=5, rollout={"temperature": 0.5})) == ["rollout.temperature", "seed"]
    assert differing_keys(recipe(), recipe(threads=3)) == ["threads"]
    falling = [recipe(steps=n, update={"schedule": "cosine"}) for n in (3, 4)]
    assert differing_keys(*falling) == ["steps"]
    assert fingerprint(falling[0]) != fingerprint(falling[1])


def test_recipe_from_json_has_the_same_fingerprint() -> None:
    more: dict[str, Any] = {"reward": {"least": -2.0}, "update": {"betas": (0.5, 0.75)}}
    one = recipe(**more, correction={"bounds": ({"name": "truncated", "most": math.inf},)})
    dump = json.loads(json.dumps(one.model_dump(mode="json", exclude_none=True)))
    assert fingerprint(parse_recipe(dump, where="here")) == fingerprint(one)


def test_explicit_default_is_the_default() -> None:
    assert fingerprint(recipe(rollout={"temperature": 1.0, "merged": True})) == fingerprint(recipe())
    assert isinstance(recipe(), Recipe)
