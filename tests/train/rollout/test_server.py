"""A rollout server, real and on the loopback interface: the same bytes as in process, and what is said when it dies."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.model.policy import from_scratch
from rl_sentinel.train.rollout.engine import http, process
from rl_sentinel.train.rollout.server import Server
from rl_sentinel.train.run.checkpoint import newest
from rl_sentinel.train.run.loop import Watch, train
from training import kept_in, recipe

MORE: dict[str, Any] = {"steps": 4, "checkpoint": {"every": 1}}


@pytest.fixture
def server() -> Iterator[Server]:
    """One that serves the small recipe's model, from other weights than the run's."""
    found = Server(from_scratch(recipe(seed=99)))
    threading.Thread(target=found.serve_forever, daemon=True).start()
    yield found
    found.shutdown()
    found.server_close()


def _remote(url: str) -> dict[str, Any]:
    return {"engine": "http", "url": url}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask again at once."""
    monkeypatch.setattr("time.sleep", lambda _: None)


@pytest.mark.parametrize("more", [{}, {"estimator": {"name": "remax"}}])
def test_server_trains_to_the_same_bytes(tmp_path: Path, server: Server, more: dict[str, Any]) -> None:
    """Token ids, log-probs and versions go over the wire, weights by a file; greedy responses are asked for too."""
    train(recipe(tmp_path / "one", **MORE, **more), kept=kept_in(tmp_path))
    train(recipe(tmp_path / "two", **MORE, **more, rollout=_remote(server.url)), kept=kept_in(tmp_path))
    one, two = ((tmp_path / n / "metrics.jsonl").read_bytes() for n in ("one", "two"))
    assert one == two
    assert server.version == 3


def test_dying_server_stops_the_run_and_keeps_its_checkpoint(tmp_path: Path, server: Server) -> None:
    """Asked five times, then one line; the same command goes on when it is back."""
    wanted = recipe(tmp_path, **MORE, rollout=_remote(server.url))
    asked: list[str] = []
    usual = server.completions

    def dying(told: Any) -> Any:
        asked.append("")
        if len(asked) > 2:
            raise RuntimeError("out of memory")
        return usual(told)

    server.completions = dying  # type: ignore[method-assign]  # that is the point
    with pytest.raises(
        SentinelError, match=r"/v1/completions \(status 400: RuntimeError: out of memory\) in 5 tries: start"
    ):
        train(wanted, kept=kept_in(tmp_path))
    assert len(asked) == 2 + 5
    found = newest(tmp_path / "checkpoints").state
    assert found is not None
    assert found["step"] == 2
    server.completions = usual  # type: ignore[method-assign]  # as above
    said: list[str] = []
    train(wanted, kept=kept_in(tmp_path), watch=Watch(say=said.append))
    assert said == ["going on after step 2 of 4"]


def test_unreachable_server_is_one_line(tmp_path: Path) -> None:
    """Nobody listens there."""
    with pytest.raises(
        SentinelError, match=r"rollout.url http://127.0.0.1:9 does not answer /v1/weights \(.*refused.*\) in 5"
    ):
        train(recipe(tmp_path, rollout=_remote("http://127.0.0.1:9")), kept=kept_in(tmp_path))


def test_silent_server_is_not_asked_again(server: Server) -> None:
    """It hangs: a process that ends may hold its connections, and each try would wait as long."""
    asked, hold = [], threading.Event()

    def hanging(told: Any) -> Any:
        asked.append(told)
        hold.wait(10)

    server.completions = hanging  # type: ignore[method-assign]  # that is the point
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # its answer finds nobody
    with pytest.raises(
        SentinelError, match=r"rollout.url http://\S+ is silent for 0.2 s to /v1/completions: start the"
    ):
        http.Address(server.url, wait=0.2).asked("/v1/completions", {})
    hold.set()
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"choices": []}, "answered without 'weight_version', expected token ids and log-probs|answered 0 responses"),
        ({"choices": [], "weight_version": 0}, "answered 0 responses, expected 1"),
        (
            {
                "choices": [
                    {"index": 0, "token_ids": [1], "logprobs": {"token_logprobs": []}, "finish_reason": "stop"}
                ],
                "weight_version": 0,
            },
            "answered without a log-prob for each token",
        ),
        (
            {
                "choices": [
                    {"index": 0, "token_ids": [1], "logprobs": {"token_logprobs": [0.0]}, "finish_reason": "stop"}
                ],
                "weight_version": 7,
            },
            "sampled with weights of version 7, expected 0",
        ),
    ],
)
def test_other_answers_are_refused(server: Server, answer: dict[str, Any], words: str) -> None:
    """Rather than trained on."""
    server.completions = lambda _told: answer  # type: ignore[assignment]  # that is the point
    engine = http.Engine(http.Address(server.url), 1.0, 2, end=1)
    with pytest.raises(SentinelError, match=words):
        engine.sample([(2,)], torch.zeros(1, 2))


def test_address_is_asked_for() -> None:
    """By the engine that needs one."""
    with pytest.raises(SentinelError, match=r"rollout.url is 'ftp://x', expected an address, as http://127.0.0.1:8000"):
        http.engine(recipe(rollout={"url": "ftp://x"}).rollout, from_scratch(recipe()), shared=False)
    assert process.engine(recipe().rollout, from_scratch(recipe()), shared=True).shared
