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

    ``root`` is the folder that holds the target's import package; ``boundaries`` are path patterns, one of which must
    match; ``budget`` is the number of random cases per law and boundary besides all small cases, or 0 to try only the
    leading cases; ``enters`` are functions of the target, ``FILE:NAME``, one of which a boundary must name or enter;
    ``function`` is a user's ``module:name`` with its ``stage``, ``algorithm``, ``claims``, its bindings (``bind``) and
    the ``numbers`` of its formula; ``recipe`` is a recipe of the trainer as JSON, and ``search_path`` the folders where
    modules that it names are found; ``records`` are the stored findings to replay;
    ``target`` is provenance for the evidence. With ``records_code``, events say which functions of the target decided
    each verdict. ``unchanged`` maps boundaries (path and setting, joined by a line break) to digests of their
    descriptions: a boundary with this digest is not checked, if the loaded modules are still ``modules``.
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
