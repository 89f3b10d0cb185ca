"""The reference: a new module is audited unasked, and no law is broken by the library itself."""

from pathlib import Path

import pytest

import rl_sentinel
import rl_sentinel.laws
import rl_sentinel.signal.advantage.grpo
import rl_sentinel.signal.loss
from rl_sentinel.audit.worker.asking import Asker
from rl_sentinel.audit.worker.judging import canary, search
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.law import Law
from rl_sentinel.core.modules import defined
from rl_sentinel.frameworks.reference import FRAMEWORK
from rl_sentinel.frameworks.target import Target

BUDGET = 24
TARGET = Target(root=Path(rl_sentinel.__file__).parents[1])
FOUND = list(FRAMEWORK.boundaries(TARGET))
LAWS: dict[str, Law] = defined(rl_sentinel.laws, "LAW")
PAIRS = [
    pytest.param(law, boundary, id=f"{law.code} {boundary.path.removeprefix('rl_sentinel.signal.')} {setting}")
    for law in LAWS.values()
    for boundary in FOUND
    if isinstance(boundary, Boundary) and boundary.stage in law.stages and not law.applies(boundary)
    for setting in list(boundary.settings)[:1]
]


def test_everything_is_bound() -> None:
    """Every estimator and loss of the library has a boundary."""
    assert [b.path for b in FOUND if isinstance(b, Unbound)] == []
    paths = {b.path for b in FOUND}
    for package, name in ((rl_sentinel.signal.advantage, "advantages"), (rl_sentinel.signal.loss, "loss")):
        assert {f"{package.__name__}.{m}.{name}" for m in defined(package, name)} <= paths


def test_unknown_parameter_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """An estimator that wants what the adapter does not know fails loudly, and alone."""
    monkeypatch.setattr(rl_sentinel.signal.advantage.grpo, "advantages", lambda horizon: horizon)
    found = list(FRAMEWORK.boundaries(TARGET))
    unbound = [b for b in found if isinstance(b, Unbound)]
    assert [b.path for b in unbound] == ["rl_sentinel.signal.advantage.grpo.advantages"]
    assert "'horizon'" in unbound[0].reason


@pytest.mark.parametrize("boundary", FOUND, ids=lambda b: b.path)
def test_canary(boundary: Boundary) -> None:
    """Each boundary answers with tensors that move."""
    for setting in boundary.settings:
        assert canary(Asker(boundary, {}), setting) == ""


@pytest.mark.parametrize(("law", "boundary"), PAIRS)
def test_no_law_is_broken(law: Law, boundary: Boundary) -> None:
    """The library obeys every law that applies to it."""
    others = {b.path: b for b in FOUND if isinstance(b, Boundary)}
    for setting in boundary.settings:
        judgement = search(law, Asker(boundary, others), setting, seed=0, budget=BUDGET)
        assert judgement.found is None, judgement.found and judgement.found.relation.story
