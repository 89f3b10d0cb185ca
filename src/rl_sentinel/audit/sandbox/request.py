"""``Request``: the request to a worker process, and its JSON form."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

#: Maximum number of random cases per pair of a law and a boundary.
MOST_CASES = 100_000

#: The budget with which only the leading cases of a search are tried (``search/case_selection.py``).
LEADING_CASES = 0

Task = Literal["audit", "boundaries", "entered", "influence", "replay"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One job for a worker.

    Attributes:
        task: the kind of job.
        framework: name of the framework; ``own`` for a user's function, ``rl_sentinel.train`` for a recipe.
        root: folder that contains the target's import package or the user's module.
        version: requested or installed release of the target; empty for other targets.
        overlays: folders for ``sys.path`` with the small packages that the target imports.
        laws: codes of the laws to check; empty for all.
        ignore: codes of laws that are not checked.
        boundaries: path patterns, one of which must match; empty for all.
        enters: functions of the target, ``FILE:NAME``, one of which a boundary must name or enter; empty for all.
        seed: seed of the random cases.
        budget: random cases per law and boundary besides all small cases; 0 to try only the leading cases.
        jobs: number of processes that run at a time.
        function: a user's function as ``module:name``.
        stage: the function's stage.
        algorithm: the function's algorithm.
        claims: the function's claims.
        bind: the bindings of the function's parameters.
        numbers: the numbers of the function's formula.
        recipe: a recipe of the trainer as JSON.
        search_path: folders of the modules that the recipe names.
        records: stored findings to replay.
        target: provenance for the evidence.
        records_code: whether events say which functions of the target decided each verdict.
        unchanged: boundary (path and setting, joined by a line break) -> digest of its description; a boundary that
            still has this digest is not checked, if the loaded modules are still ``modules``.
        modules: the modules that were loaded when ``unchanged`` was recorded.
    """

    task: Task
    framework: str
    root: str
    version: str
    overlays: tuple[str, ...] = ()
    laws: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    boundaries: tuple[str, ...] = ()
    enters: tuple[str, ...] = ()
    seed: int = 0
    budget: int = 24
    jobs: int = 2
    function: str = ""
    stage: str = ""
    algorithm: str = ""
    claims: tuple[str, ...] = ()
    bind: Mapping[str, Any] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    recipe: str = ""
    search_path: tuple[str, ...] = ()
    records: tuple[Mapping[str, Any], ...] = ()
    target: Mapping[str, str] = field(default_factory=dict)
    records_code: bool = False
    unchanged: Mapping[str, str] = field(default_factory=dict)
    modules: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The request as plain JSON values."""
        return asdict(self)


def from_json(data: Mapping[str, Any]) -> Request:
    """Read a request that :meth:`Request.as_json` wrote."""
    tuples = {k: tuple(v) for k, v in data.items() if isinstance(v, list)}
    return Request(**{**data, **tuples})
