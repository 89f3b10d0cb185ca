"""Sampling by a server: tests/train/rollout/test_server.py has a real one; here is what is sent."""

import json
import socket
import threading
from typing import Any, Self

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.rollout.engine import http, vllm


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


@pytest.mark.parametrize(
    "url", ["", "ftp://x", "http://127.0.0.1:port", "http://[bad", "http://a b/", "http://", "http://a:0", "http://a\n"]
)
def test_address_that_is_none_is_one_line(url: str) -> None:
    """Before anybody is asked."""
    with pytest.raises(SentinelError, match=r"^rollout.url is .*, expected an address, as http://127.0.0.1:8000$"):
        http.addressed(url)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"220 mail.example ESMTP\r\n", "220 mail"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 99\r\n\r\n{", "IncompleteRead"),
        (b"HTTP/1.0 500 No\r\nContent-Length: 99\r\n\r\nx", "status 500"),
        (b"HTTP/1.0 200 OK\r\n\r\n<html>", "Expecting value"),
        (b"", "closed connection"),
    ],
)
def test_what_is_no_server_is_one_line(said: bytes, words: str) -> None:
    """An address where something else answers, or half of it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            taken, _ = listening.accept()
            with taken:
                taken.recv(1 << 16)
                taken.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(SentinelError, match=rf"rollout.url {url} does not answer /x \(.*{words}.*\) in 1") as told:
            http.Address(url, tries=1, wait=10).asked("/x", {})
        thread.join()
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("answer", [None, [], 5, {"choices": 5, "weight_version": 0}, {"choices": [5]}])
def test_answer_of_another_shape_is_one_line(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    """Whatever JSON it is."""
    monkeypatch.setattr(http.Address, "asked", lambda *_: answer)
    with pytest.raises(SentinelError, match=r"rollout.url http://there answered without .*, expected token ids and"):
        http.Engine(http.Address("http://there"), 1.0, 2, end=1).sample([(2,)], torch.zeros(1, 2))


@pytest.mark.parametrize("answer", [None, [], {"choices": []}, {"choices": [{"logprobs": None}]}])
def test_answer_of_another_vllm_is_one_line(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    """To a response, and to what is asked of it at the start."""
    monkeypatch.setattr(http.Address, "asked", lambda *_: answer)
    engine = vllm.Engine(http.Address("http://there"), 0.5, 2, end=1)
    for call in (lambda: engine.sample([(2,)], torch.zeros(1, 2)), lambda: engine.load({}, 0)):
        with pytest.raises(SentinelError, match=r"rollout.url http://there answered something else .*: take a release"):
            call()
