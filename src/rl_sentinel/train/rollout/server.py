"""A small rollout server for the tiny model, with the protocol of ``engine.http``: for tests, and as an example.

``python -m rl_sentinel.train.rollout.server RECIPE [--port N] [key=value...]`` serves the recipe's model. Its weights
arrive with the first step. The server listens on the loopback interface only.
"""

import argparse
import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch

from rl_sentinel.train.config.recipe import load_recipe
from rl_sentinel.train.model.device import CPU
from rl_sentinel.train.model.policy import Policy, init_policy
from rl_sentinel.train.rollout.engine.process import Engine


class Server(ThreadingHTTPServer):
    """An HTTP server that serves one request at a time."""

    daemon_threads = True

    def __init__(self, policy: Policy, port: int = 0) -> None:
        """Listen on a port; 0 takes a free port, which ``url`` shows."""
        super().__init__(("127.0.0.1", port), Handler)
        self.policy, self.version, self.lock = policy, 0, threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def routes(self) -> dict[str, Callable[[Any], Any]]:
        """The handler of each path."""
        return {"/v1/weights": self.load_weights, "/v1/completions": self.complete}

    def load_weights(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Load weights from a file, and reply with their version."""
        self.policy.model.load_state_dict(torch.load(request["path"], map_location="cpu", weights_only=True))
        self.version = int(request["version"])
        return {"weight_version": self.version}

    def complete(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Sample one response per prompt with the uniform numbers of the request; temperature 0 is greedy."""
        temperature = float(request["temperature"])
        engine = Engine(self.policy, temperature or 1.0, int(request["max_tokens"]), version=self.version)
        prompts, uniform = [tuple(p) for p in request["prompt"]], torch.tensor(request["chance"], device=CPU)
        choices = [
            {
                "index": n,
                "token_ids": s.token,
                "logprobs": {"token_logprobs": s.logprob},
                "finish_reason": "stop" if s.ended else "length",
            }
            for n, s in enumerate(engine.sample(prompts, uniform, greedy=temperature == 0))
        ]
        return {"choices": choices, "weight_version": self.version}


class Handler(BaseHTTPRequestHandler):
    """Dispatches requests; an error gives status 400 and one line."""

    server: Server

    def do_POST(self) -> None:
        """Call the handler of the path, and send its result as JSON."""
        try:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with self.server.lock:
                answer = self.server.routes[self.path](request)
            status, body = 200, "" if answer is None else json.dumps(answer)
        except Exception as error:  # noqa: BLE001 - a bad request must not end the server
            status, body = 400, f"{type(error).__name__}: {error}".partition("\n")[0]
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_intermixed_args()
    server = Server(init_policy(load_recipe(options.recipe, options.overrides)), options.port)
    print(server.url, flush=True)  # noqa: T201 - the caller needs the port
    server.serve_forever()


if __name__ == "__main__":
    main()
