"""Measure recall: audit before and after the fix of each bug, and run two controls on the same histories."""

import hashlib
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from rl_sentinel.audit.engine.worker import frameworks
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.recall.bugs import Bug
from rl_sentinel.recall.comparison import Comparison, changed, compare
from rl_sentinel.recall.function_names import called_function, function_names
from rl_sentinel.recall.histories import Histories, previous_harmless_change
from rl_sentinel.recall.narrow_audit import Judged, NarrowAudit, narrow_audit, source_root
from rl_sentinel.recall.syntax import interpreter_for


@dataclass(frozen=True, slots=True)
class Controls:
    """Negative controls of a bug: whether a law turned from broken to *holds* where nothing was fixed.

    None if a control could not run.

    Attributes:
        other_function: at the function of another bug, in the same two audits, at boundaries that do not enter the
            bug's function.
        neighbor: at the bug's function, before and after an earlier change of its file that fixes nothing.
    """

    other_function: bool | None = None
    neighbor: bool | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one bug; ``functions`` are those that the bug names, as ``FILE:NAME``."""

    bug: Bug
    comparison: Comparison
    functions: tuple[str, ...] = ()
    controls: Controls = Controls()


@dataclass(frozen=True, slots=True)
class _Sides:
    """The targets before and after a fix; ``after`` is empty if the bug is not fixed."""

    before: str
    after: str


def measure(  # noqa: PLR0913 - the options of the command
    bugs: Sequence[Bug],
    corpus_bugs: Sequence[Bug],
    histories: Histories | None,
    *,
    jobs: int,
    controls: bool,
    pythons: Sequence[str] = (sys.executable,),
) -> Iterator[Row]:
    """The result of each bug, in order; ``jobs`` bugs run at a time. Controls use any of ``corpus_bugs``.

    A target is imported in the first of ``pythons`` that can read its syntax, or in the one that reads most files.
    """
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(lambda bug: _row(bug, corpus_bugs, histories, controls=controls, pythons=pythons), bugs)


def _row(
    bug: Bug, corpus_bugs: Sequence[Bug], histories: Histories | None, *, controls: bool, pythons: Sequence[str]
) -> Row:
    try:
        sides = _sides(bug, histories)
        root = source_root(sides.before, pythons[0])
    except SentinelError as error:
        return Row(bug, Comparison("failed", detail=str(error)))
    functions = function_names(root, bug.file, bug.function)
    if not functions:
        return Row(bug, Comparison("failed", detail=f"{bug.file} is not in the tree of {sides.before}"))
    other_functions = _function_of_another(bug, corpus_bugs, root, functions) if controls else ()
    before, after = _audits(sides, (*functions, *other_functions), pythons)
    comparison = compare(before, after, functions)
    if comparison.outcome == "not judged after":
        comparison = compare(before, _audit_at(comparison.found, sides.after, pythons), functions)
    if not controls:
        return Row(bug, comparison, functions)
    other_changed = None
    if other_functions and after is not None and not before.error and not after.error:
        other_changed = changed(before, after, other_functions, without=functions)
    return Row(bug, comparison, functions, Controls(other_changed, _neighbor(bug, histories, functions, pythons)))


def _audits(
    sides: _Sides, functions: tuple[str, ...], pythons: Sequence[str]
) -> tuple[NarrowAudit, NarrowAudit | None]:
    before = _audit(sides.before, functions, pythons)
    return before, _audit(sides.after, functions, pythons) if sides.after else None


def _audit_at(found: Sequence[Judged], target: str, pythons: Sequence[str]) -> NarrowAudit:
    """Audit the boundaries of findings, selected by the functions that they call.

    The fix may have removed the function of the bug.
    """
    root = source_root(target, pythons[0])
    called = dict.fromkeys(called_function(root, verdict.boundary) for verdict in found)
    return _audit(target, tuple(name for name in called if name), pythons) if any(called) else NarrowAudit()


def _audit(target: str, functions: tuple[str, ...], pythons: Sequence[str]) -> NarrowAudit:
    try:
        python = pythons[0] if len(pythons) == 1 else interpreter_for(source_root(target, pythons[0]), pythons)
    except SentinelError as error:
        return NarrowAudit(error=str(error))
    return narrow_audit(target, functions, jobs=1, python=python)


def _sides(bug: Bug, histories: Histories | None) -> _Sides:
    """The targets before and after a fix.

    Raises:
        SentinelError: if no adapter, history or release has them.
    """
    if bug.framework not in frameworks():
        raise SentinelError(
            f"framework is {bug.framework!r}, expected one of {', '.join(n for n in frameworks() if n != 'own')}"
        )
    repository = histories.of(bug.parent_commit) if histories is not None and bug.parent_commit else None
    if repository is not None:
        commits = (bug.parent_commit, bug.fix_commit)
        return _Sides(*(f"{bug.framework}@{repository}#{commit}" if commit else "" for commit in commits))
    if bug.releases.last and bug.releases.fixed_in:
        last, fixed = _release("last", bug.releases.last), _release("fixed_in", bug.releases.fixed_in)
        return _Sides(f"{bug.framework}=={last}", f"{bug.framework}=={fixed}")
    if histories is None:
        raise SentinelError(
            "the bug's row lacks releases.last or releases.fixed_in, expected both: add them, or pass --git"
        )
    fix = "add releases.last and releases.fixed_in to the bug's row"
    if not bug.parent_commit:
        raise SentinelError(
            f"the bug's row lacks parent_commit, and releases.last or releases.fixed_in: add parent_commit, or {fix}"
        )
    commit = str(bug.parent_commit)[:9]
    raise SentinelError(f"parent_commit is {commit}, which no history in {histories.folder} has: fetch it, or {fix}")


def _release(key: str, name: str) -> str:
    try:
        return str(Version(name))
    except InvalidVersion as error:
        raise SentinelError(f"releases.{key} is {name!r}, expected a number as in 1.2.3") from error


def _function_of_another(bug: Bug, corpus_bugs: Sequence[Bug], root: Path, functions: Sequence[str]) -> tuple[str, ...]:
    """The functions of another bug of the framework that exist in this tree; the ids determine which bug is used."""

    def order(other: Bug) -> str:
        return hashlib.sha256(f"{bug.id} {other.id}".encode()).hexdigest()

    for other in sorted((b for b in corpus_bugs if b.framework == bug.framework and b.id != bug.id), key=order):
        names = function_names(root, other.file, other.function)
        if names and not set(names) & set(functions) and not any(n.endswith(":*") for n in names):
            return names
    return ()


def _neighbor(bug: Bug, histories: Histories | None, functions: tuple[str, ...], pythons: Sequence[str]) -> bool | None:
    """Whether a verdict at the functions turns to *holds* at an earlier commit that fixes nothing; None if unknown."""
    repository = histories.of(bug.parent_commit) if histories is not None and bug.parent_commit else None
    if repository is None or bug.parent_commit is None:
        return None
    commit = previous_harmless_change(repository, bug.parent_commit, bug.file)
    if not commit:
        return None
    before, after = _audits(
        _Sides(*(f"{bug.framework}@{repository}#{c}" for c in (f"{commit}~", commit))), functions, pythons
    )
    if before.error or after is None or after.error:
        return None
    return changed(before, after, functions)
