"""Check one law at one boundary: smoke check, search for a counterexample, shrinking, verdict."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product

import torch

from rl_sentinel.audit.engine.executor import Asker
from rl_sentinel.audit.engine.float64_check import is_rounding
from rl_sentinel.core.batch import COLUMNS, Batch
from rl_sentinel.core.case import Case
from rl_sentinel.core.errors import Crashed, NotApplicable, Refused
from rl_sentinel.core.expectations import Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.search.case_selection import FIXED_SEED, all_cases, leading_cases, selection
from rl_sentinel.search.companion_cases import Domain, companion_pool, inside_domain
from rl_sentinel.search.random_cases import random_cases
from rl_sentinel.search.shrinking import shrunk
from rl_sentinel.search.small_cases import small_cases
from rl_sentinel.search.transforms import moved


@dataclass(frozen=True, slots=True, eq=False)
class Break:
    """A broken expectation, with its case and its distance."""

    case: Case
    expectation: Expectation
    distance: float
    allowed: float


@dataclass(frozen=True, slots=True)
class Judgment:
    """The result of a search for a counterexample.

    Attributes:
        tried: number of cases that were compared.
        found: the counterexample, or None.
        reason: why no case was compared; may be empty.
        later: for a law that fails ``"on-one-case"``, the first broken case and the leading cases after it.
    """

    tried: int
    found: Break | None
    reason: str = ""
    later: Sequence[Case] = ()


def prepare(pairs: Iterable[tuple[Law, Domain]], seed: int, budget: int) -> None:
    """Create the cases of laws, each within a boundary's domain, once, before child processes are forked."""
    companion_pool()
    for (law, domain), long_run in product(dict.fromkeys(pairs), (False, True)):
        with suppress(Exception):  # a law that cannot create its cases is reported when it is checked
            selection(law, seed, budget, domain, long_run=long_run)


def search(  # noqa: PLR0913 - what decides the cases
    law: Law, ask: Asker, setting: str, *, seed: int, budget: int, long_run: bool = False
) -> Judgment:
    """Check the law on the cases of its selection, until one breaks it or enough are compared.

    A law that fails only ``"on-all-cases"`` is checked until one case holds.

    Raises:
        Crashed: if the target crashed on a case, and no other case breaks the law (or, for ``"on-all-cases"``, holds).
    """
    tried, first = 0, None
    raised: list[Exception] = []
    _cache_shared(ask, seed, budget)
    selected = selection(law, seed, budget, ask.boundary.domain, long_run=long_run)
    cases = [replace(varied, setting=setting) for varied in selected.cases]
    for number, case in enumerate(cases):
        if law.fails == "on-one-case" and selected.is_enough(number, tried):
            break
        result = _result_of(law, ask, case)
        if isinstance(result, Exception):
            raised.append(result)
            continue
        if result is None:
            continue
        tried += 1
        if isinstance(result, Break):
            first = first or result
            if law.fails == "on-one-case":
                later = cases[number : max(number + 1, selected.leading)]
                return Judgment(tried, _worst(law, ask, result, later[1:]), later=later)
        elif law.fails == "on-all-cases":
            return Judgment(tried, None)  # one case that holds is enough
    return Judgment(tried, first) if first else _no_break(tried, raised)


def _no_break(tried: int, raised: list[Exception]) -> Judgment:
    """The judgment of a law that no case breaks; if no case was compared, its reason is the first exception.

    Raises:
        Crashed: if the target crashed on a case.
    """
    for error in raised:
        if isinstance(error, Crashed):
            raise error
    if tried:
        return Judgment(tried, None)
    return Judgment(0, None, str(raised[0]) if raised else "no case meets the law's precondition")


def _worst(law: Law, ask: Asker, first: Break, cases: Iterable[Case]) -> Break:
    """The first later break with the level fault, if the level at a user's function depends on the case.

    Otherwise, or without such a break, ``first``.
    """
    if not ask.boundary.own or law.own_level is None or law.own_level(first.case) == "fault":
        return first
    later = (result for case in cases if isinstance(result := _result_of(law, ask, case), Break))
    return next((b for b in later if law.own_level(b.case) == "fault"), first)


