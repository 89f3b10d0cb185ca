"""Fake vLLM engines for TRL releases whose trainer calls the engine directly."""

import ast
import importlib.util
import inspect
import textwrap
from collections import defaultdict
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.rank_threads import run_on_ranks
from rl_sentinel.adapters.kit.replacement import nothing
from rl_sentinel.adapters.kit.scripted_sampling import vllm_completion
from rl_sentinel.adapters.trl.rollout_fakes import Rollout, ready_to_train
from rl_sentinel.adapters.trl.tiny_trainer import make_trainer

#: Where releases have the client of a vLLM server.
CLIENTS = ("trl.extras", "trl.generation")

#: Classes of vLLM that a trainer's module imports if vLLM is installed.
_VLLM_CLASSES = ("SamplingParams", "GuidedDecodingParams", "StructuredOutputsParams")

#: A version of vLLM that all releases accept.
VLLM_VERSION = "0.12.0"

#: The keys that the reply of a server may have.
_REPLIES = ("prompt_ids", "completion_ids", "logprobs")

#: A row: token ids and their log-probs.
Row = tuple[list[int], list[float]]


class TextEngine:
    """A fake vLLM (server client or colocated engine), which finds known rows by the last word of a prompt.

    Attributes:
        rows: last word of a prompt -> the rows that it has not returned yet.
        sent: the options of each request.
        seen: last word of a prompt -> the prompt's tokens, as the engine reads them.
    """

    def __init__(self, tokenizer: Any) -> None:  # noqa: ANN401 - of transformers
        """Start with no rows and no requests."""
        self.tokenizer = tokenizer
        self.rows: dict[str, list[Row]] = defaultdict(list)
        self.sent: list[dict[str, Any]] = []
        self.seen: dict[str, list[int]] = {}
        model = SimpleNamespace(load_weights=nothing)  # for a trainer that transfers weights before it samples
        runner = SimpleNamespace(model_runner=SimpleNamespace(model=model))
        self.llm_engine = SimpleNamespace(model_executor=SimpleNamespace(driver_worker=runner))
        self.reset_prefix_cache = nothing

    def generate(self, prompts: list[str], sampling_params: Any = None, **options: Any) -> Any:  # noqa: ANN401 - as either
        """Rows for the prompts, in the format of the server or of the engine."""
        if sampling_params is not None:
            self.sent.append(dict(vars(sampling_params)))
            return [self._request(prompt, self.sent[-1]) for prompt in prompts]
        self.sent.append({**options, **(options.pop("generation_kwargs", None) or {})})
        answers = [self._request(prompt, self.sent[-1]) for prompt in prompts]
        rows = [output for answer in answers for output in answer.outputs]
        logprobs = [[next(iter(one.values())).logprob for one in row.logprobs] for row in rows]
        found = ([answer.prompt_token_ids for answer in answers], [row.token_ids for row in rows], logprobs)
        names = server_reply()
        return (
            {name: value for name, value in zip(_REPLIES, found, strict=True) if name in names} if names else found[1]
        )

    def _request(self, prompt: Any, options: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a text, or with images; as vLLM's
        """The output of one request, which may limit the prompt to its last tokens."""
        text = prompt["prompt"] if isinstance(prompt, dict) else prompt
        ids = list(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        most = options.get("truncate_prompt_tokens")
        ids = ids[-most:] if most else ids
        word = last_word(self.tokenizer, ids)
        self.seen[word] = ids
        rows = [self.rows[word].pop(0) for _ in range(options["n"])]
        return SimpleNamespace(prompt_token_ids=ids, outputs=[vllm_completion(*row) for row in rows])


def last_word(tokenizer: Any, ids: list[int]) -> str:  # noqa: ANN401 - of transformers
    """The last word of a prompt, which is the key to its rows."""
    word: str = tokenizer.decode(ids[-1:])
    return word.strip()


def server_reply() -> tuple[str, ...]:
    """The names in the dict that the server of this release returns; empty if it returns completions only."""
    return tuple(name for name in _REPLIES if name in client_names())


def client_names() -> frozenset[str]:
    """The keys of the dict that the client of the vLLM server returns; empty if it returns no dict."""
    places = [f"{package}.vllm_client" for package in CLIENTS if importlib.util.find_spec(package)]
    place = next((name for name in places if importlib.util.find_spec(name)), "")
    if not place:
        return frozenset()
    source = inspect.getsource(importlib.import_module(place).VLLMClient.generate)
    returned = [n.value for n in ast.walk(ast.parse(textwrap.dedent(source))) if isinstance(n, ast.Return)]
    keys = [k.value for d in returned if isinstance(d, ast.Dict) for k in d.keys if isinstance(k, ast.Constant)]
    return frozenset(str(key) for key in keys)


def make_inline_sampler(kind: str, engine: str, settings: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a trainer
    """A trainer in the vLLM mode ``server`` or ``colocate``; the mode is set after construction."""
    module = vars(importlib.import_module(f"trl.trainer.{kind}_trainer"))
    for name in _VLLM_CLASSES:
        module.setdefault(name, SimpleNamespace)
    module.setdefault("vllm", SimpleNamespace(__version__=VLLM_VERSION))
    trainer = make_trainer(kind, **settings)
    trainer.vllm_mode = engine
    return trainer


def sample_inline(  # noqa: PLR0913 - the parts of a request
    entry: Callable[..., Any],
    trainer: Any,  # noqa: ANN401 - a trainer
    prompts: list[str],
    rows: list[Row],
    ranks: int,
    *,
    split: bool = False,
) -> tuple[list[dict[str, list[Any]]], TextEngine]:
    """Sample on all ranks; return the results of each rank, and the engine of the first rank.

    The results are ``completion_ids``, ``prompt_ids``, and ``logprobs`` if the method returns them. The server samples
    for all ranks. A colocated engine samples for one rank; with ``split``, one engine extends over all ranks: each rank
    sends the prompts of all ranks and gets all rows.
    """
    trainers, engines = on_ranks(trainer, prompts, rows, ranks, over=ranks if split else 1)
    answers = call_ranks(entry, trainers, prompts)
    for engine in engines[1:]:
        engines[0].seen |= engine.seen
    return [as_lists(entry, answer) for answer in answers], engines[0]


def on_ranks(
    trainer: Any,  # noqa: ANN401 - a trainer
    prompts: list[str],
    rows: list[Row],
    ranks: int,
    over: int = 1,
) -> tuple[list[Any], list[TextEngine]]:
    """The trainer and the engine of each rank; one colocated engine extends over ``over`` ranks."""
    size, tokenizer = len(rows) // ranks, trainer.processing_class
    last = [text.split()[-1] for text in prompts]
    width, server = max(len(tokens) for tokens, _ in rows), TextEngine(tokenizer)
    trainers, engines = [], []
    for rank in range(ranks):
        ready = ready_to_train(trainer, 1, Rollout(old_logprobs=torch.zeros(size, width)), rank, ranks)
        ready.num_generations = ready.args.num_generations = ready.num_generations_eval = len(rows) // len(set(last))
        ready.use_vllm = ready.args.use_vllm = True
        ready._last_loaded_step = ready.state.global_step  # noqa: SLF001 - so that it sends no weights
        ready.guided_decoding_regex = ready.structured_outputs_regex = ready.rollout_func = None
        first = rank - rank % over
        ready.vllm_tensor_parallel_size, ready.tp_group = over, range(first, first + over)
        alone = ready.vllm_mode == "colocate"
        ready.vllm_client = ready.llm = engine = TextEngine(tokenizer) if alone else server
        part = slice(first * size, (first + over) * size) if alone else slice(None)
        if alone or rank == 0:
            for word, row in zip(last[part], rows[part], strict=True):
                engine.rows[word].append(row)
        trainers.append(ready)
        engines.append(engine)
    return trainers, engines


def call_ranks(entry: Callable[..., Any], trainers: list[Any], prompts: list[str]) -> list[Any]:
    """Call the method on each rank with the rank's part of the prompts, and return the results."""
    size = len(prompts) // len(trainers)
    parts = [prompts[rank * size : (rank + 1) * size] for rank in range(len(trainers))]
    return run_on_ranks(len(trainers), lambda rank: entry(trainers[rank], **_arguments(entry, parts[rank])))


def _arguments(entry: Callable[..., Any], prompts: list[str]) -> dict[str, Any]:
    known: Mapping[str, Any] = {"prompts": prompts, "images": None, "inputs": [{"prompt": text} for text in prompts]}
    return {name: known[name] for name in inspect.signature(entry).parameters if name in known}


def as_lists(entry: Callable[..., Any], answer: Any) -> dict[str, list[Any]]:  # noqa: ANN401 - tensors by name, or a tuple
    """What a rank returned, by name, one list per row. Completions from a tensor keep their padding."""
    if not isinstance(answer, dict):
        source = inspect.getsource(inspect.unwrap(entry)).rpartition("return ")[2]
        return dict(zip((name.strip() for name in source.split(",")), answer, strict=True))
    ids, mask = answer["prompt_ids"], answer["prompt_mask"].bool()
    whole: Tensor = answer["completion_ids"]
    return {
        "prompt_ids": [own[kept].tolist() for own, kept in zip(ids, mask, strict=True)],
        "completion_ids": whole.tolist(),
    }
