"""AReaL's requests with a LoRA adapter: the version of the adapter that samples after each update from disk."""

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

from rl_sentinel.adapters.areal.engine_clients import BACKENDS, GENERATE
from rl_sentinel.adapters.areal.requests import CONFIG, REQUEST
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.value_codecs import Derived, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use

META = "areal.api.io_struct.WeightUpdateMeta"

#: The name of the adapter; the number of versions that a server keeps; the version of a request without an adapter.
_NAME, _KEPT, _NONE = "adapter", 2, -1.0

_CALLER = (
    "areal/trainer/rl_trainer.py, train: weight_update_meta.with_version(new_version), an update of the servers, then "
    "set_version; lora_keep_versions: max_head_offpolicyness + 2; remote_inf_engine.py, agenerate: the client's version"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """One boundary per server, in releases whose adapters have versions."""
    if not target.has(f"{META}.with_version") or target.fails(META) or not target.has(CONFIG):
        return
    for name, path in BACKENDS[GENERATE].items():
        update = f"{path}.build_disk_weight_update_requests"
        if not target.has(update):
            continue
        if why := target.fails(path):
            yield Unbound(update, "batch", why)
        else:
            yield from bindable(target, _sampled(name, path))


class Server:
    """A fake inference server with adapters: name -> the folder from which it was loaded."""

    def __init__(self) -> None:
        """Start without an adapter."""
        self.adapters: dict[str, str] = {}

    def update(self, request: Any) -> None:  # noqa: ANN401 - AReaL's class
        """Load or unload an adapter; an adapter that is already loaded is not loaded again."""
        name = request.payload["lora_name"]
        if "unload" in request.endpoint:
            self.adapters.pop(name, None)
        else:
            self.adapters.setdefault(name, request.payload["lora_path"])

    def version(self, payload: dict[str, Any]) -> float:
        """The version of the adapter that samples a request; -1 without an adapter."""
        name = payload.get("lora_path", payload.get("model", ""))
        return float(self.adapters[name].rpartition("v")[2]) if name in self.adapters else _NONE


def sampled_versions(
    backend: Callable[..., Any],
    meta: Any,  # noqa: ANN401 - a data class
    request: Callable[..., Any],
    config: Callable[..., Any],
    count: int,
) -> dict[str, list[float]]:
    """Update the adapter ``count`` times; return the versions that then sample a new and an earlier request.

    ``uninterrupted`` are the expected versions, ``resumed`` those that sample.
    """
    server, made = Server(), backend()
    options = {"type": "disk", "path": "root/weight_update", "use_lora": True, "lora_name": _NAME}
    if "lora_keep_versions" in {field.name for field in fields(meta)}:
        options["lora_keep_versions"] = _KEPT
    plain, ask = meta(**options), request(input_ids=[1], gconfig=config(lora_name=_NAME))

    def sampled(version: int) -> float:
        return server.version(made.build_generation_request(ask, with_lora=True, version=version).payload)

    columns: dict[str, list[float]] = {"uninterrupted.new": [], "resumed.new": []}
    columns |= {"uninterrupted.earlier": [], "resumed.earlier": []}
    for version in range(1, count + 1):
        for one in made.build_disk_weight_update_requests(plain.with_version(version)).requests:
            server.update(one)
        earlier = max(version - 1, 1)
        columns["uninterrupted.new"].append(float(version))
        columns["resumed.new"].append(sampled(version))
        columns["uninterrupted.earlier"].append(float(earlier))
        columns["resumed.earlier"].append(sampled(earlier))
    return columns


def _sampled(name: str, path: str) -> Boundary:
    names = {
        f"{kind} of {which} request": f"{when}.{which}"
        for which in ("new", "earlier")
        for kind, when in (("version", "uninterrupted"), ("adapter", "resumed"))
    }
    return one_call(
        path=f"{path}.build_disk_weight_update_requests -> {path}.build_generation_request",
        stage="batch",
        call=sampled_versions,
        name="versions",
        arguments={
            **functions(backend=path, meta=META, request=REQUEST, config=CONFIG),
            "count": Derived(lambda inputs: inputs.batch.rows),
        },
        produced_by={"count": _CALLER},
        remembered=True,
        reads=frozenset({"group"}),
        outputs={
            text: Output("B", "", quantity, at=Use("versions")[quantity], form=PerRow("list"))
            for text, quantity in names.items()
        },
        settings={f"{name}, adapters": {}},
        reach=f"use_lora=True with {name} and weight_update_mode='disk'",
    )
