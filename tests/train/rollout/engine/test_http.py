"""The HTTP engine: what it sends, and malformed answers; tests/train/rollout/test_server.py has a real server."""

import json
import socket
import threading
from typing import Any, Self

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.rollout.engine import http, vllm


def test_request_has_ids_uniform_numbers_and_temperature(monkeypatch: pytest.MonkeyPatch) -> None:
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

    def urlopen(request: Any, timeout: float) -> Answer:
        sent.append((request.full_url, json.loads(request.data)))
        return Answer()

    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    engine = http.Engine(http.Address("http://there"), 0.5, 9, version=3)
    (response,) = engine.sample([(7, 8)], torch.tensor([[0.25, 0.75]]))
    assert (response.token, response.logprob, response.ended, response.version) == ((4, 1), (-0.5, -0.25), True, 3)
    ((address, content),) = sent
    assert address == "http://there/v1/completions"
    assert (content["prompt"], content["max_tokens"], content["temperature"]) == ([[7, 8]], 2, 0.5)
    assert content["chance"] == [[0.25, 0.75]]


@pytest.mark.parametrize(
    "url", ["", "ftp://x", "http://127.0.0.1:port", "http://[bad", "http://a b/", "http://", "http://a:0", "http://a\n"]
)
def test_invalid_url_is_one_line(url: str) -> None:
    with pytest.raises(
        SentinelError, match=r"^rollout.url is .*, expected one address, such as http://127.0.0.1:8000$"
    ):
        http.parse_url(url)


@pytest.mark.parametrize(
    ("answer_bytes", "words"),
    [
        (b"220 mail.example ESMTP\r\n", "220 mail"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 99\r\n\r\n{", "IncompleteRead"),
        (b"HTTP/1.0 500 No\r\nContent-Length: 99\r\n\r\nx", "status 500"),
        (b"HTTP/1.0 200 OK\r\n\r\n<html>", "Expecting value"),
        (b"", "closed connection"),
    ],
)
def test_other_server_is_one_line(answer_bytes: bytes, words: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                request = b""
                while not request.endswith(b"{}"):  # closing with unread data would reset the connection
                    request += connection.recv(1 << 16)
                connection.sendall(answer_bytes)

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(
            SentinelError, match=rf"rollout.url {url} failed 1 times at /x \(.*{words}.*\): check the URL"
        ) as error:
            http.Address(url, tries=1, timeout=10).post("/x", {})
        thread.join()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("answer", [None, [], 5, {"choices": 5, "weight_version": 0}, {"choices": [5]}])
def test_malformed_answer_is_one_line(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    monkeypatch.setattr(http.Address, "post", lambda *_: answer)
    with pytest.raises(
        SentinelError, match=r"reply of rollout.url http://there is malformed \(.*\), expected token ids and"
    ):
        http.Engine(http.Address("http://there"), 1.0, 2).sample([(2,)], torch.zeros(1, 2))


@pytest.mark.parametrize("answer", [None, [], {"choices": []}, {"choices": [{"logprobs": None}]}])
def test_malformed_answer_of_vllm_is_one_line(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    monkeypatch.setattr(http.Address, "post", lambda *_: answer)
    engine = vllm.Engine((http.Address("http://there"),), 0.5, 2, ends=(1,))
    for call in (lambda: engine.sample([(2,)], torch.zeros(1, 2)), lambda: engine.load({}, 0)):
        with pytest.raises(
            SentinelError, match=r"reply of rollout.url http://there is malformed .*: use a vLLM release"
        ):
            call()
