"""What the tests of every adapter ask: all boundaries bound, all answer, a law's verdict at one."""

from collections.abc import Callable, Iterable, Mapping

from torch import Tensor

from rl_sentinel.adapters.framework import Framework
from rl_sentinel.adapters.kit.execution import execute, inputs_of
from rl_sentinel.adapters.target import Target
from rl_sentinel.audit.engine.executor import Asker
from rl_sentinel.audit.engine.judge import Judgment, names_of_expectations, search, smoke_check
from rl_sentinel.audit.sandbox.request import LEADING_CASES
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.case import Case
from rl_sentinel.core.errors import NotApplicable
from rl_sentinel.core.law import Law

#: The fixture ``loads``: it writes a tree and loads the framework's package from it.
Loads = Callable[..., Target]


def rewritten(source: str, words: Mapping[str, str]) -> str:
    """The source of a specimen, with code in the place of its words."""
    for word, code in words.items():
        source = source.replace(word, code)
    return source


def bound(framework: Framework, target: Target) -> dict[tuple[str, str], Boundary]:
    """(last word of the path, setting) to boundary; none may be unbound, no pair twice."""
    found = list(framework.boundaries(target))
    assert [b.reason for b in found if isinstance(b, Unbound)] == []
    pairs = [((b.path.rpartition(".")[2], s), b) for b in found if isinstance(b, Boundary) for s in b.settings]
    paths = [(b.path, s) for (_, s), b in pairs]
    assert len(set(paths)) == len(paths)
    return dict(pairs)


def the_only(found: Iterable[Boundary | Unbound]) -> Boundary:
    """The one boundary, where nothing else is found."""
    (boundary,) = found
    assert isinstance(boundary, Boundary), boundary
    return boundary


def the_bound(found: Iterable[Boundary | Unbound]) -> Boundary:
    """The one boundary among what may be unbound."""
    return the_only(one for one in found if isinstance(one, Boundary))


def by_setting(found: Iterable[Boundary | Unbound]) -> dict[str, Boundary]:
    """Setting to boundary; some may be unbound."""
    return {setting: one for one in found if isinstance(one, Boundary) for setting in one.settings}


def answering(boundaries: dict[tuple[str, str], Boundary], target: Target | None = None) -> list[tuple[str, str]]:
    """The pairs that do not answer on any small case, or whose outputs never move."""
    silent = []
    for (name, setting), boundary in boundaries.items():
        ask = Asker(boundary, {}, gate=target)
        try:
            reason = smoke_check(ask, setting)
        except NotApplicable as words:
            reason = str(words)
        if reason:
            silent.append((name, reason))
    return silent


def outputs_of(target: Target, boundary: Boundary, setting: str, batch: Batch) -> dict[str, Tensor]:
    """The outputs of a boundary on one batch, under one of its settings."""
    return execute(target, boundary, inputs_of(boundary, Case(batch, setting=setting))).values


def judged_at(law: Law, boundary: Boundary, setting: str, target: Target | None = None) -> Judgment:
    """The law searched at one boundary under one of its settings, on the cases that an audit tries by default."""
    assert law.applies(boundary) == ""
    return search(law, Asker(boundary, {}, gate=target), setting, seed=0, budget=LEADING_CASES)


def check_verdict(law: Law, boundary: Boundary, setting: str, target: Target | None = None, *, found: bool) -> None:
    """The law is tried at the boundary under this setting, and finds a fault if and only if ``found``."""
    assert setting in boundary.settings  # judged_at would call it with defaults
    judgement = judged_at(law, boundary, setting, target)
    assert judgement.tried > 0
    assert (judgement.found is not None) is found


def broken_outputs(law: Law, boundary: Boundary, setting: str, target: Target) -> tuple[str, ...]:
    """The names of the expectations of the law that break at one setting; it is tried there."""
    judgement = judged_at(law, boundary, setting, target)
    assert judgement.tried > 0
    if judgement.found is None:
        return ()
    return names_of_expectations(law, Asker(boundary, {}, gate=target), judgement.found, judgement.later)[0]


def settings_found(law: Law, boundaries: Mapping[str, Boundary], target: Target) -> set[str]:
    """The settings, with the boundary of each, at which the law finds a fault; it is tried at all."""
    judgements = {name: judged_at(law, boundary, name, target) for name, boundary in boundaries.items()}
    assert all(judgement.tried for judgement in judgements.values())
    return {name for name, judgement in judgements.items() if judgement.found is not None}
