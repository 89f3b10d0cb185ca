"""A small rollout server for the tiny model, with the protocol of ``engine.http``: for tests, and as an example.

``python -m rl_sentinel.train.rollout.server RECIPE [--port N] [key=value...]`` serves the recipe's model. Its weights
arrive with the first step. The server listens on the loopback interface only.
"""

import json
import sys
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch

from rl_sentinel.train.config.recipe import read
from rl_sentinel.train.model.policy import Policy, from_scratch
from rl_sentinel.train.rollout.engine.process import Engine


class Server(ThreadingHTTPServer):
    """Answers one request after another."""

    daemon_threads = True

    def __init__(self, policy: Policy, port: int = 0) -> None:
        """Port 0 takes a free one; ``url`` says which."""
        super().__init__(("127.0.0.1", port), Handler)
        self.policy, self.version, self.lock = policy, 0, threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def answers(self) -> dict[str, Callable[[Any], Any]]:
        """What answers at each address."""
        return {"/v1/weights": self.weights, "/v1/completions": self.completions}

    def weights(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """Take the weights of a file."""
        self.policy.model.load_state_dict(torch.load(told["path"], weights_only=True))
        self.version = int(told["version"])
        return {"weight_version": self.version}

    def completions(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """A response to each prompt, drawn by the numbers that came with it; the likeliest at temperature 0."""
        heat = float(told["temperature"])
        engine = Engine(self.policy, heat or 1.0, int(told["max_tokens"]), version=self.version)
        sampled = engine.sample([tuple(p) for p in told["prompt"]], torch.tensor(told["chance"]), greedy=heat == 0)
        choices = [
            {
                "index": n,
                "token_ids": s.token,
                "logprobs": {"token_logprobs": s.logprob},
                "finish_reason": "stop" if s.ended else "length",
            }
            for n, s in enumerate(sampled)
        ]
        return {"choices": choices, "weight_version": self.version}


class Handler(BaseHTTPRequestHandler):
    """The server's addresses; whatever goes wrong is told in a line."""

    server: Server

    def do_POST(self) -> None:
        """Answer in JSON."""
        try:
            told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with self.server.lock:
                answer = self.server.answers[self.path](told)
            status, body = 200, "" if answer is None else json.dumps(answer)
        except Exception as error:  # noqa: BLE001 - a server answers, whatever it was asked
            status, body = 400, f"{type(error).__name__}: {error}".partition("\n")[0]
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def main(arguments: list[str]) -> None:
    """Serve until ended."""
    port, rest = 8000, list(arguments)
    if "--port" in rest:
        place = rest.index("--port")
        port, rest = int(rest[place + 1]), rest[:place] + rest[place + 2 :]
    server = Server(from_scratch(read(Path(rest[0]), rest[1:])), port)
    print(server.url, flush=True)  # noqa: T201 - whoever started it wants to know
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
