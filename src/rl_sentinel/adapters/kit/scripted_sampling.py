"""A fake inference server: it samples known responses, and stops a request at the token where the weights change."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rl_sentinel.core.case import Scalar

#: Token of a request that does not continue what was sampled.
WRONG = -1


class Sampled(NamedTuple):
    """The reply to one request.

    ``reason`` is ``stop``, ``length`` or ``abort``; ``version`` is the weight version that sampled the last token.
    """

    tokens: list[int]
    logprobs: list[float]
    reason: str
    version: int


@dataclass(frozen=True, slots=True)
class ScriptedResponse:
    """One response to sample: the prompt, and the id, the log-prob and the weight version of each token."""

    prompt: list[int]
    tokens: list[int]
    logprobs: list[float]
    versions: list[int]

    def sample(self, ids: list[int], most: int, room: int) -> Sampled:
        """Continue the response after the token ids of a request.

        Args:
            ids: prompt and tokens sampled so far; tokens that differ from the script give :data:`WRONG`.
            most: maximum number of new tokens.
            room: maximum length of a response. A response of this length has no end: further requests get more tokens.
        """
        spare = most if len(self.tokens) == room else 0
        script = [*self.tokens, *[WRONG] * spare]
        versions = [*self.versions, *self.versions[-1:] * spare]
        start = end = len(ids) - len(self.prompt)
        while end < min(len(script), start + most) and versions[end] == versions[start]:
            end += 1
        continues = ids == [*self.prompt, *script[:start]]
        return Sampled(
            tokens=script[start:end] if continues else [WRONG] * (end - start),
            logprobs=[*self.logprobs, *[0.0] * spare][start:end],
            reason="length" if end == start + most else "stop" if end == len(script) else "abort",
            version=versions[end - 1],
        )


def vllm_completion(tokens: Sequence[int], logprobs: Sequence[float], **more: object) -> SimpleNamespace:
    """One output of vLLM's reply to a request: token ids, the log-prob of each token, and ``more`` attributes.

    Example:
        >>> from rl_sentinel.adapters.kit.scripted_sampling import vllm_completion
        >>> vllm_completion([7], [-0.5]).logprobs[0][7].logprob
        -0.5
    """
    chosen = [{token: SimpleNamespace(logprob=x, rank=1)} for token, x in zip(tokens, logprobs, strict=True)]
    return SimpleNamespace(token_ids=tokens, logprobs=chosen, **more)


def fit_to_length(values: list[Any], length: int, wrong: float) -> Tensor:
    """The values as a tensor of ``length``.

    Missing values are ``wrong``. If there are too many values, the last value of the tensor is ``wrong``.
    """
    cut = values if len(values) <= length else [*values[: length - 1], wrong]
    return torch.tensor([*cut, *[wrong] * length][:length])


def sampling_option(name: str, value: Scalar) -> Any:  # noqa: ANN401 - a scalar, or a list
    """The value of a sampling option; stop words and stop tokens become lists."""
    if name.endswith("stop_token_ids"):
        return [int(str(value))]
    return [value] if name.endswith("stop") else value
