"""Fakes for the engines that TRL's trainers sample with: they record the options and return known rows."""

import importlib.util
import inspect
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.rank_threads import run_on_ranks
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.scripted_sampling import vllm_completion
from rl_sentinel.adapters.trl.inline_engine_fakes import VLLM_VERSION, client_names, make_inline_sampler, sample_inline
from rl_sentinel.adapters.trl.rollout_fakes import FIRST_WORD, ready_to_train
from rl_sentinel.adapters.trl.tiny_trainer import make_trainer

VLLM = "trl.generation.vllm_generation"


#: Engine -> the name that it has for an option that only ``generation_kwargs`` passes on.
OTHER_OPTION = {"transformers": "no_repeat_ngram_size", "server": "seed", "colocate": "seed"}


class Engine:
    """A fake vLLM (server client or colocated engine), which finds rows by prompt and records request options."""

    def __init__(self) -> None:
        """Start with no rows and no requests."""
        self.rows: dict[int, list[tuple[list[int], list[float]]]] = {}
        self.sent: list[dict[str, Any]] = []

    def get_server_info(self) -> dict[str, Any]:
        """Server information, which says that log-probs are those of the sampled distribution."""
        return {"model_config": {"logprobs_mode": "processed_logprobs"}}

    def generate(self, prompts: list[Any], sampling_params: Any = None, **options: Any) -> Any:  # noqa: ANN401 - as either
        """Rows for the prompts, in the format of the server or of the engine."""
        if sampling_params is not None:
            self.sent.append(dict(vars(sampling_params)))
            asked = [prompt["prompt_token_ids"] if isinstance(prompt, dict) else prompt for prompt in prompts]
            return [self._request(prompt, sampling_params.n) for prompt in asked]
        more = options.pop("generation_kwargs", None) or {}
        self.sent.append({**options, **more})
        rows = [row for prompt in prompts for row in self._next(prompt, options["n"])]
        sampled = {"completion_ids": [ids for ids, _ in rows], "logprobs": [logprobs_of(own) for _, own in rows]}
        return {"prompt_ids": prompts, **sampled, "logprob_token_ids": [[[token] for token in ids] for ids, _ in rows]}

    def _next(self, prompt: Sequence[int] | str, count: int) -> list[tuple[list[int], list[float]]]:
        """The next rows of a prompt, which is one token or one word."""
        rows = self.rows[FIRST_WORD + int(prompt[1:]) if isinstance(prompt, str) else prompt[0]]
        return [rows.pop(0) for _ in range(count)]

    def _request(self, prompt: Sequence[int] | str, count: int) -> Any:  # noqa: ANN401 - as vLLM's
        """The output of one request."""
        rows = self._next(prompt, count)
        return SimpleNamespace(prompt_token_ids=prompt, outputs=[vllm_completion(*row) for row in rows])


def logprobs_of(own: list[float]) -> list[Any]:
    """The log-probs of a row in the format of the release's server: one number per token, or one list per token."""
    names = client_names()
    return list(own) if "logprobs" in names and "logprob_token_ids" not in names else [[x] for x in own]


def make_sampler(kind: str, engine: str, other: int | None = None, **settings: Any) -> Any:  # noqa: ANN401 - a trainer
    """A trainer that samples with ``transformers``, with a vLLM ``server``, or with a ``colocate`` vLLM engine.

    ``other`` is the value of an option that only ``generation_kwargs`` contains.
    """
    if other is not None:
        settings["generation_kwargs"] = {OTHER_OPTION[engine]: other}
    if engine == "transformers":
        trainer = make_trainer(kind, **settings)
    elif importlib.util.find_spec(VLLM.rpartition(".")[0]):
        trainer = _with_vllm(kind, engine, settings)
    else:
        trainer = make_inline_sampler(kind, engine, settings)
    trainer.other_option = other
    return trainer


