"""Sampling by a server: tests/train/test_server.py has a real one; here is what is sent."""

import json
from typing import Any, Self

import pytest
import torch

from rl_sentinel.train.engine import http


def test_request_holds_ids_numbers_and_temperature(monkeypatch: pytest.MonkeyPatch) -> None:
    """No text; at most as many tokens as there are numbers for."""
    sent: list[tuple[str, Any]] = []

    class Answer:
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def read(self) -> bytes:
            choice = {
                "index": 0,
                "token_ids": [4, 1],
                "logprobs": {"token_logprobs": [-0.5, -0.25]},
                "finish_reason": "stop",
            }
            return json.dumps({"choices": [choice], "weight_version": 3}).encode()

    def opened(request: Any, timeout: float) -> Answer:
        sent.append((request.full_url, json.loads(request.data)))
        return Answer()

    monkeypatch.setattr("urllib.request.urlopen", opened)
    engine = http.Engine(http.Address("http://there"), 0.5, 9, end=1, version=3)
    (found,) = engine.sample([(7, 8)], torch.tensor([[0.25, 0.75]]))
    assert (found.token, found.logprob, found.ended, found.version) == ((4, 1), (-0.5, -0.25), True, 3)
    ((address, told),) = sent
    assert address == "http://there/v1/completions"
    assert (told["prompt"], told["max_tokens"], told["temperature"]) == ([[7, 8]], 2, 0.5)
    assert told["chance"] == [[0.25, 0.75]]