def names_of_expectations(
    law: Law, ask: Asker, found: Break, later: Iterable[Case]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the expectations that break on some case, and the names of those that hold on all cases.

    All expectations are compared on the ``later`` cases of a judgment, so that a finding at one output does not hide
    another's. Both results are in order of appearance.
    """
    broken, compared = {found.expectation.name: None}, dict[str, None]()
    for case in later:
        with suppress(Exception):  # an error on a later case does not change the finding
            for expectation in law.expect(ask, case):
                name = expectation.name
                measured = None if name in broken else expectation.measure()
                if measured is None:
                    continue
                compared[name] = None
                if measured.distance > measured.allowed and not is_rounding(law, ask, case, expectation):
                    broken[name] = None
    return tuple(broken), tuple(name for name in compared if name not in broken)


def _cache_shared(ask: Asker, seed: int, budget: int) -> None:
    """Make ``ask`` cache the results on the batches that all laws share."""
    for case in (*all_cases(seed, budget), *companion_pool()):
        ask.cache.setdefault(id(inside_domain(ask.boundary.domain, case).batch), {})


def _result_of(law: Law, ask: Asker, case: Case) -> Break | bool | Exception | None:
    """The result of :func:`_first_break`, or the exception if the case has no result.

    A crash is not raised here: a break on a later case is more informative.
    """
    try:
        return _first_break(law, ask, case)
    except (Refused, NotApplicable, Crashed) as error:
        return error


def _first_break(law: Law, ask: Asker, case: Case, key: str = "") -> Break | bool | None:
    """The first broken expectation; True if all compared expectations hold; None if no expectation was compared.

    With a ``key``, only the expectation of this name is compared.
    """
    holds: bool | None = None
    for expectation in law.expect(ask, case):
        measured = expectation.measure() if expectation.name == key or not key else None
        if measured is None:
            continue
        holds = True
        if measured.distance > measured.allowed and not is_rounding(law, ask, case, expectation):
            return Break(case, expectation, *measured)
    return holds


def smallest(law: Law, ask: Asker, found: Break) -> Break:
    """Shrink the case of a break to a small one that breaks the same expectation.

    A law that is broken only if all cases break it keeps its first case: on a smaller case, a sound boundary could
    break it too.
    """
    if law.fails == "on-all-cases":
        return found
    variant = int(found.case.draw.get("variant") or 0)

    def retried(candidate: Case) -> Break | None:
        try:
            varied = law.vary(inside_domain(ask.boundary.domain, candidate), variant)
        except Exception:  # noqa: BLE001 - a candidate outside of the boundary's conditions is skipped
            return None
        if varied is None:
            return None
        try:
            result = _first_break(law, ask, varied, found.expectation.name)
        except Exception:  # noqa: BLE001 - a candidate with an error is skipped
            return None
        return result if isinstance(result, Break) else None

    least = shrunk(found.case, lambda c: retried(c) is not None, ask.boundary.reads)
    return retried(least) or found


def recheck(law: Law, ask: Asker, case: Case) -> Break | bool | None:
    """Check the law on one stored case: a break, True if the law holds, None if there is nothing to compare."""
    varied = law.vary(case, int(case.draw.get("variant") or 0))
    return None if varied is None else _first_break(law, ask, varied)


def smoke_check(ask: Asker, setting: str) -> str:
    """The smoke check: return the reason why the boundary cannot be checked; empty if it can.

    Raises:
        NotApplicable: if the target refuses every case of the check.
        Crashed: if every case of the check fails, at least one of them by an accident.
    """
    refusal, accepted = "", False
    crash: Crashed | None = None
    for case in _smoke_cases(ask, setting):
        try:
            if _moves(ask, case):
                return ""
            accepted = True
        except (Refused, NotApplicable) as error:
            refusal = refusal or str(error)
        except Crashed as crashed:
            crash = crash or crashed
    if not accepted and crash is not None:
        raise crash
    if not accepted:
        raise NotApplicable(refusal)
    return f"output {next(iter(ask.boundary.outputs))} does not change with any column that the boundary reads"


def call_all(ask: Asker, setting: str) -> None:
    """Call the boundary on the leading cases, forward and backward; results are ignored."""
    columns = tuple(name for name in ("logits", "logprob", "value") if name in ask.boundary.reads)
    for case in leading_cases(setting):
        with suppress(Exception):
            ask(inside_domain(ask.boundary.domain, case), gradients=columns)


def _smoke_cases(ask: Asker, setting: str) -> Iterator[Case]:
    for case in small_cases(setting) + random_cases(FIXED_SEED, 4, setting):
        yield inside_domain(ask.boundary.domain, case)


def _moves(ask: Asker, case: Case) -> bool:
    """Whether the first output changes when a signal column changes; True if the boundary reads no such column.

    Raises:
        Refused: or ``NotApplicable``, if the target refuses the case, or refuses a changed batch while no accepted
            change changes the output.
    """
    signals = [name for name in sorted(ask.boundary.reads) if COLUMNS[name]["role"] == "signal"]
    before, main = ask(case), next(iter(ask.boundary.outputs))
    refusal: Refused | NotApplicable | None = None
    for batch in _moved_batches(case, signals):
        try:
            after = ask(Case(batch, case.setting, case.override, {}, case.seed))
        except (Refused, NotApplicable) as refused:  # the moved batch is one that the target never makes
            refusal = refused
            continue
        if not torch.equal(before.values[main], after.values[main]):
            return True
    if refusal is not None:
        raise refusal
    return not signals


def _moved_batches(case: Case, columns: Sequence[str]) -> Iterator[Batch]:
    """Batches with moved columns: first all together, which usually suffices; then each alone; last, far moves."""
    if len(columns) > 1:
        yield reduce(lambda b, name: moved(b, name, _every_other_entry(case, name, None), -0.5), columns, case.batch)
    index, rows = torch.arange(case.batch.rows), torch.ones(case.batch.rows, dtype=torch.bool)
    for name in columns:
        for where in (index == 0, rows, index == case.batch.rows - 1, None):
            yield moved(case.batch, name, _every_other_entry(case, name, where), -0.5)
    for name in columns:
        yield moved(case.batch, name, _every_other_entry(case, name, None), -4.0)


def _every_other_entry(case: Case, column: str, rows: torch.Tensor | None) -> torch.Tensor:
    """The cells of a column to move: the given rows; for logits, every second vocabulary entry of these rows.

    A softmax does not change when all logits move equally. Without ``rows``, every second cell along all axes is moved,
    so that a softmax or a mean over any axis changes.
    """
    like = getattr(case.batch, column)
    steps = [torch.arange(n).reshape(-1, *[1] * (like.dim() - 1 - axis)) for axis, n in enumerate(like.shape)]
    if rows is None:
        return reduce(torch.add, steps) % 2 == 0
    if "V" not in COLUMNS[column]["axes"].split():
        return rows
    return (rows.reshape(-1, 1, 1) & (steps[-1] % 2 == 0)).expand(like.shape)
