"""The losses of SkyRL's JAX engine, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict
from adapters.kit.round_trip import check_calls
from rl_sentinel.adapters.skyrl import FRAMEWORK
from rl_sentinel.adapters.skyrl.tinker_losses import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.masked_token_shifts_signal import LAW as MSK002

LOSSES = """
    import jax
    import jax.numpy as jnp

    def masked(values, weights):
        return -jnp.where(WEIGHTS != 0.0, values * GAIN, jnp.zeros_like(values))

    def cross_entropy_loss(new, weights, old, advantages, limits):
        return masked(new, weights)

    def ppo_loss(new, weights, old, advantages, limits):
        ratio = jnp.exp(RATIO)
        near = jnp.clip(ratio, limits.clip_low_threshold, limits.clip_high_threshold)
        return masked(jnp.minimum(ratio * advantages, near * advantages), weights)

    def cispo_loss(new, weights, old, advantages, limits):
        near = jnp.clip(jnp.exp(RATIO), limits.clip_low_threshold, limits.clip_high_threshold)
        return masked(STOPPED * new * advantages, weights)
"""

SOUND = {"WEIGHTS": "weights", "GAIN": "weights", "RATIO": "new - old", "STOPPED": "jax.lax.stop_gradient(near)"}


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    code = LOSSES
    for place, text in {**SOUND, **broken}.items():
        code = code.replace(place, text)
    target = loads(FRAMEWORK, {"skyrl/tinker/loss_fns.py": code})
    made = [one for one in boundaries(target) if isinstance(one, Boundary)]
    return target, {f"{one.path.rpartition('.')[2]}, {setting}": one for one in made for setting in one.settings}


def test_all_boundaries_answer(loads: Loads) -> None:
    """JAX is absent, and a loss that the release lacks has no boundary."""
    target, made = _bound(loads)
    assert list(made) == [
        "cross_entropy_loss, default",
        "cross_entropy_loss, weights of a half",
        "ppo_loss, default",
        "cispo_loss, default",
    ]
    check_calls(target, made.values())


CASES: list[tuple[Law, str, dict[str, str]]] = [
    (MSK002, "cross_entropy_loss, default", {"WEIGHTS": "(1.0 + weights)", "GAIN": "1.0"}),
    (REF001, "cross_entropy_loss, weights of a half", {"GAIN": "1.0"}),
    (REF001, "ppo_loss, default", {"RATIO": "old - new"}),
    (REF001, "cispo_loss, default", {"STOPPED": "near"}),
]


@pytest.mark.parametrize(("law", "name", "broken"), CASES)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(loads: Loads, law: Law, name: str, broken: dict[str, str], found: bool) -> None:
    """A mask that selects all tokens, weights without effect, the inverse ratio, a gradient through the clip."""
    target, made = _bound(loads, **(broken if found else {}))
    check_verdict(law, made[name], name.partition(", ")[2], target, found=found)
