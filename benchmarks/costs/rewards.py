"""Reward functions that wait, and ones that hang or raise among them: ``python -m benchmarks.costs.rewards``."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

from rl_sentinel.train.rollout.rewards import build_rewards, score_all

#: Responses of a step, seconds that a reward waits, and the time limit of one that hangs, in seconds.
RESPONSES, WAIT, LIMIT = 128, 0.05, 0.5

#: Runs of each; the least time counts, since other processes can only add to it.
ROUNDS = 5

#: Responses that hang or raise, one in this many.
EVERY = 32


def waits(response: str) -> float:
    """A verifier that asks another program."""
    time.sleep(WAIT)
    return float(len(response))


async def waits_async(response: str) -> float:
    """The same in an async function."""
    await asyncio.sleep(WAIT)
    return float(len(response))


def hangs(response: str) -> float:
    """A verifier that never answers for some responses."""
    threading.Event().wait(None if response == "b" else WAIT)
    return float(len(response))


async def hangs_async(response: str) -> float:
    """The same in an async function."""
    await asyncio.sleep(1e9 if response == "b" else WAIT)
    return float(len(response))


def raises(response: str) -> float:
    """A verifier that fails for some responses."""
    if response == "b":
        raise ValueError(response)
    return waits(response)


def rows() -> Iterator[dict[str, Any]]:
    """A row per function: seconds, and how many responses have a reward and a failure."""
    texts = ["b" if n % EVERY == 0 else "a" for n in range(RESPONSES)]
    for function in (waits, waits_async, hangs, hangs_async, raises):
        table = {"function": f"benchmarks.costs.rewards:{function.__name__}", "seconds": LIMIT}
        rewards, seconds = build_rewards("environment.reward", [table], []), []
        for _ in range(ROUNDS):
            start = time.monotonic()
            outcomes = score_all(rewards, [{"response": text} for text in texts], correct_from=1.0)
            seconds.append(time.monotonic() - start)
        failures = [outcome.failure for outcome in outcomes if outcome.failure]
        yield {
            "function": function.__name__,
            "least": min(seconds),
            "most": max(seconds),
            "rewards": RESPONSES - len(failures),
            "failures": len(failures),
            "first": failures[0] if failures else "",
        }


def main() -> None:
    """Print JSON lines."""
    for row in rows():
        print(json.dumps(row), flush=True)  # noqa: T201 - read by the parent


if __name__ == "__main__":
    main()
