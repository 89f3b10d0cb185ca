"""``audit rl_sentinel`` has a boundary for every public function of ``signal``, or reaches it through another's."""

import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from sound_arguments import PUBLIC, arguments
from test_oracle import _public
from test_wrong_kinds import MORE

import rl_sentinel
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
    assert set(REACHED.values()) <= covered


@pytest.mark.parametrize("name", REACHED)
def test_a_part_is_reached(name: str) -> None:
    """A sound call of the one that has a boundary runs through it."""
    module, _, function = name.rpartition(".")
    code = getattr(importlib.import_module(f"rl_sentinel.signal.{module}"), function).__code__
    assert code in _entered(_sound(REACHED[name]))
