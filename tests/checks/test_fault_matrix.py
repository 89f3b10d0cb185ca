"""Twelve classes of faults in each of ten layouts are found at their functions; sound ones have at most MSK001."""

import pytest

import rl_sentinel
from checks.fault_matrix import CLASSES
from checks.object_faults import MODULES as OBJECTS
from checks.tensor_faults import MODULES as TENSORS

MODULES = {**TENSORS, **OBJECTS}

#: Faults that are tried in every run of the tests.
QUICK = {("[G, K]", "denominator"), ("dataclass", "direction of a KL")}


def test_each_layout_has_a_fault_of_each_class() -> None:
    assert len(MODULES) == 10
    assert {layout for layout, module in MODULES.items() if module.faults.keys() != CLASSES} == set()


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "name"), [(key, name) for key, module in MODULES.items() for name in module.checks])
def test_sound_functions_have_no_finding(layout: str, name: str) -> None:
    module = MODULES[layout]
    result = rl_sentinel.check(module.function(name), **module.checks[name])
    assert (result.ok, {finding.code for finding in result.findings} - {"MSK001"}) == (True, set()), result


@pytest.mark.parametrize(
    ("layout", "fault"),
    [
        pytest.param(layout, fault, marks=() if (layout, fault) in QUICK else pytest.mark.slow)
        for layout, module in MODULES.items()
        for fault in module.faults
    ],
)
def test_planted_faults_are_found(layout: str, fault: str) -> None:
    module = MODULES[layout]
    name = module.faults[fault][0]
    assert rl_sentinel.check(module.function(name, fault), **module.checks[name]).faults
