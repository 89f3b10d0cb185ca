"""AReaL's OpenAI client for agents: the request of each call, and the training row of the call."""

import asyncio
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

from rl_sentinel.adapters.areal.conversations import RESPONSE, has_prompt
from rl_sentinel.adapters.areal.sessions import CACHE, all_train, train_all
from rl_sentinel.adapters.kit.arriving_settings import arrives, bind_arriving
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_outputs import row_fields, row_outputs
from rl_sentinel.adapters.kit.scripted_sampling import WRONG
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

_CLIENT = "areal.experimental.openai.client"
COMPLETIONS = f"{_CLIENT}.AsyncCompletionsWithReward.create"
RESPONSES = f"{_CLIENT}.AsyncResponsesWithReward.create"

#: Token ids: end of a message, padding, the start of a reply, the role of a message, and the first word.
_END, _PAD, _REPLY, _FIRST = 1, 2, 3, 10
_ROLES = {"system": 4, "user": 5, "assistant": 6, "tool": 7}

#: The method of a call -> the forms of its input: one text, messages with texts, or parts of a kind.
FORMS: Mapping[str, tuple[str, ...]] = {
    COMPLETIONS: ("messages",),
    RESPONSES: ("text", "messages", "input_text", "output_text", "function_call_output"),
}

#: The method of a call -> groups of parameters that can be set at the same time, with a value of each.
_SAMPLING: Settings = {"temperature": 0.7, "top_p": 0.9}
PARAMETERS: Mapping[str, Mapping[str, Settings]] = {
    COMPLETIONS: {
        "sampling": {**_SAMPLING, "frequency_penalty": 0.5, "stop": "word", "max_completion_tokens": 24},
        "max_tokens": {"max_tokens": 40},
    },
    RESPONSES: {"sampling": {**_SAMPLING, "max_output_tokens": 24}},
}

#: The columns of a row -> its keys.
_KEYS = {"tokens": "input_ids", "masks": "loss_mask", "logprobs": "logprobs", "versions": "versions"}
#: A parameter of a call -> the field of the request that it sets, where the names differ.
_FIELD = dict.fromkeys(("max_completion_tokens", "max_tokens", "max_output_tokens"), "max_new_tokens")

