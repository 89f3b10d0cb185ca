"""The worker process: load a target, bind its boundaries, and carry out the request."""

import json
import os
import select
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch

import rl_sentinel.adapters
import rl_sentinel.laws
from rl_sentinel.adapters import loading
from rl_sentinel.adapters.framework import Framework
from rl_sentinel.adapters.own_trainer import RECIPE_VARIABLE
from rl_sentinel.adapters.source_reads import sources_read_once
from rl_sentinel.adapters.target import Target
from rl_sentinel.audit.engine.code_use import CodeUse
from rl_sentinel.audit.engine.influence import Influence
from rl_sentinel.audit.engine.judge import prepare
from rl_sentinel.audit.engine.reachable_modules import can_reach
from rl_sentinel.audit.engine.unit import Unit, units
from rl_sentinel.audit.repro.stored_case import Replay, replays
from rl_sentinel.audit.sandbox import limits
from rl_sentinel.audit.sandbox.import_timeout import import_time_limit
from rl_sentinel.audit.sandbox.job import Event
from rl_sentinel.audit.sandbox.request import Request, from_json
from rl_sentinel.audit.sandbox.supervisor import run_all
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.claim_text import claim_texts
from rl_sentinel.core.errors import SentinelError, Undecided
from rl_sentinel.core.law import Law
from rl_sentinel.core.modules import defined


def frameworks() -> dict[str, Framework]:
    """Return name -> framework, for each adapter that the package walk finds."""
    return {f.name: f for f in defined(rl_sentinel.adapters, "FRAMEWORK").values()}


def laws() -> dict[str, Law]:
    """Return code -> law, for each law that the package walk finds."""
    return dict(rl_sentinel.laws.LAWS)


def serve(request: Request, send: Any) -> None:  # noqa: ANN401 - a function of one event
    """Load the target and carry out a request; results are sent as events through ``send``."""
    torch.set_num_threads(1)
    limits.limit_memory(limits.LOADING_MEMORY, permanent=False)
    code_use = CodeUse.for_request(request)
    with import_time_limit():
        target, boundaries = _loaded(request, code_use)
    carry_out(request, target, boundaries, send, code_use)


def carry_out(
    request: Request,
    target: Target,
    boundaries: list[Boundary | Unbound],
    send: Any,  # noqa: ANN401 - a function of one event
    code_use: CodeUse | None = None,
) -> None:
    """Carry out a request on the boundaries that were found; results are sent as events through ``send``."""
    everything = [b for b in boundaries if isinstance(b, Boundary)]
    bound = [b for b in everything if _is_selected(b.path, request)]
    unbound = [b for b in boundaries if isinstance(b, Unbound) and _is_selected(b.path, request)]
    if request.task == "replay":
        _replay(target, bound, unbound, request, send)
        return
    if request.task == "boundaries":
        for b in bound:
            send({"event": "boundary", **_about(b)})
    if request.task == "entered":  # only the smoke check of a boundary shows which functions it enters
        by_path = {b.path: b for b in everything}
        run_all([Unit(target, b, s, [], by_path, request) for b in bound for s in b.settings], request.jobs, send)
    if request.task == "influence":
        run_all([Influence(b, setting, target.root) for b in bound for setting in b.settings], request.jobs, send)
    if request.task == "audit":
        _audit(target, bound, {b.path: b for b in everything}, request, send, code_use)
    for missing in unbound:
        send(_unbound(missing))


def _loaded(request: Request, code_use: CodeUse | None = None) -> tuple[Target, list[Boundary | Unbound]]:
    framework = frameworks()[request.framework]
    root, overlays = Path(request.root), [Path(p) for p in request.overlays]
    target = loading.load(framework, root, request.version, overlays)
    if request.function:
        os.environ["RL_SENTINEL_FUNCTION"] = request.function
        os.environ["RL_SENTINEL_STAGE"] = request.stage
        os.environ["RL_SENTINEL_CLAIMS"] = "\n".join(request.claims)
        os.environ["RL_SENTINEL_BIND"] = json.dumps(
            {"bind": request.bind, "numbers": request.numbers, "algorithm": request.algorithm}
        )
    os.environ[RECIPE_VARIABLE] = request.recipe
    sys.path += [folder for folder in request.search_path if folder not in sys.path]
    with sources_read_once(), code_use.binding() if code_use else nullcontext():
        boundaries = list(framework.boundaries(target))
    return target, [*boundaries, *_broken_modules(target, boundaries)]


def _broken_modules(target: Target, boundaries: list[Boundary | Unbound]) -> Iterator[Unbound]:
    """Modules of the target that cannot be imported, unless an unbound boundary already states the same reason."""
    reasons = "\n".join(one.reason for one in boundaries if isinstance(one, Unbound))
    for module, reason in target.broken.items():
        if reason not in reasons:
            yield Unbound(module, "batch", reason)


