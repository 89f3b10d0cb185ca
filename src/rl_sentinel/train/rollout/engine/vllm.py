"""Sampling by a server of vLLM: token ids in; token ids, log-probs, finish reason and the weights' version out.

The server is one of vLLM's own, with the endpoints that exchange tokens and weights; ``docs/train.md`` has its command.
"""

import json
import operator
import struct
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.config.recipe import Sampling
from rl_sentinel.train.model.policy import Policy
from rl_sentinel.train.rollout.engine.http import FOREIGN, Address, addressed
from rl_sentinel.train.rollout.interfaces import Sampled

#: Requests that are under way at once.
TOGETHER = 64

#: Log-probs that are no further apart are the same, and a token whose own is nearer to 0 is certain, in nats.
_SAME, _SURE = 1e-6, 1e-2

#: How many seeds are tried for a token that tells of the temperature.
_SEEDS = 32

#: What the names of a policy of transformers begin with, and the server's do not.
_WRAPPED = "inner."

_TYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}


@dataclass(slots=True)
class Engine:
    """Asks a request per response, each with a seed of its own, and has new weights reloaded from a file."""

    address: Address
    temperature: float
    tokens: int
    end: int
    version: int = 0
    tried: bool = False

    def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Have the server take new weights, by a file that both can read; what it knows of prompts is forgotten."""
        with tempfile.TemporaryDirectory(prefix="rl-sentinel-weights-") as folder:
            written(weights, Path(folder) / "model.safetensors")
            told = {"method": "reload_weights", "kwargs": {"weights_path": folder}}
            self.address.asked("/collective_rpc", told)
        self.address.asked("/reset_prefix_cache", {})
        self.address.asked("/update_weight_version", {"new_version": str(version)})
        self.version = version
        if self.temperature != 1 and not self.tried:
            self._require_own_logprobs()

    def sample(
        self, prompts: Sequence[tuple[int, ...]], uniform: Float[Tensor, "B T"], *, greedy: bool = False
    ) -> list[Sampled]:
        """One response to each prompt, as ``sampling.Engine`` says; its seed comes of its numbers of uniform.

        Raises:
            SentinelError: if the server does not answer, or not in this protocol, or with weights of another version.
        """
        how: dict[str, Any] = {
            "temperature": 0.0 if greedy else self.temperature,
            "max_tokens": min(self.tokens, uniform.shape[1]),
            "stop_token_ids": [self.end],
            "logprobs": 0,
            "detokenize": False,
        }
        seeds = (uniform[:, 0].double() * 2**31).long().tolist()
        wanted = [
            {"token_ids": list(p), "sampling_params": how | {"seed": s}} for p, s in zip(prompts, seeds, strict=True)
        ]
        with ThreadPoolExecutor(TOGETHER) as threads:
            answers = list(threads.map(lambda told: self.address.asked("/inference/v1/generate", told), wanted))
        return [self._sampled(answer) for answer in answers]

    def _require_own_logprobs(self) -> None:
        """Refuse a server that tells log-probs as they were before the temperature: those of another policy.

        Of one token at two temperatures, drawn by one seed; where it is certain, or another, the next seed may tell.
        """
        for seed in range(_SEEDS):
            (one, cool), (other, warm) = (self._drawn(heat, seed) for heat in (0.8, 1.25))
            if one == other and cool < -_SURE:
                self.tried = True
                if abs(cool - warm) < _SAME:
                    raise SentinelError(
                        f"rollout.url {self.address.url} tells log-probs before the temperature, {self.temperature}, "
                        "expected those after it: start it with --logprobs-mode processed_logprobs"
                    )
                return

    def _drawn(self, heat: float, seed: int) -> tuple[int, float]:
        """What is first said behind the end, and its log-prob."""
        how = {"temperature": heat, "max_tokens": 1, "logprobs": 0, "detokenize": False, "seed": seed}
        told = {"token_ids": [self.end], "sampling_params": how}
        answer = self.address.asked("/inference/v1/generate", told)
        with self._shaped():
            (found,) = answer["choices"][0]["logprobs"]["content"]
            return int(found["token_id"]), float(found["logprob"])

    @contextmanager
    def _shaped(self) -> Iterator[None]:
        """An answer of another shape is told in one line."""
        try:
            yield
        except FOREIGN as error:
            way = "take a release that answers as 0.32 does"
            raise SentinelError(
                f"rollout.url {self.address.url} answered something else ({error}), expected token ids and log-probs: "
                f"{way}"
            ) from error

    def _sampled(self, answer: Any) -> Sampled:  # noqa: ANN401 - what JSON holds
        url = self.address.url
        with self._shaped():
            (choice,) = answer["choices"]
            token = tuple(operator.index(t) for t in choice["token_ids"])
            known = [(int(x["token_id"]), float(x["logprob"])) for x in choice["logprobs"]["content"]]
            versions = {str(span["version"]) for span in choice["weight_versions"]}
            ended = choice["finish_reason"] == "stop"
        if tuple(t for t, _ in known) != token:
            raise SentinelError(f"rollout.url {url} gave no log-prob for each of its tokens, expected them")
        if versions != {str(self.version)}:
            got = ", ".join(sorted(versions))
            raise SentinelError(f"rollout.url {url} sampled with weights of version {got}, expected {self.version}")
        return Sampled(token, tuple(x for _, x in known), ended, self.version)


def engine(sampling: Sampling, policy: Policy, *, shared: bool) -> Engine:  # noqa: ARG001 - a server shares no weights
    """The engine of a recipe.

    Raises:
        SentinelError: if the address is none.
    """
    return Engine(addressed(sampling.url), sampling.temperature, sampling.tokens, policy.end)


def written(weights: Mapping[str, Tensor], path: Path) -> None:
    """Weights as a file of safetensors: the length of a header, the header in JSON, and the numbers one after another.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import torch
        >>> from rl_sentinel.train.rollout.engine.vllm import written
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     written({"w": torch.zeros(2, 3)}, Path(folder) / "model.safetensors")
        ...     (Path(folder) / "model.safetensors").read_bytes()[8:].rstrip(bytes(24))
        b'{"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}'
    """
    header, parts, end = {}, [], 0
    for name, weight in weights.items():
        flat = weight.detach().cpu().contiguous()
        part = flat.view(-1).view(torch.uint8).numpy().tobytes()
        told = {"dtype": _TYPES[flat.dtype], "shape": list(flat.shape), "data_offsets": [end, end + len(part)]}
        header[name.removeprefix(_WRAPPED)] = told
        parts.append(part)
        end += len(part)
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(parts)
