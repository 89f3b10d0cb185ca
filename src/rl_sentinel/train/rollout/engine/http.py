"""Sampling by a server: token ids in; token ids, log-probs, finish reason and the version of the weights out."""

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
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.config.recipe import Sampling
from rl_sentinel.train.model.policy import Policy
from rl_sentinel.train.rollout.interfaces import Sampled

#: What is left to do where a server is gone.
WAY = "start the server, and run the same command to go on from the newest checkpoint"

#: What an answer raises that is JSON and of another shape.
FOREIGN = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError)


@dataclass(frozen=True, slots=True)
class Address:
    """A server; one that refuses is asked ``tries`` times, after pauses that double from ``pause`` seconds.

    One that is silent for ``wait`` seconds is not asked again: it hangs.
    """

    url: str
    tries: int = 5
    pause: float = 0.5
    wait: float = 600.0

    def asked(self, path: str, told: Mapping[str, Any]) -> Any:  # noqa: ANN401 - what JSON holds
        """What it answers to a request in JSON; None where it says nothing.

        Raises:
            SentinelError: if it does not answer, with its words.
        """
        body, words = json.dumps(told).encode(), ""
        for attempt in range(self.tries):
            if attempt:
                time.sleep(self.pause * 2 ** (attempt - 1))
            request = urllib.request.Request(self.url + path, body, {"Content-Type": "application/json"})  # noqa: S310 - checked to be http
            try:
                with urllib.request.urlopen(request, timeout=self.wait) as answer:  # noqa: S310 - as above
                    text = answer.read()
                    return json.loads(text) if text else None
            except urllib.error.HTTPError as error:
                words = f"status {error.code}: {_said(error)}"
            except (OSError, ValueError, http.client.HTTPException) as error:
                reason = getattr(error, "reason", error)
                if isinstance(reason, TimeoutError):
                    raise SentinelError(
                        f"rollout.url {self.url} is silent for {self.wait:g} s to {path}: {WAY}"
                    ) from error
                words = " ".join(str(reason).split()) or type(reason).__name__
        raise SentinelError(f"rollout.url {self.url} does not answer {path} ({words}) in {self.tries} tries: {WAY}")


def addressed(url: str) -> Address:
    """The server at an address.

    Raises:
        SentinelError: if the address is none.
    """
    try:
        known = urllib.parse.urlsplit(url)
        fits = known.scheme in {"http", "https"} and known.hostname and (known.port is None or known.port > 0)
        fits = fits and url.isprintable() and " " not in url
    except ValueError:
        fits = False
    if not fits:
        raise SentinelError(f"rollout.url is {url!r}, expected an address, as http://127.0.0.1:8000")
    return Address(url.rstrip("/"))


@dataclass(slots=True)
class Engine:
    """Asks ``rollout.url`` by ``/v1/completions``, and has it reload weights from a file by ``/v1/weights``."""

    address: Address
    temperature: float
    tokens: int
    end: int
    version: int = 0

    def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Have the server take new weights, by a file that both can read."""
        with tempfile.TemporaryDirectory(prefix="rl-sentinel-weights-") as folder:
            place = Path(folder) / "weights.pt"
            torch.save(dict(weights), place)
            self.address.asked("/v1/weights", {"path": str(place), "version": version})
        self.version = version

    def sample(
        self, prompts: Sequence[tuple[int, ...]], uniform: Float[Tensor, "B T"], *, greedy: bool = False
    ) -> list[Sampled]:
        """One response to each prompt, as ``sampling.Engine`` says.

        Raises:
            SentinelError: if the server does not answer, or not in this protocol, or with weights of another version.
        """
        wanted = {
            "prompt": [list(p) for p in prompts],
            "max_tokens": min(self.tokens, uniform.shape[1]),
            "temperature": 0.0 if greedy else self.temperature,
            "logprobs": 0,
            "return_token_ids": True,
            "chance": uniform.tolist(),
        }
        answer, url = self.address.asked("/v1/completions", wanted), self.address.url
        try:
            choices = sorted(answer["choices"], key=lambda c: int(c["index"]))
            found = [_sampled(c, int(answer["weight_version"])) for c in choices]
        except FOREIGN as error:
            raise SentinelError(
                f"rollout.url {url} answered without {error}, expected token ids and log-probs"
            ) from error
        if len(found) != len(prompts):
            raise SentinelError(f"rollout.url {url} answered {len(found)} responses, expected {len(prompts)}")
        if found and found[0].version != self.version:
            raise SentinelError(
                f"rollout.url {url} sampled with weights of version {found[0].version}, expected {self.version}"
            )
        return found


def engine(sampling: Sampling, policy: Policy, *, shared: bool) -> Engine:  # noqa: ARG001 - a server shares no weights
    """The engine of a recipe.

    Raises:
        SentinelError: if the address is none.
    """
    return Engine(addressed(sampling.url), sampling.temperature, sampling.tokens, policy.end)


def _sampled(choice: Mapping[str, Any], version: int) -> Sampled:
    token = tuple(operator.index(t) for t in choice["token_ids"])
    known = tuple(float(x) for x in choice["logprobs"]["token_logprobs"])
    if len(token) != len(known):
        raise ValueError("a log-prob for each token")
    return Sampled(token, known, choice["finish_reason"] == "stop", version)


def _said(error: urllib.error.HTTPError) -> str:
    """The first line of what was answered with a status, if it can be read."""
    try:
        return error.read().decode(errors="replace").partition("\n")[0]
    except (OSError, http.client.HTTPException) as cut:
        return str(cut)
