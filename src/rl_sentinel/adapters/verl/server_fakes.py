"""Fakes around verl's inference servers: engines with known responses, and the requesting worker's batch."""

from collections.abc import AsyncIterator, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.scripted_sampling import ScriptedResponse, vllm_completion

#: Log-prob of a prompt token, in a reply that contains the log-probs of the prompt.
PROMPT_LOGPROB = -7.0


class Prompt(dict[str, Any]):
    """A fake prompt of a request to vLLM."""


class Options(SimpleNamespace):
    """The sampling options of vLLM and TensorRT-LLM, or a request to SGLang; no log-probs of the prompt by default."""

    prompt_logprobs: int | None = None


def tensorrt_llm() -> ModuleType:
    """The module ``tensorrt_llm.llmapi``, which a server imports when it samples."""
    module = ModuleType("tensorrt_llm.llmapi")
    module.SamplingParams = Options  # type: ignore[attr-defined] # a module takes any name
    return module


class Engine:
    """A fake engine of a server; ``room`` is the maximum length of a response."""

    def __init__(self, script: ScriptedResponse, room: int) -> None:
        """Start without a request."""
        self.script, self.room = script, room
        self.sent: list[dict[str, Any]] = []

    async def list_loras(self) -> list[int]:
        """The loaded adapters: an empty list."""
        return []

    async def generate(
        self, prompt: Mapping[str, Any], sampling_params: Options, **_about: object
    ) -> AsyncIterator[Any]:
        """Return the reply in the form of vLLM."""
        ids = list(prompt["prompt_token_ids"])
        asked = sampling_params.prompt_logprobs is not None
        prompts = [None, *({token: _value(x)} for token, x in self._prompt(ids)[1:])] if asked else None
        yield SimpleNamespace(outputs=[self._output(ids, vars(sampling_params))], prompt_logprobs=prompts, metrics=None)

    async def generate_async(self, inputs: list[int], sampling_params: Options) -> Any:  # noqa: ANN401 - as the engine's
        """Return the reply in the form of TensorRT-LLM."""
        return SimpleNamespace(outputs=[self._output(list(inputs), vars(sampling_params))])

    async def generate_request(self, request: Any, _web_request: object) -> AsyncIterator[dict[str, Any]]:  # noqa: ANN401
        """Return the reply in the form of SGLang."""
        ids, options = list(request.input_ids), request.sampling_params
        sampled = self._sample(ids, options, "max_new_tokens")
        pairs = zip(sampled.logprobs, sampled.tokens, strict=True)
        about: dict[str, Any] = {
            "finish_reason": {"type": sampled.reason},
            "output_token_logprobs": [(logprob, token, None) for logprob, token in pairs],
        }
        if getattr(request, "logprob_start_len", -1) == 0:
            about["input_token_logprobs"] = [(x, token, None) for token, x in self._prompt(ids)]
        yield {"output_ids": sampled.tokens, "meta_info": about}

    def _output(self, ids: list[int], options: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as of the engines
        sampled = self._sample(ids, options, "max_tokens")
        return vllm_completion(sampled.tokens, sampled.logprobs, finish_reason=sampled.reason)

    def _sample(self, ids: list[int], options: Mapping[str, Any], limit: str) -> Any:  # noqa: ANN401 - a named tuple
        self.sent.append(dict(options))
        return self.script.sample(ids, int(options[limit]), self.room)

    def _prompt(self, ids: list[int]) -> list[tuple[int, float]]:
        """The prompt tokens of a request, with their log-probs."""
        known = [PROMPT_LOGPROB] * len(self.script.prompt) + self.script.logprobs
        return list(zip(ids, known, strict=True))


def _value(logprob: float) -> Any:  # noqa: ANN401 - as of the engines
    return SimpleNamespace(logprob=logprob, rank=1)


def server_of(kind: type, rollout: Any, engine: Engine) -> Any:  # noqa: ANN401 - a class and a configuration of the target
    """A server of the target's class with this engine, without its constructor."""
    model = SimpleNamespace(lora_rank=0, lora={}, processor=None, hf_config=SimpleNamespace(), tokenizer=None)
    gates = {"_submission_paused": False, "_rejecting": False, "_admitting": 0, "is_vlm_model": False}
    return bare_instance(
        kind,
        config=rollout,
        model_config=model,
        **dict.fromkeys(("engine", "tokenizer_manager", "llm"), engine),
        **gates,
        _generation_allowed=SimpleNamespace(wait=_at_once, is_set=lambda: True),
        _disaggregation_role="null",
        _pd_decode_peers=[],
        _use_torch_sampler=False,
        sampling_args={},
        replica_rank=0,
        global_steps=0,
    )


async def _at_once() -> None:
    """Do not wait."""


class Batch:
    """A fake batch of one prompt, in the form that the worker reads."""

    def __init__(self, *, validate: bool) -> None:
        """``validate`` is True for a batch of validation."""
        self.meta_info: dict[str, Any] = {"validate": validate, "global_steps": 1}
        self.non_tensor_batch: dict[str, Any] = {}

    def __len__(self) -> int:
        """The number of prompts."""
        return 1


def queued_batch(*, validate: bool) -> Any:  # noqa: ANN401 - a TensorDict
    """A batch of one prompt, in the form that the worker of the transfer queue reads."""
    from tensordict import NonTensorStack, TensorDict  # noqa: PLC0415 - installed only with the target

    rows = {name: NonTensorStack(value) for name, value in (("uid", "prompt"), ("index", 0))}
    batch = TensorDict(rows, batch_size=1)
    for name, value in (("validate", validate), ("global_steps", 1)):
        batch.set_non_tensor(name, value)
    return batch


class Statuses:
    """A fake transfer queue; the worker sends the status of a prompt to it."""

    @staticmethod
    async def async_kv_put(**_about: object) -> None:
        """Do nothing."""
