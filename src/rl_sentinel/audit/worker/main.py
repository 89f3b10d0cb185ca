"""The worker process: load a target, bind its boundaries, do what the request says."""

import json
import os
import sys
import warnings
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch

import rl_sentinel.frameworks
import rl_sentinel.laws
from rl_sentinel.audit.worker.children import run_all
from rl_sentinel.audit.worker.influence import influence
from rl_sentinel.audit.worker.request import Request, from_json
from rl_sentinel.audit.worker.unit import Event, Unit, units
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.errors import NotApplicable, SentinelError
from rl_sentinel.core.law import Law
from rl_sentinel.core.modules import defined
from rl_sentinel.core.storage import case_from_json
from rl_sentinel.frameworks import loading
from rl_sentinel.frameworks.framework import Framework
from rl_sentinel.frameworks.target import Target


def frameworks() -> dict[str, Framework]:
    """Name to framework, for each adapter that the package walk finds."""
    return {f.name: f for f in defined(rl_sentinel.frameworks, "FRAMEWORK").values()}


def laws() -> dict[str, Law]:
    """Code to law, for each law that the package walk finds."""
    found: list[Law] = list(defined(rl_sentinel.laws, "LAW").values())
    return {law.code: law for law in sorted(found, key=lambda law: law.code)}


def serve(request: Request, send: Any) -> None:  # noqa: ANN401 - a function of one event
    """Carry out a request; everything that is found goes through ``send``."""
    torch.set_num_threads(1)
    framework = frameworks()[request.framework]
    root, overlays = Path(request.root), [Path(p) for p in request.overlays]
    target = loading.load(framework, root, request.version, overlays)
    if request.function:
        os.environ["RL_SENTINEL_FUNCTION"] = request.function
        os.environ["RL_SENTINEL_STAGE"] = request.stage
    found = list(framework.boundaries(target))
    everything = [b for b in found if isinstance(b, Boundary)]
    bound = [b for b in everything if _wanted(b.path, request)]
    unbound = [b for b in found if isinstance(b, Unbound) and _wanted(b.path, request)]
    if request.task == "replay":
        send(_replayed(target, bound, unbound, request))
        return
    if request.task == "boundaries":
        for b in bound:
            send({"event": "boundary", **_about(b)})
    if request.task == "influence":
        for b in bound:
            send({"event": "influence", "path": b.path, "maps": influence(b)})
    if request.task == "audit":
        _audit(target, bound, {b.path: b for b in everything}, request, send)
    for missing in unbound:
        send(_unbound(missing))


def _audit(
    target: Target,
    bound: list[Boundary],
    others: dict[str, Boundary],
    request: Request,
    send: Any,  # noqa: ANN401 - a function of one event
) -> None:
    chosen = [law for code, law in laws().items() if _chosen(code, request)]
    work = [u for u in units(target, bound, chosen, others, request) if u.laws]
    for unit in work:
        unit.tiers = dict(loading.used)
    send({"event": "plan", "pairs": sum(len(u.laws) for u in work), "boundaries": len(bound)})
    run_all(work, request.jobs, send)


def _chosen(code: str, request: Request) -> bool:
    return (not request.laws or code in request.laws) and code not in request.ignore


def _wanted(path: str, request: Request) -> bool:
    pattern = request.boundary
    return not pattern or any(fnmatchcase(path, p) for p in (pattern, f"*{pattern}", f"*{pattern}*"))


def _about(b: Boundary) -> dict[str, Any]:
    return {
        "path": b.path,
        "stage": b.stage,
        "settings": list(b.settings),
        "reads": sorted(b.reads),
        "outputs": {n: o.axes for n, o in b.outputs.items()},
        "claims": {k: [c.value, c.cite] for k, c in b.claims.items()},
    }


def _unbound(missing: Unbound) -> Event:
    about = {"law": "*", "boundary": missing.path, "setting": "*"}
    return {"event": "verdict", **about, "outcome": "errored", "reason": missing.reason}


def _replayed(target: Target, bound: list[Boundary], unbound: list[Unbound], request: Request) -> Event:
    record = request.evidence
    case = case_from_json(record["constructed_scenario"])
    law = laws().get(str(record["law"]))
    matches = [b for b in bound if b.path == record["boundary"] and case.setting in b.settings]
    if law is None or not matches:
        why = next((u.reason for u in unbound if u.path == record["boundary"]), "the target has no such boundary")
        return {"event": "replay", "status": "not-reproducible", "reason": f"{record['boundary']}: {why}"}
    unit = Unit(target, matches[0], case.setting, [law], {b.path: b for b in bound}, request)
    try:
        status, found = unit.replayed(law, case)
    except NotApplicable as words:
        return {"event": "replay", "status": "not-reproducible", "reason": str(words)}
    if found is None:
        return {"event": "replay", "status": status, "reason": ""}
    return {"event": "replay", "status": status, "reason": "", "distance": str(found.distance)}


def main(arguments: list[str]) -> Iterator[None]:
    """Read a request from a file, write events to a file descriptor."""
    warnings.simplefilter("ignore")
    request = from_json(json.loads(Path(arguments[0]).read_text(encoding="utf-8")))
    with os.fdopen(int(arguments[1]), "w", buffering=1, encoding="utf-8") as out:

        def send(event: Event) -> None:
            out.write(json.dumps(event) + "\n")

        try:
            serve(request, send)
            send({"event": "done"})
        except SentinelError as error:
            send({"event": "failed", "message": str(error)})
        except Exception as error:  # noqa: BLE001 - told to the user by the driver in one line
            send({"event": "failed", "message": f"{type(error).__name__}: {error}"})
    yield


if __name__ == "__main__":
    list(main(sys.argv[1:]))
