"""TRL's asynchronous GRPO: what its constructor is given, and what its worker then asks the vLLM server for."""

import asyncio
import importlib
import inspect
import logging
import queue
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.arriving_settings import arrives, bind_arriving
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.replacement import nothing, replaced_globals
from rl_sentinel.adapters.kit.value_codecs import functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.async_loss import TRAINER
from rl_sentinel.adapters.trl.async_scoring import OWNERS
from rl_sentinel.adapters.trl.tiny_trainer import TEMPLATE, RowRewards, make_model, make_tokenizer
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.case import Settings

#: What a user sets; no number is a default. The template of the user's tokenizer starts with the first word, and adds
#: the second, which is a value of ``chat_template_kwargs``.
SETTINGS: Settings = {
    "temperature": 0.7,
    "max_completion_length": 8,
    "num_generations": 3,
    "first_word": "w25",
    "template_word": "w24",
}

#: Place in the requests for a prompt -> setting.
PLACES: Mapping[str, str] = {
    "temperature": "temperature",
    "max_tokens": "max_completion_length",
    "requests of a prompt": "num_generations",
    "word of the tokenizer's template": "first_word",
    "word of chat_template_kwargs": "template_word",
}

#: Number of prompts of the data set.
PROMPTS = 2

_DOCS = (
    "async_grpo_config.py, AsyncGRPOConfig, docstring: temperature, maximum length and number of completions, keyword "
    "arguments of the chat template; AsyncGRPOTrainer, docstring of processing_class: used to process the data"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundary of the requests for a prompt."""
    path = next((f"{owner}._generate_loop" for owner in OWNERS if target.has(f"{owner}._generate_loop")), "")
    if not path or not target.has(TRAINER):
        return
    if why := target.fails(TRAINER) or target.fails(path):
        yield Unbound(path, "config", why)
        return
    boundary = bind_arriving(
        f"{TRAINER} -> {path}",
        request_options,
        functions(kind=TRAINER, entry=path),
        PLACES,
        settings={"requests": SETTINGS},
        cite=_DOCS,
        reach="AsyncGRPOTrainer(processing_class=..., args=AsyncGRPOConfig(temperature=..., chat_template_kwargs=...))",
    )
    yield from bindable(target, boundary)


def request_options(
    kind: Any,  # noqa: ANN401 - a class of the target
    entry: Callable[..., Any],
    options: Settings,
    places: Mapping[str, str],
) -> dict[str, float]:
    """Build the trainer, let its worker ask for completions, and return what arrives in the first prompt's requests."""
    tokenizer = make_tokenizer()
    added = "{% if added %}{{ added + ' ' }}{% endif %}"
    tokenizer.chat_template = f"{{{{ '{options['first_word']} ' }}}}" + TEMPLATE + added
    asked = requests_of(entry, trainer_of(kind, tokenizer, options).rollout_worker)
    words = tokenizer.convert_ids_to_tokens(asked[0]["prompt"])
    found: dict[str, object] = {
        "temperature": asked[0].get("temperature"),
        "max_tokens": asked[0].get("max_tokens"),
        "requests of a prompt": len([one for one in asked if one["prompt"] == asked[0]["prompt"]]),
        "word of the tokenizer's template": words[0],
        "word of chat_template_kwargs": words[-1],
    }
    return {place: arrives(options[name], found[place]) for place, name in places.items()}


def trainer_of(kind: Any, tokenizer: Any, options: Settings) -> Any:  # noqa: ANN401 - of the target
    """A trainer that its constructor builds, with this tokenizer and a fake connection to the server.

    The model's name has a tokenizer with another template.
    """
    from datasets import Dataset  # noqa: PLC0415 - in the target's overlay

    module: Any = inspect.getmodule(kind)
    worker = importlib.import_module(module.AsyncRolloutWorker.__module__)
    args = module.AsyncGRPOConfig(
        output_dir=tempfile.mkdtemp(),
        use_cpu=True,
        bf16=False,
        report_to=[],
        disable_tqdm=True,
        per_device_train_batch_size=2,
        max_inflight_tasks=PROMPTS * int(str(options["num_generations"])),
        chat_template_kwargs={"added": options["template_word"]},
        **{name: options[name] for name in ("temperature", "max_completion_length", "num_generations")},
    )
    fakes = {
        "AutoModelForCausalLM": SimpleNamespace(from_pretrained=_model),
        "AutoTokenizer": SimpleNamespace(from_pretrained=_tokenizer),
        "create_model_from_path": _model,
        **dict.fromkeys(("patch_chunked_lm_head", "add_fused_lm_head", "register_tree_attention"), nothing),
        "get_peak_flops_per_device": nothing,  # it asks for the name of a GPU
        "WeightTransferClient": SimpleNamespace,
        **dict.fromkeys(("is_vllm_available", "is_aiohttp_available"), _available),
        "add_response_schema": _itself,
    }
    connecting = [
        name
        for name in ("_wait_for_server_ready_sync", "_init_weight_transfer")
        if hasattr(module.AsyncRolloutWorker, name)
    ]
    originals = {name: getattr(module.AsyncRolloutWorker, name) for name in connecting}
    try:
        for name in connecting:
            setattr(module.AsyncRolloutWorker, name, nothing)
        with replaced_globals(vars(module), vars(worker), **fakes):
            return kind(
                model="tiny",
                reward_funcs=RowRewards("first", 1.0),
                args=args,
                train_dataset=Dataset.from_list(
                    [{"prompt": [{"role": "user", "content": f"w{n}"}]} for n in range(PROMPTS)]
                ),
                processing_class=tokenizer,
            )
    finally:
        for name, original in originals.items():
            setattr(module.AsyncRolloutWorker, name, original)


def requests_of(entry: Callable[..., Any], worker: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - of the target
    """The requests that the worker sends until it has asked for all completions of the data set."""
    asked: list[dict[str, Any]] = []
    return asyncio.run(_asked(entry, worker, asked))


async def _asked(entry: Callable[..., Any], worker: Any, asked: list[dict[str, Any]]) -> list[dict[str, Any]]:  # noqa: ANN401
    stop = asyncio.Event()
    loop = _loop_of(worker)
    enough = PROMPTS * loop.num_generations

    async def post(_path: str, payload: dict[str, Any], *_options: object, **_more: object) -> dict[str, Any]:
        asked.append(payload)
        if len(asked) >= enough:
            stop.set()
        return {"choices": [{"token_ids": [1], "logprobs": {"token_logprobs": [-0.5]}}]}

    loop._post = post  # noqa: SLF001 - the method that sends a request
    plain = logging.getLogger(__name__)  # accelerate's logger needs a started process group
    with replaced_globals(entry.__globals__, parse_response=_reply, add_response_schema=_itself, logger=plain):
        await entry(loop, stop)
    return asked


def _loop_of(worker: Any) -> Any:  # noqa: ANN401 - of the target
    """The object that asks for completions: the worker, or the loop that its child process builds."""
    if not hasattr(worker, "_loop_kwargs"):
        return worker
    module = vars(importlib.import_module(type(worker).__module__))
    own = worker._loop_kwargs  # noqa: SLF001 - what the child process gets
    kind = getattr(worker, "_loop_cls", None) or module["_AsyncRolloutLoop"]
    needed = [p.name for p in inspect.signature(kind).parameters.values() if p.default is p.empty and p.name not in own]
    shared = {name: _shared(name) for name in needed}
    with replaced_globals(module, add_response_schema=_itself):
        return kind(**own, **shared)


def _shared(name: str) -> Any:  # noqa: ANN401 - a queue, an event or a value
    """What a parameter of the loop shares with the trainer's process, here in one process."""
    if name.endswith(("_queue", "_buffer")):
        return queue.Queue()
    return threading.Event() if name.endswith("_event") else SimpleNamespace(value=0)


def _model(*_name: object, **_options: object) -> Any:  # noqa: ANN401 - a model of transformers
    """A small model, for any name."""
    return make_model()


def _tokenizer(*_name: object, **_options: object) -> Any:  # noqa: ANN401 - a tokenizer of transformers
    """A tokenizer, for any name."""
    return make_tokenizer()


def _available(*_version: object, **_options: object) -> bool:
    """Whether vLLM or aiohttp is installed; always True."""
    return True


def _itself(tokenizer: object) -> object:
    """The tokenizer, unchanged: no reply has a call."""
    return tokenizer


def _reply(*_tokens: object, **_options: object) -> dict[str, str]:
    """A reply that calls no tool."""
    return {"role": "assistant", "content": "w3"}