_API = (
    "platform.openai.com/docs/api-reference: max_tokens, max_completion_tokens and max_output_tokens bound the tokens "
    "that are generated; temperature, top_p, frequency_penalty and stop"
)
_DOCS = (
    "openai/client.py, create: the chat template over the messages of the call is the prompt; the response of the "
    "engine is cached with its tokens, log-probs and versions; openai/types.py, to_tensor_dict"
)
_CALLER = (
    "areal/workflow/openai and the agents SDK call client.chat.completions.create or client.responses.create; earlier "
    "replies return as output_text, results of tools as function_call_output"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the row of a call for each form of the input, and the parameters of its request."""
    for path, forms in FORMS.items():
        owner = path.rpartition(".")[0]
        if not target.has(path) or not target.has(RESPONSE) or target.fails(RESPONSE):
            continue
        if why := target.fails(path):
            yield Unbound(path, "batch", why)
            continue
        source = inspect.getsource(sys.modules[target.find(owner).__module__])
        known = [form for form in forms if form in {"text", "messages", "output_text"} or f'"{form}"' in source]
        yield from bindable(target, *(_rows(target, path, form) for form in known))
        parameters = inspect.signature(target.find(path)).parameters
        for name, options in PARAMETERS[path].items():
            accepted = {key: value for key, value in options.items() if key in parameters}
            if accepted:
                yield from bindable(target, _arriving(target, path, name, accepted))


class Tokenizer:
    """A tokenizer with numbers as words; its chat template starts each message with the id of the role."""

    eos_token_id, pad_token_id = _END, _PAD

    def encode(self, text: str, **_options: object) -> list[int]:
        """The token ids of a text."""
        return [int(word) for word in text.split()]

    def decode(self, ids: list[int], **_options: object) -> str:
        """The text of token ids."""
        return " ".join(str(token) for token in ids)

    def apply_chat_template(self, messages: list[dict[str, Any]], **_options: object) -> list[int]:
        """Render the messages and the start of a reply; like most templates, ignore messages of an unknown role."""
        ids = []
        for message in messages:
            role, content = _ROLES.get(message.get("role", "")), message.get("content")
            if role is not None:
                ids += [role, *(self.encode(content) if isinstance(content, str) else []), _END]
        return [*ids, _REPLY]


class _Record(SimpleNamespace):
    """A fake of a model class in OpenAI's package; it keeps the fields."""

    def model_dump(self, **_options: object) -> dict[str, Any]:
        """The fields."""
        return dict(vars(self))


#: Classes of OpenAI's package by which the client describes a response.
_MODELS = dict.fromkeys(
    (
        *("ChatCompletion", "ChatCompletionMessage", "Choice", "CompletionUsage", "Response", "ResponseUsage"),
        *("ResponseOutputMessage", "ResponseOutputText", "InputTokensDetails", "OutputTokensDetails"),
    ),
    _Record,
)


#: Types of OpenAI's package in annotations that are evaluated when a call runs.
_TYPES = dict.fromkeys(("ChatCompletionToolMessageParam", "ResponseInputItemParam"), dict)


class _Omit:
    """A fake of OpenAI's class that marks an omitted argument."""


class Engine:
    """A fake inference engine, which returns a scripted response and keeps the request."""

    def __init__(self, response: Callable[..., Any], prompt: list[int], row: Mapping[str, Any]) -> None:
        """``prompt`` has the ids of the correct request; another request gets tokens of :data:`WRONG`."""
        self.response, self.prompt, self.row = response, prompt, row
        self.request: Any = None

    async def agenerate(self, request: Any) -> Any:  # noqa: ANN401 - the target's classes
        """The reply to a request."""
        self.request, tokens = request, list(self.row["tokens"])
        return self.response(
            input_tokens=list(request.input_ids),
            output_tokens=tokens if list(request.input_ids) == self.prompt else [WRONG] * len(tokens),
            output_logprobs=list(self.row["logprobs"]),
            output_versions=list(self.row["versions"]),
            stop_reason="length",
            tokenizer=Tokenizer(),
        )


def call(
    create: Callable[..., Any],
    cache: Callable[..., Any],
    engine: Engine,
    **arguments: Any,  # noqa: ANN401 - the arguments of a call
) -> Any:  # noqa: ANN401 - the target's class
    """Run a call of the client, and return the interaction that it caches; earlier classes have fewer attributes."""
    owner = create.__globals__[create.__qualname__.partition(".")[0]]
    cached = cache()
    options: dict[str, Any] = {
        "tool_call_parser": "",
        "reasoning_parser": "",
        "engine_max_tokens": None,
        "lora_name": "",
    }
    options |= {"engine": engine, "tokenizer": Tokenizer(), "_cache": cached, "chat_template_type": "hf"}
    client = bare_instance(owner, **options)
    package = ModuleType("openai")
    vars(package)["Omit"] = _Omit
    fakes = {**_MODELS, **_TYPES, "apply_chat_template": apply_template}
    with patch.dict(sys.modules, {"openai": package}), replaced_globals(create.__globals__, **fakes):
        asyncio.run(create(client, **arguments))
    interaction = next(iter(cached.values()))
    interaction.reward = 0.0  # as the agent sets it, client.set_reward
    return interaction


def input_of(api: str, form: str, words: list[int]) -> tuple[dict[str, Any], list[int]]:
    """The input of a call that contains the words, and the ids of its prompt."""
    text = Tokenizer().decode([_FIRST + word for word in words])
    plain = [{"role": "user", "content": text}]
    given: Any = plain
    if form == "text":
        given = text
    elif form == "messages":
        given = plain = [{"role": "system", "content": "8"}, *plain]
    elif form == "function_call_output":
        plain = [{"role": "user", "content": "8"}, {"role": "tool", "content": text}]
        given = [plain[0], {"type": form, "call_id": "call", "output": text}]
    else:
        role = "user" if form == "input_text" else "assistant"
        parts = [{"type": form, "text": text}]
        plain = [{"role": role, "content": text}, {"role": "user", "content": "8"}]
        given = [{"role": role, "content": parts}, plain[1]]
    name = "messages" if api == COMPLETIONS else "input"
    return {name: given}, Tokenizer().apply_chat_template(plain)


def rows_of_calls(  # noqa: PLR0913 - code of the target, and the arguments of the boundary
    create: Callable[..., Any],
    cache: Callable[..., Any],
    response: Callable[..., Any],
    api: str,
    rows: list[dict[str, Any]],
    form: str,
) -> dict[str, list[Any]]:
    """Run a call for each response; return its columns in the training row (masks are False if the prompt trains)."""
    columns: dict[str, list[Any]] = {name: [] for name in _KEYS}
    for row in rows:
        arguments, prompt = input_of(api, form, row["prompt"])
        limit = {"max_completion_tokens" if api == COMPLETIONS else "max_output_tokens": 64}
        data = call(create, cache, Engine(response, prompt, row), **arguments, **limit).to_tensor_dict()
        start = data["input_ids"].shape[1] - len(row["tokens"])
        for name, key in _KEYS.items():
            columns[name].append(data[key][0, start:])
        columns["masks"][-1] = columns["masks"][-1].bool() & ~data["loss_mask"][0, :start].any()
    return columns


def parameters_of_call(  # noqa: PLR0913 - code of the target, and the arguments of the boundary
    create: Callable[..., Any],
    cache: Callable[..., Any],
    response: Callable[..., Any],
    api: str,
    options: Settings,
    places: Mapping[str, str],
) -> dict[str, float]:
    """Run a call, and return the value of each parameter in the call's request."""
    arguments, prompt = input_of(api, "messages", [1, 2, 3])
    engine = Engine(response, prompt, {"tokens": [_FIRST], "logprobs": [-0.5], "versions": [0]})
    call(create, cache, engine, **arguments, **options)
    gconfig = engine.request.gconfig
    return {place: arrives(options[name], getattr(gconfig, _FIELD.get(name, name))) for place, name in places.items()}


def _code(target: Target, path: str) -> dict[str, Constant]:
    has_cache = target.has(CACHE) and not target.fails(CACHE)
    return {
        "create": Constant(Function(path)),
        "cache": Constant(Function(CACHE) if has_cache else dict),
        "response": Constant(Function(RESPONSE)),
        "api": Constant(path),
    }


def _arriving(target: Target, path: str, name: str, options: Settings) -> Boundary:
    places = {f"gconfig.{_FIELD.get(key, key)}": key for key in options}
    return bind_arriving(
        path,
        parameters_of_call,
        _code(target, path),
        places,
        settings={name: options},
        cite=_API,
        reach=", ".join(options),
    )


def _rows(target: Target, path: str, form: str) -> Boundary:
    row = Table(row_fields("prompt", "tokens", "logprobs", "versions"))
    return one_call(
        path=path,
        stage="batch",
        call=rows_of_calls,
        name="rows",
        arguments={**_code(target, path), "rows": EachRow(row), "form": Knob("form")},
        produced_by={"rows": _CALLER},
        reads=frozenset({"token", "rollout_logprob", "version", "mask", "prompt_length"}),
        unused=frozenset({"prompt_length"}),
        outputs=row_outputs(Use("rows"), "rollout_logprob", "token", "mask", "version"),
        settings={form: {"form": form}},
        domain=train_all,
        claims=claims(_DOCS, conserves=True),
        reach="agents through the OpenAI client",
        requires=(no_empty_response, has_prompt, all_train),
    )


def apply_template(tokenizer: Tokenizer, messages: list[dict[str, Any]], **options: object) -> list[int]:
    """A fake of AReaL's helper, which would read the version of transformers."""
    return tokenizer.apply_chat_template(messages, **options)
