"""The values that verl lists for its settings, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, the_bound
from adapters.kit.round_trip import check_round_trips
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, kl, listed_options
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.listed_option_refused import LAW as CFG005

CORE = "verl/trainer/ppo/core_algos.py"

#: A look-up in a registry, and an enumeration of its names.
LOOK_UP = """
    from enum import Enum

    class AdvantageEstimator(str, Enum):
        GRPO = "grpo"
        OPO = "opo"

    def get_adv_estimator_fn(name):
        if name not in ADV_ESTIMATOR_REGISTRY:
            raise ValueError(f"unknown estimator: {name}")
        return ADV_ESTIMATOR_REGISTRY[name]
"""


def _kinds(loads: Loads, page: str, dispatch: str) -> tuple[Target, Boundary]:
    tree = files()
    tree["docs/algo/ppo.md"] = page
    tree[CORE] = tree[CORE].replace('"abs": d.abs()', f'"abs": d.abs(){dispatch}')
    target = loads(FRAMEWORK, tree)
    made = [b for b in kl.boundaries(target) if isinstance(b, Boundary) and b.claims.options]
    assert len(made) == 1
    return target, made[0]


@pytest.mark.parametrize(("dispatch", "found"), [("", True), (', "k3+": -d', False)])
def test_names_of_a_page(loads: Loads, dispatch: str, found: bool) -> None:
    """A page of a checkout lists names; each must be known to the function."""
    page = "- `algorithm.kl_ctrl`: 'fixed'\n- `actor_rollout_ref.actor.kl_loss_type`: 'abs', or with a sign 'k3+'\n"
    target, boundary = _kinds(loads, page, dispatch)
    assert boundary.claims.options[0].values == ("abs", "k3+")
    check_verdict(CFG005, boundary, "kl", target, found=found)


def test_nothing_is_listed(loads: Loads) -> None:
    target = loads(FRAMEWORK, files())
    assert not any(b.claims.options for b in kl.boundaries(target) if isinstance(b, Boundary))


@pytest.mark.parametrize(("registered", "found"), [("OPO = 'opo'", True), ("GRPO_AGAIN = 'grpo'", False)])
def test_an_enumeration(loads: Loads, registered: str, found: bool) -> None:
    """Each member of the enumeration is registered, or an option that exists only on paper."""
    tree = files()
    registry = 'ADV_ESTIMATOR_REGISTRY = {"grpo": compute_grpo_outcome_advantage}'
    look_up = LOOK_UP.replace('OPO = "opo"', registered)
    tree[CORE] += look_up + f"\n    {registry}\n"
    target = loads(FRAMEWORK, tree)
    boundary = the_bound(listed_options.boundaries(target))
    check_round_trips(target, [boundary])
    check_verdict(CFG005, boundary, "default", target, found=found)
