"""Sample on an HTTP server: token ids in; token ids, log-probs, finish reason and weight version out."""

import http.client
import json
import operator
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
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
from rl_sentinel.train.rollout.interfaces import Sampled

#: What to do when a server does not answer.
RESTART = "check the URL and the server, and run the same command to resume from the newest checkpoint"

#: What to do when a server has other weights than those that this run sent.
ONE_RUN = "another run may have sent weights to this server, so start one server per run"

#: Errors from reading JSON of another structure than expected.
MALFORMED = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError)


@dataclass(frozen=True, slots=True)
class Address:
    """A server's address.

    A request is tried up to ``tries`` times, with pauses that double from ``pause`` seconds. A request without a
    reply within ``timeout`` seconds is not repeated, since the server hangs.
    """

    url: str
    tries: int = 5
    pause: float = 0.5
    timeout: float = 600.0

    def post(self, path: str, content: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a value of JSON
        """Post JSON and return the JSON reply; None if the reply is empty.

        Raises:
            SentinelError: if each attempt fails, or the server does not reply in time.
        """
        body, reason_text = json.dumps(content).encode(), ""
        for attempt in range(self.tries):
            if attempt:
                time.sleep(self.pause * 2 ** (attempt - 1))
            request = urllib.request.Request(self.url + path, body, {"Content-Type": "application/json"})  # noqa: S310 - parse_url allows http only
            try:
                with urllib.request.urlopen(request, timeout=self.timeout) as answer:  # noqa: S310 - as above
                    text = answer.read()
                    return json.loads(text) if text else None
            except urllib.error.HTTPError as error:
                reason_text = f"status {error.code}: {_first_line(error)}"
            except (OSError, ValueError, http.client.HTTPException) as error:
                reason = getattr(error, "reason", error)
                if isinstance(reason, TimeoutError) and reason.errno is None:  # this address's own limit
                    raise SentinelError(
                        f"rollout.url {self.url} did not respond within {self.timeout:g} s at {path}: {RESTART}"
                    ) from error
                words = str(getattr(reason, "strerror", None) or reason)
                reason_text = " ".join(words.split()) or type(reason).__name__
        raise SentinelError(f"rollout.url {self.url} failed {self.tries} times at {path} ({reason_text}): {RESTART}")


def parse_url(url: str) -> Address:
    """Parse the URL of a server.

    Raises:
        SentinelError: if the URL is not valid.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        valid = parts.scheme in {"http", "https"} and parts.hostname and (parts.port is None or parts.port > 0)
        valid = valid and url.isprintable() and " " not in url
    except ValueError:
        valid = False
    if not valid:
        raise SentinelError(f"rollout.url is {url!r}, expected one address, such as http://127.0.0.1:8000")
    return Address(url.rstrip("/"))


def parse_urls(urls: str) -> tuple[Address, ...]:
    """Parse the URLs of several servers, separated by commas.

    Raises:
        SentinelError: if a URL is not valid, or named twice.
    """
    parts = [url.strip() for url in urls.split(",")]
    if not all(parts):
        raise SentinelError(f"rollout.url is {urls!r}, expected an address on each side of a comma: remove the comma")
    addresses = tuple(map(parse_url, parts))
    if len(set(addresses)) < len(addresses):
        raise SentinelError(f"rollout.url is {urls!r}, expected different addresses: name each server once")
    return addresses


@dataclass(slots=True)
class Engine:
    """An engine that samples with ``/v1/completions``, and sends weights through a file with ``/v1/weights``."""

    remote: ClassVar[bool] = True
    address: Address
    temperature: float
    tokens: int
    version: int = 0

    def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Send new weights through a file that the server can read."""
        with tempfile.TemporaryDirectory(prefix="rl-sentinel-weights-") as folder:
            place = Path(folder) / "weights.pt"
            torch.save({name: weight.cpu() for name, weight in weights.items()}, place)
            self.address.post("/v1/weights", {"path": str(place), "version": version})
        self.version = version

    def sample(
        self, prompts: Sequence[tuple[int, ...]], uniform: Float[Tensor, "B T"], *, greedy: bool = False
    ) -> list[Sampled]:
        """One response per prompt, as in ``interfaces.Engine``.

        Raises:
            SentinelError: if the server does not answer, violates the protocol, or has another weight version.
        """
        content = {
            "prompt": [list(p) for p in prompts],
            "max_tokens": min(self.tokens, uniform.shape[1]),
            "temperature": 0.0 if greedy else self.temperature,
            "logprobs": 0,
            "return_token_ids": True,
            "chance": uniform.tolist(),
        }
        answer, url = self.address.post("/v1/completions", content), self.address.url
        try:
            choices = sorted(answer["choices"], key=lambda c: int(c["index"]))
            sampled = [_sampled(c, int(answer["weight_version"])) for c in choices]
        except MALFORMED as error:
            raise SentinelError(
                f"reply of rollout.url {url} is malformed ({reason_of(error)}), expected token ids and log-probs: "
                "fix the server"
            ) from error
        if len(sampled) != len(prompts):
            raise SentinelError(
                f"reply of rollout.url {url} has {len(sampled)} responses, expected {len(prompts)}, one per prompt: "
                "fix the server"
            )
        if sampled and sampled[0].version != self.version:
            raise SentinelError(
                f"weight version of rollout.url {url} is {sampled[0].version}, expected {self.version}: {ONE_RUN}"
            )
        return sampled


def build_engine(settings: RolloutSettings, policy: Policy, *, shared: bool) -> Engine:  # noqa: ARG001 - a server has both
    """Build the engine of a recipe.

    Raises:
        SentinelError: if ``rollout.url`` is not valid.
    """
    return Engine(parse_url(settings.url), settings.temperature, settings.tokens)


def _sampled(choice: Mapping[str, Any], version: int) -> Sampled:
    token = tuple(operator.index(t) for t in choice["token_ids"])
    logprob = tuple(float(x) for x in choice["logprobs"]["token_logprobs"])
    if len(token) != len(logprob):
        raise ValueError(f"{len(token)} tokens, {len(logprob)} log-probs")
    return Sampled(token, logprob, choice["finish_reason"] == "stop", version)


def _first_line(error: urllib.error.HTTPError) -> str:
    """The first line of an error's body, if it can be read."""
    try:
        return error.read().decode(errors="replace").partition("\n")[0][:200]
    except (OSError, http.client.HTTPException) as cut:
        return str(cut)
