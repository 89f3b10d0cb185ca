"""The rollout server on the loopback interface: equal bytes as in process, and messages when it fails."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.model.policy import init_policy
from rl_sentinel.train.rollout.engine import http
from rl_sentinel.train.rollout.server import Server
from rl_sentinel.train.run.checkpoint import load_newest
from rl_sentinel.train.run.loop import train
from rl_sentinel.train.run.run_context import Callbacks
from training import folder_cache, recipe

MORE: dict[str, Any] = {"steps": 4, "checkpoint": {"every": 1}}


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of the small recipe's model, with other weights than the run's."""
    running = Server(init_policy(recipe(seed=99)))
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield running
    running.shutdown()
    running.server_close()


def _remote(url: str) -> dict[str, Any]:
    return {"engine": "http", "url": url}


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)


@pytest.mark.parametrize("more", [{}, {"estimator": {"name": "remax"}}])
def test_server_trains_to_the_same_bytes(tmp_path: Path, server: Server, more: dict[str, Any]) -> None:
    train(recipe(tmp_path / "one", **MORE, **more), cache=folder_cache(tmp_path))
    train(recipe(tmp_path / "two", **MORE, **more, rollout=_remote(server.url)), cache=folder_cache(tmp_path))
    one, two = ((tmp_path / n / "metrics.jsonl").read_bytes() for n in ("one", "two"))
    assert one == two
    assert server.version == 3


def test_failing_server_stops_the_run_and_keeps_its_checkpoint(tmp_path: Path, server: Server) -> None:
    config = recipe(tmp_path, **MORE, rollout=_remote(server.url))
    requests: list[str] = []
    complete = server.complete

    def failing(request: Any) -> Any:
        requests.append("")
        if len(requests) > 2:
            raise RuntimeError("out of memory")
        return complete(request)

    server.complete = failing  # type: ignore[method-assign]  # the server's fault
    with pytest.raises(
        SentinelError,
        match=r"failed 5 times at /v1/completions \(status 400: RuntimeError: out of memory\): check the",
    ):
        train(config, cache=folder_cache(tmp_path))
    assert len(requests) == 2 + 5
    state = load_newest(tmp_path / "checkpoints").state
    assert state is not None
    assert state["step"] == 2
    server.complete = complete  # type: ignore[method-assign]  # as above
    messages: list[str] = []
    train(config, cache=folder_cache(tmp_path), callbacks=Callbacks(message=messages.append))
    assert messages == ["resuming after step 2 of 4"]


def test_unreachable_server_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        SentinelError,
        match=r"rollout.url http://127.0.0.1:9 failed 5 times at /v1/weights \(.*refused.*\): check the",
    ):
        train(recipe(tmp_path, rollout=_remote("http://127.0.0.1:9")), cache=folder_cache(tmp_path))


def test_hanging_server_is_not_retried(server: Server) -> None:
    requests, hold = [], threading.Event()

    def hanging(request: Any) -> Any:
        requests.append(request)
        hold.wait(10)

    server.complete = hanging  # type: ignore[method-assign]  # the server's fault
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # the client has left
    with pytest.raises(
        SentinelError,
        match=r"rollout.url http://\S+ did not respond within 0.2 s at /v1/completions: check the URL",
    ):
        http.Address(server.url, timeout=0.2).post("/v1/completions", {})
    hold.set()
    assert len(requests) == 1


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"choices": []}, "is malformed .'weight_version'., expected token ids and log-probs|has 0 responses"),
        ({"choices": [], "weight_version": 0}, "has 0 responses, expected 1"),
        (
            {
                "choices": [
                    {"index": 0, "token_ids": [1], "logprobs": {"token_logprobs": []}, "finish_reason": "stop"}
                ],
                "weight_version": 0,
            },
            "is malformed .1 tokens, 0 log-probs.",
        ),
        (
            {
                "choices": [
                    {"index": 0, "token_ids": [1], "logprobs": {"token_logprobs": [0.0]}, "finish_reason": "stop"}
                ],
                "weight_version": 7,
            },
            "weight version of .* is 7, expected 0",
        ),
    ],
)
def test_other_answers_are_rejected(server: Server, answer: dict[str, Any], words: str) -> None:
    server.complete = lambda _request: answer  # type: ignore[assignment]  # the server's fault
    engine = http.Engine(http.Address(server.url), 1.0, 2)
    with pytest.raises(SentinelError, match=words):
        engine.sample([(2,)], torch.zeros(1, 2))
