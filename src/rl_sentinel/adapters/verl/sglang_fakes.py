"""Fakes of SGLang for verl's workers: engine, sampling options, device mesh."""

import asyncio
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.process_group import one_process_group
from rl_sentinel.adapters.verl.sampling_engine_fakes import KnownResponses

#: Attributes of SGLang's ``SamplingParams``; it keeps the words of ``stop`` under another name.
ATTRIBUTES: Mapping[str, Any] = {
    "max_new_tokens": 128,
    "min_new_tokens": 0,
    "stop_strs": None,
    "stop_token_ids": None,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 1 << 30,
    "min_p": 0.0,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "repetition_penalty": 1.0,
    "n": 1,
    "regex": None,
    "json_schema": None,
    "ebnf": None,
    "structural_tag": None,
    "ignore_eos": False,
    "skip_special_tokens": True,
    "spaces_between_special_tokens": True,
    "no_stop_trim": False,
    "custom_params": None,
}


class SGLang:
    """A fake SGLang engine: one output per request and sample, with the log-prob of each token."""

    _engine = None

    def __init__(self, known: KnownResponses) -> None:
        """Store the responses that the engine returns."""
        self.known = known

    def generate(self, *, input_ids: list[list[int]], sampling_params: Mapping[str, Any], **_about: object) -> Any:  # noqa: ANN401
        """The outputs of all requests; the outputs of one request are consecutive."""
        answers = self.known.answers(input_ids, dict(sampling_params))
        return [_output(*one) for answer in answers for one in answer]

    async def async_generate(self, **request: Any) -> Any:  # noqa: ANN401
        """The outputs of :meth:`generate`."""
        return self.generate(**request)

    async def flush_cache(self) -> None:
        """Do nothing."""

    def release_memory_occupation(self) -> None:
        """Do nothing."""


def _output(tokens: list[int], logprobs: list[float]) -> dict[str, Any]:
    """The output of one response: triples of log-prob, token and text."""
    triples = [(logprob, token, None) for logprob, token in zip(logprobs, tokens, strict=True)]
    return {"text": "", "output_ids": tokens, "meta_info": {"output_token_logprobs": triples}}


class Mesh:
    """A fake of torch's device mesh with one process."""

    mesh = torch.zeros(1, dtype=torch.long)

    def __getitem__(self, _dimension: str) -> "Mesh":
        """The mesh of one dimension."""
        return self

    def get_group(self, _dimension: str = "") -> Any:  # noqa: ANN401 - a process group
        """The group of this process."""
        return one_process_group()

    def get_rank(self) -> int:
        """The first rank."""
        return 0

    def get_local_rank(self) -> int:
        """The first rank."""
        return 0

    def size(self, _dimension: int = 0) -> int:
        """The number of processes, 1."""
        return 1


def worker_class(owner: type, known: KnownResponses) -> type:
    """A subclass of a worker that starts no processes and loads no model, if the worker has methods for that."""

    def enter_cluster(self: Any, **_about: object) -> None:  # noqa: ANN401 - of the target
        self._device_mesh_cpu, self._rank, self._tp_rank, self._tp_size = Mesh(), 0, 0, 1

    def start_engine(self: Any, *_about: object) -> None:  # noqa: ANN401 - of the target
        self._engine = SGLang(known)

    methods = {"_init_distributed_env": enter_cluster, "_init_inference_engine": start_engine}
    return type(owner.__name__, (owner,), {name: method for name, method in methods.items() if hasattr(owner, name)})


@contextmanager
def sglang_fakes(names: dict[str, Any], known: KnownResponses) -> Iterator[None]:
    """Replace what a worker's module imports from SGLang, gathering of objects, the environment and the event loop."""

    def gather(results: list[Any], value: object, _group: object = None) -> None:
        results[:] = [value]

    fakes: dict[str, Any] = {
        "VerlEngine": lambda **_options: SGLang(known),
        "SamplingParams": lambda: SimpleNamespace(**ATTRIBUTES),
        "init_device_mesh": lambda *_shape, **_names: Mesh(),
        "broadcast_pyobj": lambda data, **_about: data,
        "get_ip": lambda: "127.0.0.1",
        "get_open_port": lambda: 1,
    }
    fakes |= {"ServerArgs": SimpleNamespace, "PortArgs": SimpleNamespace(init_new=_ports)}
    loop, environment = asyncio.new_event_loop(), {"CUDA_VISIBLE_DEVICES": "0", "WORLD_SIZE": "1"}
    asyncio.set_event_loop(loop)
    try:
        with (
            replaced_globals(names, **fakes),
            patch.dict(os.environ, environment),
            patch("torch.distributed.all_gather_object", gather),
        ):
            yield
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def _ports(_arguments: object) -> SimpleNamespace:
    return SimpleNamespace(nccl_port=1)