def _with_vllm(kind: str, engine: str, settings: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a trainer
    module = importlib.import_module(VLLM)
    started = module.VLLMGeneration._init_vllm  # noqa: SLF001 - where it connects to a server, or starts an engine
    for name in ("SamplingParams", "StructuredOutputsParams"):
        vars(module).setdefault(name, SimpleNamespace)
    vars(module).setdefault("vllm", SimpleNamespace(__version__=VLLM_VERSION))
    module.VLLMGeneration._init_vllm = start  # noqa: SLF001
    constructor = vars(importlib.import_module(f"trl.trainer.{kind}_trainer"))
    try:
        with replaced_globals(constructor, is_vllm_available=lambda: True):
            return make_trainer(kind, engine=engine, **settings)
    finally:
        module.VLLMGeneration._init_vllm = started  # noqa: SLF001


def start(generation: Any) -> None:  # noqa: ANN401 - of the target
    """Set a fake engine, in place of starting vLLM."""
    generation.vllm_client = generation.llm = Engine()


def request_options(entry: Callable[..., Any], trainer: Any, engine: str) -> dict[str, float]:  # noqa: ANN401 - a trainer
    """Sample for two prompts, and return the numeric options of the first request; other options are NaN."""
    if engine != "transformers":
        rows = [([5], [-0.5])] * 2
        _, sent = sample(entry, trainer, [[3], [4]], rows, 1)
    else:
        ready = ready_to_train(trainer, 1)
        sent = []
        ready.model.generate = partial(recorded, sent)
        entry(ready, **arguments(entry, [[3], [4]]))
    found = {name: value for name, value in sent[0].items() if isinstance(value, int | float)}
    return defaultdict(lambda: float("nan"), {name: float(value) for name, value in found.items()})


def recorded(sent: list[dict[str, Any]], input_ids: Tensor, generation_config: Any, **options: object) -> Tensor:  # noqa: ANN401 - of transformers
    """A fake ``generate`` of the model, which records the options; each completion is one end token."""
    sent.append({**generation_config.to_dict(), **options})
    return torch.cat([input_ids, torch.ones_like(input_ids[:, :1])], 1)


def sample(  # noqa: PLR0913 - the parts of a request
    entry: Callable[..., Any],
    trainer: Any,  # noqa: ANN401 - a trainer
    prompts: list[list[int]],
    rows: list[tuple[list[int], list[float]]],
    ranks: int,
    *,
    split: bool = False,
) -> tuple[list[Any], list[dict[str, Any]]]:
    """Sample on all ranks; return the rows that each rank gets, and the options of one engine's requests.

    The server samples for all ranks. A colocated engine samples for one rank; with ``split``, one engine extends over
    all ranks: each rank sends the prompts of all ranks and gets all rows.
    """
    if not hasattr(trainer, "vllm_generation"):
        texts = [f"w{ids[0] - FIRST_WORD}" for ids in prompts]
        found, asked = sample_inline(entry, trainer, texts, rows, ranks, split=split)
        return found, asked.sent
    size, engine = len(rows) // ranks, Engine()
    generations = len(rows) // len({tuple(prompt) for prompt in prompts})
    trainers = []
    for rank in range(ranks):
        ready = ready_to_train(trainer, 1, None, rank, ranks)
        ready.num_generations = generations
        generation = ready.vllm_generation = _copied(ready)
        if generation.mode == "colocate":
            engine = generation.llm = Engine()
        generation.vllm_client = engine
        generation.tensor_parallel_size, generation.tp_group = ranks if split else 1, range(ranks)
        part = slice(None) if split or generation.mode == "server" else slice(rank * size, (rank + 1) * size)
        engine.rows = defaultdict(list)
        for prompt, row in zip(prompts[part], rows[part], strict=True):
            engine.rows[prompt[0]].append(row)
        trainers.append(ready)
    parts = [prompts[rank * size : (rank + 1) * size] for rank in range(ranks)]
    answers = run_on_ranks(ranks, lambda rank: entry(trainers[rank], **arguments(entry, parts[rank], generations)))
    return answers, engine.sent


def _copied(ready: Any) -> Any:  # noqa: ANN401 - a trainer, its generation
    """A copy of the trainer's generation object for one rank, which transfers no weights."""
    generation = copy(ready.vllm_generation)
    generation.accelerator, generation.sync_weights = ready.accelerator, lambda: None
    return generation


def arguments(entry: Callable[..., Any], prompts: list[list[int]], generations: int = 1) -> dict[str, Any]:
    """The arguments for the parameters that the method has in this release."""
    texts = [f"w{ids[0] - FIRST_WORD}" for ids in prompts]
    known: Mapping[str, Any] = {"prompt_ids": prompts, "prompts": texts, "multimodal_fields": {}, "images": None}
    known = {**known, "num_generations": generations, "inputs": [{"prompt": text} for text in texts]}
    return {name: known[name] for name in inspect.signature(entry).parameters if name in known}
