"""The vLLM engines that TRL starts: the log-probs that they return, at the sampling temperature."""

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.forms import Padded
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.scripted_sampling import vllm_completion
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import GRPO
from rl_sentinel.adapters.trl.inline_engine_fakes import VLLM_VERSION
from rl_sentinel.adapters.trl.release import fields_of
from rl_sentinel.adapters.trl.sampling import engines_of, is_inline, sampling_path
from rl_sentinel.adapters.trl.sampling_engine_fakes import VLLM
from rl_sentinel.adapters.trl.tiny_trainer import make_trainer
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec

#: The field of the configuration that turns on the correction by the engine's log-probs.
CORRECTION = "vllm_importance_sampling_correction"

SERVER = "trl.scripts.vllm_serve"
WORKER = f"{SERVER}.llm_worker"

#: The classes of vLLM that modules of TRL import if vLLM is installed.
_CLASSES = ("SamplingParams", "GuidedDecodingParams", "StructuredOutputsParams")

_CITE = (
    "grpo_config.py, vllm_importance_sampling_correction: the trainer's log-probs, at the sampling temperature, are "
    "compared with those that vLLM returns; vLLM, ModelConfig.logprobs_mode: raw log-probs are those before the "
    "temperature, and the default"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of a server's engine and of a trainer's own engine, in releases whose loss uses their log-probs."""
    if CORRECTION not in fields_of(target, GRPO):
        return
    if target.has(WORKER) and not target.fails(SERVER):
        yield from bindable(target, _boundary(WORKER, served, {"entry": Constant(Function(WORKER))}, "server"))
    path = sampling_path(target, GRPO)
    if target.has(path) and not target.fails(GRPO) and "colocate" in engines_of(target, path):
        starts = f"{GRPO}.__init__" if is_inline(target, path) else f"{VLLM}.VLLMGeneration._init_vllm"
        parts = {"kind": Constant("grpo"), "temperature": Knob("temperature")}
        trainer = Object(colocated_trainer, parts, at={"temperature": "args.temperature"}, shared=True)
        yield from bindable(target, _boundary(starts, colocated, {"trainer": trainer}, "colocate"))


class LogitEngine:
    """A fake of vLLM's ``LLM``, which returns the log-probs of known tokens, from known logits.

    As in vLLM, the log-probs are those before the temperature unless ``logprobs_mode`` asks for processed ones.
    """

    def __init__(self, **options: object) -> None:
        """Store the options; the caller sets ``[B, T, V]`` logits and ``[B, T]`` tokens."""
        self.logits, self.tokens = torch.zeros(1, 1, 1), torch.zeros(1, 1, dtype=torch.int64)
        self.processed = options.get("logprobs_mode", "raw_logprobs") == "processed_logprobs"

    def sleep(self, **_options: object) -> None:
        """Do nothing: there are no weights to release."""

    def generate(self, prompts: list[Any], sampling_params: Any, **_options: object) -> list[Any]:  # noqa: ANN401 - a namespace
        """The output of each request. Prompt n has the tokens of row n."""
        logits = self.logits / sampling_params.temperature if self.processed else self.logits
        logprobs = logits.log_softmax(-1).gather(-1, self.tokens.unsqueeze(-1)).squeeze(-1)
        rows = zip(self.tokens.tolist(), logprobs.tolist(), strict=True)
        return [
            SimpleNamespace(prompt_token_ids=[1], outputs=[vllm_completion(*row)])
            for row, _ in zip(rows, prompts, strict=True)
        ]


class Connection:
    """A fake of the pipe to the worker of a server. It sends one request, then the command to stop."""

    def __init__(self, request: dict[str, Any]) -> None:
        """Store the arguments of the request."""
        self.commands: list[dict[str, Any]] = [
            {"type": "call", "method": "generate", "kwargs": request},
            {"type": "shutdown"},
        ]
        self.replies: list[Any] = []

    def recv(self) -> dict[str, Any]:
        """The next command."""
        return self.commands.pop(0)

    def send(self, reply: Any) -> None:  # noqa: ANN401 - a state, or outputs of vLLM
        """Store what the worker answers."""
        self.replies.append(reply)


@contextmanager
def fake_vllm(engine: Callable[..., Any], *names: str) -> Iterator[None]:
    """Replace vLLM's classes, as modules import them at their start or inside of a function; restore ``os.environ``."""
    fakes: dict[str, Any] = {"LLM": engine, **dict.fromkeys(_CLASSES, SimpleNamespace)}
    module = SimpleNamespace(**fakes, __version__=VLLM_VERSION)
    more = {"is_vllm_available": lambda *_args: True, "ensure_master_addr_port": lambda *_args: None}
    modules = [vars(importlib.import_module(name)) for name in names]
    added = [(place, name) for place in modules for name in (*fakes, "vllm") if name not in place]
    for place, name in added:
        place[name] = None
    try:
        with (
            patch.dict(os.environ),
            patch.dict(sys.modules, {"vllm": module}),
            replaced_globals(*modules, **fakes, **more, vllm=module),
        ):
            yield
    finally:
        for place, name in added:
            del place[name]


def request_of(logits: Tensor, temperature: float) -> dict[str, Any]:
    """The arguments of a request for one sample of each row's prompt, with the log-prob of its tokens."""
    params = SimpleNamespace(n=1, temperature=temperature, top_p=1.0, top_k=-1, min_p=0.0, logprobs=0)
    return {"prompts": [{"prompt_token_ids": [1]}] * len(logits), "sampling_params": params}


def as_tensor(outputs: list[Any]) -> Tensor:
    """The ``[B, T]`` log-probs of vLLM's outputs."""
    rows = [output.outputs[0].logprobs for output in outputs]
    return torch.tensor([[next(iter(one.values())).logprob for one in row] for row in rows])


def served(entry: Callable[..., Any], logits: Tensor, tokens: Tensor, temperature: float) -> Tensor:
    """The log-probs that the worker of a server returns."""

    def start(**options: object) -> LogitEngine:
        engine = LogitEngine(**options)
        engine.logits, engine.tokens = logits, tokens
        return engine

    connection = Connection(request_of(logits, temperature))
    arguments: Any = importlib.import_module(SERVER).ScriptArguments(model="tiny")
    with fake_vllm(start, SERVER):
        entry(arguments, 0, 0, connection)
    return as_tensor(connection.replies[-1])


def colocated_trainer(kind: str, temperature: float) -> Any:  # noqa: ANN401 - a trainer
    """A trainer whose constructor has started an engine in its own process."""
    places = [f"trl.trainer.{kind}_trainer", *([VLLM] if VLLM in sys.modules else [])]
    with fake_vllm(LogitEngine, *places):
        return make_trainer(kind, engine="colocate", temperature=temperature)


def colocated(trainer: Any, logits: Tensor, tokens: Tensor, temperature: float) -> Tensor:  # noqa: ANN401 - a trainer
    """The log-probs that the engine of a trainer returns."""
    engine = getattr(trainer, "llm", None) or trainer.vllm_generation.llm
    engine.logits, engine.tokens = logits, tokens
    return as_tensor(engine.generate(**request_of(logits, temperature)))


def _boundary(path: str, call: Callable[..., Any], arguments: dict[str, Codec], engine: str) -> Boundary:
    return one_call(
        path=path,
        stage="batch",
        call=call,
        name="sampled",
        arguments={
            **arguments,
            "logits": Column("logits"),
            "tokens": Column("token"),
            "temperature": Knob("temperature"),
        },
        produced_by={
            "temperature": "grpo_trainer.py: temperature=self.temperature of each request, 1.0 by default. The "
            "requests are made here; of TRL, the start of the engine is run"
        },
        outputs={"logprob": Output("B T", "nats", "logprob", at=Use("sampled"), form=Padded())},
        settings={f"log-probs, {engine}": {"temperature": 0.5}},
        claims=claims(_CITE, output_algorithms={"logprob": "log-prob of the token"}, knobs={"temperature": (0.7, 1.6)}),
        reach=f"use_vllm=True, vllm_mode={engine}, temperature",
        requires=(no_empty_response,),
    )
