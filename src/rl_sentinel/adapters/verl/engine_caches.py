"""Boundary of verl's vLLM server after new weights: whether anything that old weights computed is used again."""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_outputs import row_fields, row_outputs
from rl_sentinel.adapters.kit.value_codecs import Knob, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.engine_imports import engine_installed
from rl_sentinel.adapters.verl.rollout_servers import SERVERS
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims

OWNER = SERVERS["vllm"].owner
PATH = f"{OWNER}.clear_kv_cache"

_CLEARED = (
    "vllm_rollout.py, update_weights: reset caches after updating weights, by server_handle.clear_kv_cache; vLLM, "
    "EngineClient: reset_prefix_cache, reset_mm_cache, reset_encoder_cache"
)

#: Setting -> the caches that a request reads.
CACHES = {"text": ("prefix",), "text and images": ("prefix", "mm", "encoder")}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the server's method that resets the caches, in releases that have one."""
    with engine_installed("vllm"):
        found = target.has(PATH)  # imports its module
    if found:
        yield from try_bind(target, PATH, "batch", lambda: [_cleared(name) for name in CACHES])


class CachedEngine:
    """A fake vLLM engine whose cache entries remember the version of the weights that computed them."""

    def __init__(self) -> None:
        """Start with empty caches."""
        self.version = 0
        self.caches: dict[str, int] = {}

    def sample(self, read: tuple[str, ...]) -> int:
        """The oldest weight version among the cache entries that this request reads."""
        return min(self.caches.setdefault(name, self.version) for name in read)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a method
        """The methods ``reset_prefix_cache``, ``reset_mm_cache`` and ``reset_encoder_cache``."""
        if name.startswith("reset_") and name.endswith("_cache"):
            return partial(self._reset, name.removeprefix("reset_").removesuffix("_cache"))
        raise AttributeError(name)

    async def _reset(self, name: str, **_about: object) -> None:
        self.caches.pop(name, None)


class Newest:
    """A version of vLLM that is newer than any other."""

    def __ge__(self, other: object) -> bool:
        """Always return True."""
        return True

    __gt__ = __ge__


def sampled_after_updates(
    clear: Callable[..., Any],
    owner: type,
    images: bool,  # noqa: FBT001 - passed by name
    rows: list[dict[str, Any]],
) -> dict[str, Any]:
    """Run one request per step, and update the weights between steps. Each row is a step.

    Returns the log-probs of the responses, and the oldest version of the weights that each token depends on. With
    ``images``, each request has the same image.
    """
    engine = CachedEngine()
    read = CACHES["text and images" if images else "text"]
    server = bare_instance(owner, engine=engine, node_rank=0)
    versions = []
    with replaced_globals(clear.__globals__, _VLLM_VERSION=Newest()):
        for number, row in enumerate(rows):
            if number:
                engine.version = number
                asyncio.run(clear(server))
            late = number - engine.sample(read)
            versions.append([version - late for version in row["versions"]])
    return {
        "logprobs": [torch.tensor(row["logprobs"]) for row in rows],
        "versions": [torch.tensor(row) for row in versions],
    }


def _cleared(name: str) -> Boundary:
    row = row_fields("logprobs", "versions")
    return one_call(
        path=PATH,
        stage="batch",
        call=sampled_after_updates,
        name="sampled",
        arguments={**functions(clear=PATH, owner=OWNER), "images": Knob("images"), "rows": EachRow(Table(row))},
        produced_by={
            "rows": "ray_trainer.py, fit: the weights are sent after each update, then the next batch is sampled"
        },
        outputs=row_outputs(Use("sampled"), "rollout_logprob", "version"),
        settings={name: {"images": name != "text"}},
        claims=claims(_CLEARED, conserves=True),
        reach="rollout.name=vllm" + (", prompts with images" if name != "text" else ""),
        requires=(no_empty_response,),
    )
