"""SkyRL's inference engines of earlier releases: texts, token ids and log-probs that they make of a reply."""

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.forms import Ragged
from rl_sentinel.adapters.kit.http_fake import HttpFake
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.row_outputs import row_fields, row_outputs
from rl_sentinel.adapters.kit.scripted_sampling import WRONG, fit_to_length, vllm_completion
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

ENGINES = "skyrl.backends.skyrl_train.inference_engines"
REMOTE = f"{ENGINES}.remote_inference_engine.RemoteInferenceEngine"
SGLANG = f"{ENGINES}.sglang.sglang_engine.SGLangInferenceEngine"
VLLM = f"{ENGINES}.vllm.vllm_engine.BaseVLLMInferenceEngine"

#: The end token, the offset of all other tokens, and the first token of prompt 0. Prompt n starts with ``FIRST + n``.
END, SHIFT, FIRST = 1, 3, 1_000

_DOCS = (
    "inference_engines/base.py, InferenceEngineOutput: token ids and the decoded text, one response per prompt, in the "
    "order of the prompts; string responses do not include end tokens such as <|im_end|>"
)
_PRODUCED = {
    "rows": "inference_engine_client.py, generate: prompt_token_ids and sampling_params for each engine; an engine "
    "returns the ids with the end token (SGLang with skip_tokenizer_init: without text)"
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the engines of this release: SGLang over HTTP, SGLang in the process, and vLLM in the process."""
    if target.has(f"{REMOTE}.generate") and not target.fails(REMOTE) and serves_sglang(target):
        yield from bindable(target, _replies(REMOTE, "generate", over_http, "generator.run_engines_locally=false"))
    if target.has(f"{SGLANG}.generate") and not target.fails(SGLANG) and _returns_ids(target, SGLANG):
        yield from bindable(target, _replies(SGLANG, "generate", in_process, "generator.backend=sglang"))
    if target.has(f"{VLLM}._postprocess_outputs") and not target.fails(VLLM) and _returns_ids(target, VLLM):
        yield from bindable(target, _replies(VLLM, "_postprocess_outputs", of_vllm, "generator.backend=vllm"))


def _returns_ids(target: Target, engine: str) -> bool:
    """Whether an engine in the process returns token ids; in summer 2025 it returned only texts."""
    source = _module_text(target, engine)
    return "response_ids" in source and not re.search(r'response_ids"?\s*[=:]\s*None', source)


def serves_sglang(target: Target) -> bool:
    """Whether the engine over HTTP reads token ids, as in replies of SGLang; replies of vLLM contain only text."""
    return '"output_ids"' in _module_text(target, REMOTE)


def _module_text(target: Target, path: str) -> str:
    """The source of the module of a class."""
    file = target.root.joinpath(*target.locate(path).split(".")[:-1]).with_suffix(".py")
    return file.read_text(encoding="utf-8")


class Decoder:
    """A fake tokenizer with one character per token, which can leave out the end token."""

    eos_token_id = END

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False, **_options: object) -> str:
        """The text of token ids."""
        return "".join(chr(token) for token in ids if token != END or not skip_special_tokens)

    def batch_decode(self, rows: Sequence[Sequence[int]], **options: Any) -> list[str]:  # noqa: ANN401 - as decode
        """The text of each row."""
        return [self.decode(ids, **options) for ids in rows]


class Server(HttpFake):
    """A fake engine of SGLang: the engine itself, its server, and the HTTP package in one object."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Store the responses."""
        super().__init__()
        self.rows = rows

    async def async_generate(self, *, input_ids: list[list[int]], **_options: object) -> list[dict[str, Any]]:
        """The reply to each prompt."""
        return [self._reply(ids) for ids in input_ids]

    def _reply(self, ids: list[int]) -> dict[str, Any]:
        number = ids[0] - FIRST
        row = self.rows[number] if 0 <= number < len(self.rows) else {"tokens": [], "prompt": []}
        sampled = sampled_ids(row) if ids == prompt_of(number, row) else [END]
        return {"output_ids": sampled, "meta_info": {"finish_reason": {"type": "stop"}}}

    async def json(self, **_options: object) -> list[dict[str, Any]]:
        """The reply to each prompt of the request."""
        return await self.async_generate(input_ids=self.asked["input_ids"])


def prompt_of(number: int, row: Mapping[str, Any]) -> list[int]:
    """The prompt of a row, whose first token tells the engine which response to sample."""
    return [FIRST + number, *row["prompt"]]


def sampled_ids(row: Mapping[str, Any]) -> list[int]:
    """The ids that an engine samples for a row, with the end token."""
    return [*(token + SHIFT for token in row["tokens"]), END]


def over_http(owner: Any, rows: list[dict[str, Any]]) -> dict[str, list[Tensor]]:  # noqa: ANN401 - a class of the target
    """Sample the responses of a server of SGLang; :func:`read` describes the result."""
    server = Server(rows)
    engine = owner(url="server", model_name="model", engine_backend="sglang", tokenizer=Decoder())
    with replaced_globals(owner.generate.__globals__, aiohttp=server):
        return read(asyncio.run(engine.generate(_request(rows))), rows)


def in_process(owner: Any, rows: list[dict[str, Any]]) -> dict[str, list[Tensor]]:  # noqa: ANN401 - a class of the target
    """Sample the responses of an engine of SGLang; :func:`read` describes the result."""
    engine = bare_instance(owner, engine=Server(rows), tokenizer=Decoder(), sampling_params={}, _tp_size=1)
    return read(asyncio.run(engine.generate(_request(rows))), rows)


def of_vllm(owner: Any, rows: list[dict[str, Any]]) -> dict[str, list[Tensor]]:  # noqa: ANN401 - a class of the target
    """Read the outputs of an engine of vLLM, which decodes them without the end token."""
    tokenizer, outputs = Decoder(), []
    for number, row in enumerate(rows):
        ids = sampled_ids(row)
        text = tokenizer.decode(ids, skip_special_tokens=True)
        one = vllm_completion(
            ids, [*row["logprobs"], 0.0], text=text, finish_reason="stop", routed_experts=None, index=0
        )
        prompt = {"prompt_token_ids": prompt_of(number, row), "prompt_logprobs": None}
        outputs.append(SimpleNamespace(outputs=[one], **prompt))
    return read(bare_instance(owner, tokenizer=tokenizer)._postprocess_outputs(outputs), rows)  # noqa: SLF001 - as generate calls it


def _request(rows: list[dict[str, Any]]) -> dict[str, Any]:
    prompts = [prompt_of(number, row) for number, row in enumerate(rows)]
    return {"prompt_token_ids": prompts, "sampling_params": {}}


def read(reply: Mapping[str, Any], rows: list[dict[str, Any]]) -> dict[str, list[Tensor]]:
    """The tokens of each response by its ids and by its text, and its log-probs.

    The last token is wrong if the end token is missing in the ids, or if the response has another stop reason.
    """
    columns: dict[str, list[Tensor]] = {"tokens": [], "texts": [], "logprobs": []}
    replied = reply.get("response_logprobs") or [[]] * len(rows)
    for number, row in enumerate(rows):
        size, ids = len(row["tokens"]), list(reply["response_ids"][number])
        ended = ids[-1:] == [END] and reply["stop_reasons"][number] == "stop"
        tokens = fit_to_length([token - SHIFT for token in ids[:-1]], size, WRONG)
        columns["tokens"].append(tokens if ended else torch.cat([tokens[:-1], torch.tensor([WRONG])]))
        text = [ord(character) - SHIFT for character in reply["responses"][number]]
        columns["texts"].append(fit_to_length(text, size, WRONG))
        columns["logprobs"].append(fit_to_length(list(replied[number])[:size], size, float("inf")))
    return columns


def _replies(owner: str, method: str, call: Callable[..., Any], reach: str) -> Boundary:
    logprobs = owner == VLLM
    columns = {**row_fields("prompt", "tokens"), **({"logprobs": RowTokens("rollout_logprob")} if logprobs else {})}
    use = Use("replies")
    outputs = row_outputs(use, "token", *(("rollout_logprob",) if logprobs else ()))
    outputs["token of the text"] = Output("B T", "", "token", at=use["texts"], form=Ragged())
    return one_call(
        path=f"{owner}.{method}",
        stage="batch",
        call=call,
        name="replies",
        arguments={"owner": Constant(Function(owner)), "rows": EachRow(Table(columns))},
        produced_by=_PRODUCED,
        reads=frozenset({"token", "length", *(("rollout_logprob",) if logprobs else ())}),
        outputs=outputs,
        settings={"a response that ends": {}},
        claims=claims(_DOCS, conserves=True),
        reach=reach,
        requires=(no_empty_response,),
    )
