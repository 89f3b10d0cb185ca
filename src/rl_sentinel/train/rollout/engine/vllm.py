"""Sample on a vLLM server: token ids in; token ids, log-probs, finish reason and weight version out.

The server needs vLLM's endpoints for token ids and weights; ``docs/train.md`` has the command.
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
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.phrasing import reason_of
from rl_sentinel.train.config.settings import RolloutSettings
from rl_sentinel.train.model.policy import Policy
from rl_sentinel.train.rollout.engine.http import MALFORMED, ONE_RUN, Address, parse_urls
from rl_sentinel.train.rollout.interfaces import Sampled

#: Concurrent requests, a count.
CONCURRENCY = 64

#: Two log-probs closer than this are equal, in nats; a token whose log-prob is nearer to 0 than this is certain.
_EQUAL, _CERTAIN = 1e-6, 1e-2

#: How many seeds are tried to find a token that shows the effect of the temperature.
_SEEDS = 32

#: The prefix of parameter names in ``PretrainedModel``, which the server's names lack.
_WRAPPER = "inner."

_DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}


@dataclass(slots=True)
class Engine:
    """An engine that sends one request per response, each with a separate seed, and sends weights through a file.

    Each of several replicas gets the weights and a contiguous share of the requests, since neighboring requests may
    have the same prompt.
    """

    remote: ClassVar[bool] = True
    addresses: tuple[Address, ...]
    temperature: float
    tokens: int
    ends: tuple[int, ...]
    version: int = 0
    logprobs_checked: bool = False

    def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Send new weights through a file that the servers can read, and reset their prefix caches.

        With a temperature other than 1, the log-probs of the first server are checked, until one check is conclusive.

        Raises:
            SentinelError: if a server does not answer or replies in another format, or its log-probs ignore the
                temperature.
        """
        with tempfile.TemporaryDirectory(prefix="rl-sentinel-weights-") as folder:
            write_safetensors(weights, Path(folder) / "model.safetensors")

            def load_replica(address: Address) -> None:
                address.post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": folder}})
                address.post("/reset_prefix_cache", {})
                address.post("/update_weight_version", {"new_version": str(version)})

            with ThreadPoolExecutor(len(self.addresses)) as threads:
                list(threads.map(load_replica, self.addresses))
        self.version = version
        if self.temperature != 1 and not self.logprobs_checked:
            self._require_processed_logprobs()

    def sample(
        self, prompts: Sequence[tuple[int, ...]], uniform: Float[Tensor, "B T"], *, greedy: bool = False
    ) -> list[Sampled]:
        """One response per prompt, as in ``interfaces.Engine``; the first uniform number of a row gives its seed.

        Raises:
            SentinelError: if the server does not answer, violates the protocol, or has another weight version.
        """
        parameters: dict[str, Any] = {
            "temperature": 0.0 if greedy else self.temperature,
            "max_tokens": min(self.tokens, uniform.shape[1]),
            "stop_token_ids": list(self.ends),
            "logprobs": 0,
            "detokenize": False,
        }
        seeds = (uniform[:, 0].double() * 2**31).long().tolist()
        requests = [
            {"token_ids": list(p), "sampling_params": parameters | {"seed": s}}
            for p, s in zip(prompts, seeds, strict=True)
        ]
        replicas = [self.addresses[n * len(self.addresses) // len(requests)] for n in range(len(requests))]
        with ThreadPoolExecutor(CONCURRENCY * len(self.addresses)) as threads:
            answers = list(threads.map(lambda a, r: a.post("/inference/v1/generate", r), replicas, requests))
        return [self._sampled(answer, address.url) for answer, address in zip(answers, replicas, strict=True)]

    def _require_processed_logprobs(self) -> None:
        """Reject a server whose log-probs ignore the temperature, because they belong to a different policy.

        Compares the log-prob of one token of the first replica at two temperatures. A seed whose token is certain, or
        differs between the temperatures, shows nothing, so the next seed is tried.
        """
        for seed in range(_SEEDS):
            (first, cool), (second, warm) = (self._first_token(temperature, seed) for temperature in (0.8, 1.25))
            if first == second and cool < -_CERTAIN:
                self.logprobs_checked = True
                if abs(cool - warm) < _EQUAL:
                    raise SentinelError(
                        f"log-probs of rollout.url {self.addresses[0].url} ignore the temperature, expected those at "
                        f"temperature {self.temperature}: start the server with --logprobs-mode processed_logprobs"
                    )
                return

    def _first_token(self, temperature: float, seed: int) -> tuple[int, float]:
        """A token sampled after the end token, and its log-prob."""
        parameters = {"temperature": temperature, "max_tokens": 1, "logprobs": 0, "detokenize": False, "seed": seed}
        content = {"token_ids": [self.ends[0]], "sampling_params": parameters}
        answer = self.addresses[0].post("/inference/v1/generate", content)
        with _malformed_in_one_line(self.addresses[0].url):
            (token,) = answer["choices"][0]["logprobs"]["content"]
            return int(token["token_id"]), float(token["logprob"])

    def _sampled(self, answer: Any, url: str) -> Sampled:  # noqa: ANN401 - a value of JSON
        with _malformed_in_one_line(url):
            (choice,) = answer["choices"]
            token = tuple(operator.index(t) for t in choice["token_ids"])
            content = [(int(x["token_id"]), float(x["logprob"])) for x in choice["logprobs"]["content"]]
            versions = {str(span["version"]) for span in choice["weight_versions"]}
            ended = choice["finish_reason"] == "stop"
        if tuple(t for t, _ in content) != token:
            place = next((n for n, (t, _) in enumerate(content) if token[n : n + 1] != (t,)), len(content))
            raise SentinelError(
                f"reply of rollout.url {url} has log-probs of {len(content)} tokens, expected one for each of the "
                f"{len(token)} sampled tokens (they differ at token {place}): use vLLM 0.32, which is tested"
            )
        if versions != {str(self.version)}:
            returned = ", ".join(sorted(versions)) or "missing"
            raise SentinelError(
                f"weight version of rollout.url {url} is {returned}, expected {self.version}: {ONE_RUN}"
            )
        return Sampled(token, tuple(x for _, x in content), ended, self.version)


def build_engine(settings: RolloutSettings, policy: Policy, *, shared: bool) -> Engine:  # noqa: ARG001 - a server shares no weights
    """Build the engine of a recipe.

    Raises:
        SentinelError: if ``rollout.url`` is not valid.
    """
    return Engine(parse_urls(settings.url), settings.temperature, settings.tokens, policy.ends)


@contextmanager
def _malformed_in_one_line(url: str) -> Iterator[None]:
    try:
        yield
    except MALFORMED as error:
        raise SentinelError(
            f"reply of rollout.url {url} is malformed ({reason_of(error)}), expected token ids, log-probs, finish "
            "reason and weight versions: use a vLLM release with the reply format of 0.32"
        ) from error


def write_safetensors(weights: Mapping[str, Tensor], path: Path) -> None:
    """Write weights as safetensors: the header's length, the header in JSON, and the tensors' bytes."""
    header, parts, end = {}, [], 0
    for name, weight in weights.items():
        flat = weight.detach().cpu().contiguous()
        part = flat.view(-1).view(torch.uint8).numpy().tobytes()
        entry = {"dtype": _DTYPES[flat.dtype], "shape": list(flat.shape), "data_offsets": [end, end + len(part)]}
        header[name.removeprefix(_WRAPPER)] = entry
        parts.append(part)
        end += len(part)
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(parts)