def _audit(  # noqa: PLR0913 - the parts of a worker
    target: Target,
    bound: list[Boundary],
    by_path: dict[str, Boundary],
    request: Request,
    send: Any,  # noqa: ANN401 - a function of one event
    code_use: CodeUse | None,
) -> None:
    for boundary in bound:
        for note in boundary.notes:
            send({"event": "note", "boundary": boundary.path, "text": note})
    chosen = [law for code, law in laws().items() if _is_chosen(code, request)]
    work = list(units(target, bound, chosen, by_path, request))
    for unit in work:
        unit.loaded = dict(loading.used)
    send({"event": "plan", "pairs": sum(len(u.laws) for u in work), "boundaries": len(bound)})
    if code_use is not None:
        work = _changed(work, code_use, request, send)
    pairs = [(law, unit.boundary.domain) for unit in work for law in unit.laws if _applies(law, unit.boundary)]
    prepare(pairs, request.seed, request.budget)
    work.sort(key=lambda unit: -len(unit.boundary.outputs))  # longest units first, so that none runs alone at the end
    if request.enters:
        _run_narrow(target, work, request, send)
    else:
        run_all(work, request.jobs, send)


def _run_narrow(target: Target, work: list[Unit], request: Request, send: Any) -> None:  # noqa: ANN401 - a function
    """Run the units that can reach the functions by imports; if no unit enters a function, run the other units."""
    near, far, entered = list[Unit](), list[Unit](), list[Event]()
    for unit in work:
        (near if can_reach(target, unit.boundary, request.enters) else far).append(unit)

    def noted(event: Event) -> None:
        entered.extend([event] if event["event"] == "entered" else [])
        send(event)

    run_all(near, request.jobs, noted)
    if not entered:
        run_all(far, request.jobs, send)


def _changed(work: list[Unit], code_use: CodeUse, request: Request, send: Any) -> list[Unit]:  # noqa: ANN401
    """The units that must be checked; the others are announced as unchanged."""
    send(code_use.loaded())
    same_modules = tuple(code_use.modules()) == request.modules
    remaining = list[Unit]()
    for unit in work:
        unit.code_use = code_use
        described = code_use.described(unit.boundary, unit.setting, unit.by_path)
        send(described)
        digest = request.unchanged.get("\n".join(unit.name))
        if same_modules and digest and digest == described["digest"]:
            send({"event": "unchanged", "boundary": unit.boundary.path, "setting": unit.setting})
        else:
            remaining.append(unit)
    return remaining


def _applies(law: Law, boundary: Boundary) -> bool:
    try:
        return not law.applies(boundary)
    except Undecided:
        return False


def _is_chosen(code: str, request: Request) -> bool:
    return (not request.laws or code in request.laws) and code not in request.ignore


def _is_selected(path: str, request: Request) -> bool:
    patterns = [p for pattern in request.boundaries for p in (pattern, f"*{pattern}", f"*{pattern}*")]
    return not patterns or any(fnmatchcase(path, p) for p in patterns)


def _about(b: Boundary) -> dict[str, Any]:
    return {
        "path": b.path,
        "stage": b.stage,
        "settings": list(b.settings),
        "reads": sorted(b.reads),
        "outputs": {n: o.axes for n, o in b.outputs.items()},
        "claims": {k: [c.value, c.cite] for k, c in claim_texts(b.claims).items()},
    }


def _unbound(missing: Unbound) -> Event:
    about = {"law": "*", "boundary": missing.path, "setting": "*"}
    return {
        "event": "verdict",
        **about,
        "outcome": "not-applicable" if missing.absent else "errored",
        "reason": missing.reason,
    }


def _replay(
    target: Target,
    bound: list[Boundary],
    unbound: list[Unbound],
    request: Request,
    send: Any,  # noqa: ANN401 - a function of one event
) -> None:
    by_path = {b.path: b for b in bound}

    def unit(boundary: Boundary, setting: str, chosen: list[Law]) -> Unit:
        return Unit(target, boundary, setting, chosen, by_path, request)

    work = list[Replay]()
    for replay in replays(request.records, bound, unbound, laws(), unit):
        if isinstance(replay, Replay):
            work.append(replay)
        else:
            send(replay)
    run_all(work, request.jobs, send)


def main(arguments: list[str]) -> None:
    """Read a request from the file ``arguments[0]``, and write events to the file descriptor ``arguments[1]``."""
    warnings.simplefilter("ignore")
    limits.die_with_parent()
    if _is_closed(int(arguments[1])):
        return
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # a child may be signalled before it installs its handler
    request = from_json(json.loads(Path(arguments[0]).read_text(encoding="utf-8")))
    with os.fdopen(int(arguments[1]), "w", buffering=1, encoding="utf-8") as out:

        def send(event: Event) -> None:
            out.write(json.dumps(event) + "\n")

        try:
            serve(request, send)
            send({"event": "done"})
        except SentinelError as error:
            send({"event": "failed", "message": str(error)})
        except Exception as error:  # noqa: BLE001 - the parent prints it in one line
            send({"event": "failed", "message": f"{type(error).__name__}: {error}"})


def _is_closed(pipe: int) -> bool:
    """Whether the reading end of a pipe is closed."""
    watch = select.poll()
    watch.register(pipe, 0)
    return bool(watch.poll(0))


if __name__ == "__main__":
    main(sys.argv[1:])
