"""AReaL's controller of rollout workers around a weight update: all workers pause, and learn the new version."""

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.areal.remote_rollouts import CONTROLLERS
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response, versions_never_decrease
from rl_sentinel.adapters.kit.row_outputs import row_fields, row_outputs
from rl_sentinel.adapters.kit.scripted_sampling import WRONG
from rl_sentinel.adapters.kit.value_codecs import functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims

#: The controller's methods around a weight update, in the order of the trainer's calls.
METHODS = ("pause", "set_version", "resume")

_DOCS = claims(
    "rollout_controller.py, pause, set_version and resume: calls of the engines of all workers; a paused engine sends "
    "no request to the servers, and an engine records its version for each token (remote_inf_engine.py, agenerate)",
    conserves=True,
)
_PRODUCER = (
    "trainer/rl_trainer.py, train: rollout.pause, actor.update_weights, rollout.set_version, rollout.resume; responses "
    "that are not finished go on after the update"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the controller, in releases that have one."""
    path = next((path for path in CONTROLLERS if target.has(path)), "")
    if not path or not all(target.has(f"{path}.{name}") for name in METHODS) or target.fails(path):
        return
    yield from bindable(target, _boundary(path))


@dataclass
class Worker:
    """A fake worker: it samples a token whenever it is not paused, and records the version that it knows."""

    id: str
    version: int = 0
    paused: bool = False

    def apply(self, method: str, options: dict[str, Any]) -> None:
        """Run a method of the engine; methods other than these three change nothing here."""
        if method == "set_version":
            self.version = options["version"]
        elif method in {"pause", "resume"}:
            self.paused = method == "pause"


class Scheduler:
    """A fake scheduler, which calls the engines of workers by name."""

    def __init__(self, workers: list[Worker]) -> None:
        """Store the workers."""
        self.workers = {worker.id: worker for worker in workers}

    async def async_call_engine(self, worker_id: str, method: str, **options: Any) -> None:  # noqa: ANN401 - as AReaL
        """Call a method of a worker's engine."""
        self.workers[worker_id].apply(method, options)


def versions_at(owner: type, rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """The log-probs of each response, and the version that workers record for each token.

    The version of a token is :data:`WRONG` if a worker samples it while the weights are updated, or does not sample it.
    """
    recorded = [torch.tensor(_recorded(owner, row["versions"])) for row in rows]
    return {"logprobs": [torch.tensor(row["logprobs"]) for row in rows], "versions": recorded}


def _recorded(owner: Any, versions: list[int]) -> list[int]:  # noqa: ANN401 - AReaL's class
    """The lowest version that a worker records for each token of a response."""
    workers = [Worker("rollout/0"), Worker("rollout/1")]
    proxies = [Worker("proxy/0")] if "proxy_workers" in inspect.getsource(owner) else []
    every, current, found = workers + proxies, -1, []
    controller = bare_instance(
        owner,
        scheduler=Scheduler(every),
        workers=workers,
        proxy_workers=proxies,
        _proxy_started=bool(proxies),
        _worker_role="rollout",
        _version_lock=threading.Lock(),
        _version=0,
        _dispatcher=SimpleNamespace(pause=lambda: None, resume=lambda: None),
    )
    for version in versions:
        early: list[Worker] = []
        if version != current:
            controller.pause()
            early = [worker for worker in every if not worker.paused]
            controller.set_version(version)
            controller.resume()
            current = version
        found.append(min(WRONG if worker.paused or worker in early else worker.version for worker in every))
    return found


def run_at_once(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - as the coroutine
    """A fake of AReaL's helper, which runs a coroutine in a loop of uvloop."""
    return asyncio.run(function(*arguments, **options))


def update_weights(pause: Callable[..., Any], owner: type, rows: list[dict[str, Any]]) -> dict[str, list[Tensor]]:
    """Run :func:`versions_at`; ``pause`` is the controller's method, whose module has the helper."""
    with replaced_globals(pause.__globals__, run_async_task=run_at_once):
        return versions_at(owner, rows)


def _boundary(path: str) -> Boundary:
    row = row_fields("logprobs", "versions")
    return one_call(
        path=" -> ".join(f"{path}.{name}" for name in METHODS),
        stage="batch",
        call=update_weights,
        name="sampled",
        arguments={**functions(pause=f"{path}.pause", owner=path), "rows": EachRow(Table(row))},
        produced_by={"rows": _PRODUCER},
        outputs=row_outputs(Use("sampled"), "rollout_logprob", "version"),
        settings={"weight updates": {}},
        claims=_DOCS,
        reach="a run with one controller, which is the default of the command line; workers behind a proxy: an agent "
        "that calls the OpenAI API",
        requires=(no_empty_response, versions_never_decrease),
    )
