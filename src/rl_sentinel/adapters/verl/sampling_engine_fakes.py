"""Fakes of the engines inside verl's workers; each engine returns known responses.

Token ids are shifted so that the padding token and the end token occur in no response. As in real engines, only
a response that is shorter than the response length ends with the end token.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.scripted_sampling import vllm_completion
from rl_sentinel.adapters.process_group import one_process_group
from rl_sentinel.core.batch import VOCABULARY

#: The padding token, the end token, and the offset of all other tokens.
PAD, END, SHIFT = 0, 1, 2

#: The log-prob of an end token, and the token that the engine returns for an unknown prompt.
END_LOGPROB, WRONG = -0.5, SHIFT - 1

#: vLLM's sampling options that verl sets or copies from its configuration, with vLLM's defaults.
DEFAULTS: Mapping[str, Any] = {
    "n": 1,
    "best_of": None,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": -1,
    "min_p": 0.0,
    "seed": None,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "ignore_eos": False,
    "stop": (),
    "stop_token_ids": (),
    "max_tokens": 16,
    "min_tokens": 0,
    "logprobs": None,
    "detokenize": True,
}


@dataclass
class KnownResponses:
    """The responses by row: unshifted tokens and their log-probs; ``width`` is the response length.

    ``sent`` are the sampling options of each request.
    """

    prompts: list[list[int]]
    tokens: list[list[int]]
    logprobs: list[list[float]]
    width: int
    sent: list[Mapping[str, Any]] = field(default_factory=list)

    def answers(self, requests: Sequence[Sequence[int]], options: Mapping[str, Any]) -> list[list[Any]]:
        """The responses to each request, as many as the options request; the options are recorded."""
        self.sent.append(options)
        times = options.get("n") or options.get("num_return_sequences") or 1
        return [[self._sample(request)] * times for request in requests]

    def _sample(self, prompt: Sequence[int]) -> tuple[list[int], list[float]]:
        """The response to a prompt; the first token of the prompt encodes its row."""
        row = int(prompt[0]) - SHIFT - VOCABULARY if len(prompt) else -1
        if not 0 <= row < len(self.prompts) or list(prompt) != shifted(self.prompts[row]):
            return [WRONG] * self.width, [0.0] * self.width
        ends = len(self.tokens[row]) < self.width
        return shifted(self.tokens[row]) + [END] * ends, self.logprobs[row] + [END_LOGPROB] * ends


def shifted(tokens: Sequence[int]) -> list[int]:
    """Token ids that are neither the padding token nor the end token."""
    return [int(token) + SHIFT for token in tokens]


class VLLM:
    """A fake of vLLM's ``LLM``. With ``padded``, a fake of verl's copy of early versions, which returns tensors."""

    llm_engine = SimpleNamespace(list_loras=list)

    def __init__(self, known: KnownResponses, *, padded: bool) -> None:
        """Store the responses that the engine returns."""
        self.known, self.padded = known, padded

    def generate(
        self,
        prompts: list[dict[str, Any]] | None,
        sampling_params: object,
        prompt_token_ids: list[list[int]] | None = None,
        **_about: object,
    ) -> list[Any]:
        """One output per prompt, or tensors of all tokens and log-probs."""
        requests = prompt_token_ids or [prompt["prompt_token_ids"] for prompt in prompts or ()]
        answers = self.known.answers(requests, dict(vars(sampling_params)))
        if not self.padded:
            return [SimpleNamespace(outputs=[vllm_completion(*one) for one in answer]) for answer in answers]
        rows = zip(*(one for answer in answers for one in answer), strict=True)
        return [pad_sequence([torch.tensor(x) for x in part], batch_first=True, padding_value=PAD) for part in rows]

    def sleep(self, level: int = 1) -> None:
        """Do nothing."""

    def init_cache_engine(self) -> None:
        """Do nothing."""

    def free_cache_engine(self) -> None:
        """Do nothing."""

    def offload_model_weights(self) -> None:
        """Do nothing."""


class HuggingFace:
    """A fake transformers model; ``generate`` returns known responses."""

    def __init__(self, known: KnownResponses) -> None:
        """Store the responses that the model returns."""
        self.known = known

    def generate(self, input_ids: Tensor, attention_mask: Tensor, generation_config: object, **about: object) -> Any:  # noqa: ANN401
        """The padded prompts, followed by the responses."""
        requests = [ids[own.bool()].tolist() for ids, own in zip(input_ids, attention_mask, strict=True)]
        answers = self.known.answers(requests, {**vars(generation_config), **about})
        rows = [torch.tensor(tokens) for answer in answers for tokens, _ in answer]
        prompts = input_ids.repeat_interleave(len(answers[0]), 0)
        responses = pad_sequence(rows, batch_first=True, padding_value=PAD)
        return SimpleNamespace(sequences=torch.cat([prompts, responses], 1))

    def eval(self) -> None:
        """Do nothing."""

    def train(self) -> None:
        """Do nothing."""


class SamplingOptions(SimpleNamespace):
    """A fake of vLLM's ``SamplingParams``."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - numbers, flags and lists
        """Set the options, and defaults for the other fields."""
        super().__init__(**{**DEFAULTS, **options})


def worker_with(owner: Any, engine: str, config: Any, known: KnownResponses) -> Any:  # noqa: ANN401 - of the target
    """A worker with an engine that samples known responses; for vLLM and SGLang, call it inside their fakes."""
    if engine == "hf":
        return owner(HuggingFace(known), config)
    one_process_group()
    tokenizer = SimpleNamespace(pad_token_id=PAD, eos_token_id=END)
    model = SimpleNamespace(max_position_embeddings=1 << 20, rope_scaling=None)
    about = SimpleNamespace(local_path="", tokenizer=tokenizer, hf_config=model, trust_remote_code=False, lora_rank=0)
    about.get_processor = lambda: tokenizer
    arguments = {"config": config, "model_config": about, "model_hf_config": model}
    arguments |= dict.fromkeys(("tokenizer", "processing_class"), tokenizer)
    return owner(**{name: arguments.get(name) for name in inspect.signature(owner).parameters if name != "kwargs"})


@contextmanager
def engine_fakes(names: dict[str, Any], known: KnownResponses, *, padded: bool) -> Iterator[None]:
    """Replace the names, in the globals of a worker's module, that come from the packages of its engine."""

    def engine(*_about: object, **_more: object) -> VLLM:
        return VLLM(known, padded=padded)

    with replaced_globals(
        names,
        LLM=engine,
        SamplingParams=SamplingOptions,
        GenerationConfig=SimpleNamespace,
        get_torch_device=lambda: torch.cuda,  # the package of the CPU has no cache to empty
    ):
        yield
