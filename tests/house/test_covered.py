"""``audit rl_sentinel`` has a boundary for every public function of ``signal``, or reaches it through another's."""

import importlib
import inspect
import pkgutil
import sys
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from sound_arguments import PUBLIC, arguments
from test_oracle import _public
from test_wrong_kinds import MORE

import rl_sentinel
from rl_sentinel import signal
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.frameworks.reference import boundaries
from rl_sentinel.frameworks.target import Target
from rl_sentinel.signal import merging

#: Function without a boundary of its own, a part of others -> one that has, and reaches it.
REACHED: Mapping[str, str] = {
    "blocks.by_rows": "correction.trust.off_policy_sequences_kept",
    "checks.answered": "kl.k1",
    "checks.checked": "kl.k1",
    "checks.finite": "advantage.grpo.advantages",
    "checks.instance": "path.loss_ready",
    "checks.kinds": "kl.k1",
    "checks.ordered": "reward.clipped",
    "checks.possible": "advantage.optimal_token_baseline.advantages",
    "checks.probabilities": "loss.dppo_kl.loss",
    "checks.within": "advantage.grpo.advantages",
    "path.is_outcome": "path.loss_ready",
    "ratios.exponential": "loss.ppo.loss",
    "ratios.traced": "loss.ppo.loss",
    "ratios.weighed": "loss.ppo.loss",
    "scan.put_back": "advantage.gae.advantages",
    "segments.lengths": "segments.packed",
    "segments.trained": "kl.k1",
}


#: Method of a public class -> a boundary that calls it, or that of a function which does.
METHODS: Mapping[str, str] = {
    "controller.Adaptive.after": "controller.Adaptive",
    "controller.Fixed.after": "controller.Adaptive",
    "ready.Ready.token_advantage": "path.loss_ready",
    "reduce.Aggregation.of_rows": "reduce.aggregate",
    "reduce.Aggregation.shares": "reduce.aggregate",
}


def _sound(name: str) -> Callable[[], object]:
    """A call of a public function that is taken."""
    call, given = (PUBLIC[name], arguments(name)) if name in PUBLIC else MORE[name.rpartition(".")[2]]
    return lambda: call(**given)


def _entered(call: Callable[[], object]) -> set[CodeType]:
    """Code that a call runs through."""
    found: set[CodeType] = set()

    def seen(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            found.add(frame.f_code)

    sys.setprofile(seen)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def test_every_function_is_covered() -> None:
    """A new one as well: it is found by its signature, or a name here says what reaches it."""
    target = Target(root=Path(rl_sentinel.__file__).parents[1])
    found = [b for b in boundaries(target) if isinstance(b, Boundary)]
    paths = {b.path.partition(" ")[0].removeprefix("rl_sentinel.signal.") for b in found}
    # The boundary of merging hands over what is counted beside it.
    covered = paths | {"merging.counts" for b in found if set(merging.counts([], [])) < set(b.outputs)}
    assert _public() - covered == set(REACHED)
    assert {*REACHED.values(), *METHODS.values()} <= covered


def test_functions_stand_where_they_are_looked_for() -> None:
    """At the top of a module, by ``def``: one under a condition, or that is another with numbers filled in, is none."""
    for module in pkgutil.walk_packages(signal.__path__, f"{signal.__name__}."):
        found = vars(importlib.import_module(module.name))
        path = module.name.removeprefix(f"{signal.__name__}.")
        own = {
            name
            for name, value in found.items()
            if not name.startswith("_") and callable(value) and not isinstance(value, type)
            if getattr(value, "__module__", module.name) in {module.name, "functools"}
            if typing.get_origin(value) is None
        }
        assert {f"{path}.{name}" for name in own} <= _public(), module.name


def test_every_method_is_covered() -> None:
    """Of public classes; properties and what dataclasses make are none."""
    found = set()
    for module in pkgutil.walk_packages(signal.__path__, f"{signal.__name__}."):
        for name, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if kind.__module__ == module.name and not name.startswith("_"):
                path = f"{module.name.removeprefix(f'{signal.__name__}.')}.{name}"
                found |= {f"{path}.{m}" for m, f in vars(kind).items() if inspect.isfunction(f) and m[0] != "_"}
    assert found == set(METHODS)


@pytest.mark.parametrize("name", REACHED)
def test_a_part_is_reached(name: str) -> None:
    """A sound call of the one that has a boundary runs through it."""
    module, _, function = name.rpartition(".")
    code = getattr(importlib.import_module(f"rl_sentinel.signal.{module}"), function).__code__
    assert code in _entered(_sound(REACHED[name]))
