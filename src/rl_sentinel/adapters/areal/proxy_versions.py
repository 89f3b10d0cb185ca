"""AReaL's controllers of rollout workers with proxies for agents: the version that each proxy records."""

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.areal.remote_rollouts import CONTROLLERS
from rl_sentinel.adapters.areal.rollout_pauses import Worker, run_at_once
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response, versions_never_decrease
from rl_sentinel.adapters.kit.row_outputs import row_fields, row_outputs
from rl_sentinel.adapters.kit.value_codecs import functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims

#: The controller's methods, in the order of the trainer's calls.
METHODS = ("start_proxy", "set_version")

#: The roles of the trainer's two controllers, and the workers of each.
ROLES, _WORKERS = ("rollout", "eval-rollout"), 2

_DOCS = claims(
    "rollout_controller.py, start_proxy: each proxy worker connects to the inference server of its rollout worker; "
    "set_version: a call of the engines of all workers; an engine records its version for each token",
    conserves=True,
)
_PRODUCER = (
    "trainer/rl_trainer.py: start_proxy of the controllers of rollouts and of evaluation rollouts, which share one "
    "scheduler; rollout.set_version after each update"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the versions at proxies, in releases whose controller starts proxies."""
    path = next((path for path in CONTROLLERS if target.has(path)), "")
    if path and all(target.has(f"{path}.{name}") for name in METHODS) and not target.fails(path):
        yield from bindable(target, _boundary(path))


class Scheduler:
    """A fake scheduler: a role that is used twice replaces its workers, as in AReaL's schedulers."""

    def __init__(self) -> None:
        """Start without workers."""
        self.workers: dict[str, Worker] = {}
        self.forked: list[list[Worker]] = []

    def fork_workers(self, role: str, **_about: object) -> list[str]:
        """Start the workers of a role."""
        names = [f"{role}/{rank}" for rank in range(_WORKERS)]
        self.workers |= {name: Worker(name) for name in names}
        self.forked.append([self.workers[name] for name in names])
        return names

    def get_workers(self, role: str) -> list[SimpleNamespace]:
        """The workers of a role."""
        names = [name for name in self.workers if name.rpartition("/")[0] == role]
        return [SimpleNamespace(id=name, ip="127.0.0.1", worker_ports=["1"]) for name in names]

    async def create_engine(self, **_about: object) -> None:
        """Create nothing."""

    async def async_call_engine(self, worker_id: str, method: str, **options: Any) -> None:  # noqa: ANN401 - as AReaL
        """Call a method of a worker's engine."""
        if worker_id in self.workers:
            self.workers[worker_id].apply(method, options)


def versions_at_proxies(start: Callable[..., Any], owner: type, rows: list[dict[str, Any]]) -> dict[str, list[Tensor]]:
    """Start the proxies of both controllers, and set the version of the first controller for each token.

    Returns the log-probs of each response, and the lowest version that a proxy of the first controller records.
    """
    recorded = []
    with replaced_globals(start.__globals__, run_async_task=run_at_once):
        for row in rows:
            scheduler = Scheduler()
            rollouts, evaluations = (_controller(owner, scheduler, role) for role in ROLES)
            rollouts.start_proxy()
            evaluations.start_proxy()
            evaluations.set_version(0)
            versions = []
            for version in row["versions"]:
                rollouts.set_version(version)
                versions.append(min(worker.version for worker in scheduler.forked[0]))
            recorded.append(torch.tensor(versions))
    return {"logprobs": [torch.tensor(row["logprobs"]) for row in rows], "versions": recorded}


def _controller(owner: type, scheduler: Scheduler, role: str) -> Any:  # noqa: ANN401 - AReaL's class
    return bare_instance(
        owner,
        scheduler=scheduler,
        config=SimpleNamespace(),
        inf_engine=Worker,
        workers=[SimpleNamespace(id=f"{role}/{rank}") for rank in range(_WORKERS)],
        server_infos=[SimpleNamespace(host="127.0.0.1", port=1)] * _WORKERS,
        proxy_workers=[],
        proxy_addrs=[],
        _proxy_started=False,
        _worker_role=role,
        _version_lock=threading.Lock(),
        _version=0,
    )


def _boundary(path: str) -> Boundary:
    row = row_fields("logprobs", "versions")
    return one_call(
        path=" -> ".join(f"{path}.{name}" for name in METHODS),
        stage="batch",
        call=versions_at_proxies,
        name="recorded",
        arguments={**functions(start=f"{path}.start_proxy", owner=path), "rows": EachRow(Table(row))},
        produced_by={"rows": _PRODUCER},
        outputs=row_outputs(Use("recorded"), "rollout_logprob", "version"),
        settings={"proxies of two controllers": {}},
        claims=_DOCS,
        reach="a workflow that is an agent, with an evaluation set",
        requires=(no_empty_response, versions_never_decrease),
    )
