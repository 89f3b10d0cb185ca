"""Boundary of SkyRL's weight update of the inference engines: the weights that sample a request during the update."""

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.configs import Config
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.engines_at_update import Engines, columns
from rl_sentinel.adapters.kit.replacement import nothing, replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_outputs import row_fields, row_outputs
from rl_sentinel.adapters.kit.value_codecs import functions
from rl_sentinel.adapters.skyrl.arguments import CONFIG
from rl_sentinel.adapters.skyrl.loop_fakes import Client
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Scalar, Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.errors import Unbindable

OWNER = "skyrl.backends.skyrl_train.workers.worker_dispatch.WorkerDispatch"
PATH = f"{OWNER}.save_weights_for_sampler"

_COLOCATED = "trainer.placement.colocate_all"
#: The name of a case's setting -> the field; a release may lack the later ones.
_FIELDS = {
    "colocated": _COLOCATED,
    "asynchronous": "trainer.fully_async.enabled",
    "offloaded": "generator.inference_engine.offload_kv_for_weight_sync",
}
_SETTINGS: Mapping[str, Settings] = {
    "own devices": {"colocated": False},
    "shared devices": {"colocated": True},
    "own devices, cache is offloaded": {"colocated": False, "asynchronous": True, "offloaded": True},
}
_CLAIMS = claims(
    "worker_dispatch.py, save_weights_for_sampler: syncs weights to the inference engines for sampling; "
    "inference_engine_client.py, pause_generation: requests in flight and new requests wait until it is resumed",
    conserves=True,
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the update of the engines' weights, in releases whose workers are behind a dispatcher."""
    if not target.has(PATH):
        return
    if why := target.fails(PATH):
        yield Unbound(PATH, "batch", why)
        return
    for name, settings in _SETTINGS.items():
        fields = {field: settings[setting] for setting, field in _FIELDS.items() if setting in settings}
        if set(fields) == {_COLOCATED} or _has(target, fields):
            yield from bindable(target, _boundary(name, settings))


def _has(target: Target, fields: Mapping[str, Scalar]) -> bool:
    """Whether the configuration has the fields."""
    try:
        Config(CONFIG, fields).check(target)
    except Unbindable:
        return False
    return True


class RemoteEngines(Client):
    """A fake client of :class:`Engines`; engines on shared devices sleep during training."""

    def __init__(self, engines: Engines) -> None:
        """Store the engines."""
        self.engines = engines

    async def pause_generation(self, *_passed: object, **_options: object) -> None:
        """Stop running and new requests."""
        self.engines.paused = True

    async def resume_generation(self, *_passed: object, **_options: object) -> None:
        """Continue requests."""
        self.engines.paused = False

    async def sleep(self, *_passed: object, **_options: object) -> None:
        """Release memory; no request can be sampled without this memory."""
        self.engines.asleep = True

    async def wake_up(self, *_passed: object, tags: list[str] | None = None, **_options: object) -> None:
        """Take memory again; requests continue when the memory of the cache is back."""
        self.engines.asleep = self.engines.asleep and not (tags is None or "kv_cache" in tags)

    sleep_for_weight_sync, wake_for_weight_sync = sleep, wake_up

    def increment_weight_version(self) -> None:
        """Do nothing: the engines know their weights."""


def updated(method: Callable[..., Any], owner: type, cfg: Any, rows: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: ANN401
    """Update the weights of the engines once per row, while the engines have a request.

    Returns the log-probs of each row's response, and the version of the weights of each token. The workers are fakes.
    """
    answers = []
    ray = SimpleNamespace(get=lambda results: results, put=lambda value: value)
    for row in rows:
        engines = Engines(row, asleep=cfg.trainer.placement.colocate_all)

        def run(_how: str, called: str, *_passed: object, _engines: Engines = engines, **_options: object) -> list[Any]:
            if called == "broadcast_to_inference_engines":
                _engines.receive()
            return [None]

        group = SimpleNamespace(async_run_ray_method=run, offload_to_cpu=nothing, backload_to_gpu=nothing)
        known = inspect.signature(owner).parameters
        passed = {"cfg": cfg, "policy_actor_group": group, "inference_engine_client": RemoteEngines(engines)}
        dispatch = owner(**{name: value for name, value in passed.items() if name in known})
        with replaced_globals(method.__globals__, ray=ray):
            asyncio.run(method(dispatch))
        answers.append(engines.finished())
    return columns(answers)


def _boundary(name: str, settings: Settings) -> Boundary:
    row = row_fields("logprobs", "versions")
    return one_call(
        path=PATH,
        stage="batch",
        call=updated,
        name="updated",
        arguments={
            **functions(method=PATH, owner=OWNER),
            "cfg": Config(CONFIG, {}, {field: name for name, field in _FIELDS.items() if name in settings}),
            "rows": EachRow(Table(row)),
        },
        produced_by={
            "rows": "trainer.py and fully_async_trainer.py, train: dispatch.save_weights_for_sampler after each step; "
            "skyrl_train_backend.py, save_sampler_checkpoint: while other clients may sample"
        },
        outputs=row_outputs(Use("updated"), "rollout_logprob", "version"),
        settings={name: settings},
        claims=_CLAIMS,
        reach="trainer.placement.colocate_all; the fully asynchronous trainer, and the server of the Tinker API",
        requires=(no_empty_response,),
    )
