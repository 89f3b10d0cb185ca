"""The warm start: learned once, kept in the cache."""

from pathlib import Path

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.config.selection import selected
from rl_sentinel.train.model.policy import Policy, from_scratch
from rl_sentinel.train.run.warm_start import key, started
from training import kept_in, recipe

WARM = {"steps": 150, "rows": 16, "rate": 1e-2}


def _started(home: Path, wanted: Recipe) -> tuple[Policy, int]:
    told: list[int] = []
    policy = from_scratch(wanted)
    started(policy, selected(wanted).environment, wanted, kept=kept_in(home), told=lambda done, _: told.append(done))
    return policy, len(told)


def test_policy_learns_what_is_shown_once(tmp_path: Path) -> None:
    """A sign after any letter; the second time it comes from the cache, for another seed of the run too."""
    wanted = recipe(warm=WARM)
    policy, steps = _started(tmp_path, wanted)
    sign = policy.text.ids("=")
    logits = policy(torch.tensor([policy.text.ids("a") + sign]))[0]
    assert steps == 150
    assert logits.argmax(1).tolist() == [*sign, policy.end]
    again, none = _started(tmp_path, recipe(warm=WARM, seed=5))
    assert none == 0
    assert torch.equal(again.model.state_dict()["lm_head.weight"], policy.model.state_dict()["lm_head.weight"])


def test_no_gradient_is_left(tmp_path: Path) -> None:
    """Learned anew or from the cache: an optimizer that is taken up from a checkpoint must find none."""
    for _ in range(2):
        policy, _ = _started(tmp_path, recipe(warm={"steps": 2, "rows": 2, "rate": 1e-2}))
        assert all(weight.grad is None for weight in policy.model.parameters())


def test_ruined_warm_start_is_not_kept(tmp_path: Path) -> None:
    """The rate is named."""
    with pytest.raises(SentinelError, match=r"^warm.rate is 1e\+30, expected one that leaves numbers: "):
        _started(tmp_path, recipe(warm={"steps": 3, "rows": 2, "rate": 1e30}))
    assert not list(tmp_path.rglob("weights.pt"))


def test_key_answers_to_what_a_warm_start_depends_on() -> None:
    """Sizes, numbers, the environment; not the reinforcement."""
    base = recipe(warm=WARM)
    same = recipe(warm=WARM, seed=1, steps=9)
    others = [recipe(warm={**WARM, "steps": 151}), recipe(warm=WARM, policy={"hidden": 8})]
    others.append(recipe(warm=WARM, environment={"name": "training:Letter", "letters": "abc"}))

    def known(wanted: Recipe) -> str:
        return key(wanted, selected(wanted).environment)

    assert known(base) == known(same)
    assert len({known(base), *map(known, others)}) == 4
    assert key(base, selected(recipe(environment={"name": "sort"})).environment) != known(base)


def test_environment_without_a_warm_start_is_told(tmp_path: Path) -> None:
    """In one line."""
    with pytest.raises(
        SentinelError, match=r"environment training:Twice has no warm\(\), expected one where warm is asked"
    ):
        _started(tmp_path, recipe(warm=WARM, environment={"name": "training:Twice"}, rollout={"turns": 2}))
