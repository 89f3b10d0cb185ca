"""The warm start is trained once and cached."""

from pathlib import Path

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.config.selection import select_components
from rl_sentinel.train.model.policy import Policy, init_policy
from rl_sentinel.train.run.warm_start import cache_key, warm_start
from training import folder_cache, recipe

WARM = {"steps": 150, "rows": 16, "rate": 1e-2}


def _warm_start(home: Path, config: Recipe) -> tuple[Policy, int]:
    steps: list[int] = []
    policy = init_policy(config)
    warm_start(
        policy,
        select_components(config).environment,
        config,
        cache=folder_cache(home),
        progress=lambda done, _: steps.append(done),
    )
    return policy, len(steps)


@pytest.mark.slow
@pytest.mark.on_cpu
def test_policy_learns_the_demonstrations_once(tmp_path: Path) -> None:
    config = recipe(warm=WARM)
    policy, steps = _warm_start(tmp_path, config)
    sign = policy.tokenizer.encode("=")
    logits = policy(torch.tensor([policy.tokenizer.encode("a") + sign]))[0]
    assert steps == 150
    assert logits.argmax(1).tolist() == [*sign, policy.ends[0]]
    again, repeated = _warm_start(tmp_path, recipe(warm=WARM, seed=5))
    assert repeated == 0
    assert torch.equal(again.model.state_dict()["lm_head.weight"], policy.model.state_dict()["lm_head.weight"])


def test_no_gradient_is_left(tmp_path: Path) -> None:
    for _ in range(2):
        policy, _ = _warm_start(tmp_path, recipe(warm={"steps": 2, "rows": 2, "rate": 1e-2}))
        assert all(weight.grad is None for weight in policy.model.parameters())


def test_non_finite_weights_are_not_cached(tmp_path: Path) -> None:
    with pytest.raises(
        SentinelError, match=r"^warm.rate is 1e\+30, expected a lower rate: after the warm start a weight"
    ):
        _warm_start(tmp_path, recipe(warm={"steps": 3, "rows": 2, "rate": 1e30}))
    assert not list(tmp_path.rglob("weights.pt"))


def test_cache_key_has_all_dependencies() -> None:
    base = recipe(warm=WARM)
    same = recipe(warm=WARM, seed=1, steps=9)
    others = [recipe(warm={**WARM, "steps": 151}), recipe(warm=WARM, policy={"hidden": 8})]
    others.append(recipe(warm=WARM, environment={"name": "training:Letter", "letters": "abc"}))

    def key(config: Recipe) -> str:
        return cache_key(config, select_components(config).environment)

    assert key(base) == key(same)
    assert len({key(base), *map(key, others)}) == 4
    environment = select_components(base).environment
    assert cache_key(base, select_components(recipe(environment={"name": "sort"})).environment) != key(base)
    assert len({cache_key(base, environment, loaded) for loaded in ("", "one", "other")}) == 3
