"""Concurrent calls: in order, each with its own time limit and its own failure."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import reward_functions
from rl_sentinel.train.rollout.concurrent_calls import Call, TimeLimitError, call_all


@pytest.fixture(autouse=True)
def _released() -> Iterator[None]:
    reward_functions.RELEASED.clear()
    yield
    reward_functions.RELEASED.set()


def _calls(name: str, answers: str, seconds: float = 5.0) -> list[Call]:
    return [Call(getattr(reward_functions, name), {"answer": answer}, seconds) for answer in answers]


def test_results_are_in_order_and_exceptions_are_results() -> None:
    results = call_all([Call(lambda n: 1 / n, {"n": n}, 5.0) for n in (1, 0, 4)])
    assert results[0] == 1.0
    assert isinstance(results[1], ZeroDivisionError)
    assert results[2] == 0.25
    assert call_all([]) == []


def test_plain_calls_run_at_the_same_time() -> None:
    together = threading.Barrier(64)
    assert sorted(call_all([Call(together.wait, {}, 30.0)] * 64)) == list(range(64))


def test_async_calls_run_at_the_same_time() -> None:
    together = asyncio.Barrier(64)

    async def wait() -> int:
        return await together.wait()

    assert sorted(call_all([Call(wait, {}, 30.0)] * 64)) == list(range(64))


@pytest.mark.parametrize("name", ["hangs_on_b", "hangs_later_on_b"])
def test_call_that_hangs_costs_its_own_result(name: str) -> None:
    start = time.monotonic()
    results = call_all(_calls(name, "abab", seconds=0.2), concurrency=3)
    assert [isinstance(result, TimeoutError) for result in results] == [False, True, False, True]
    assert [results[0], results[2]] == [1.0, 1.0]
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("name", ["hangs_on_b", "hangs_later_on_b"])
def test_calls_behind_ones_that_hang_are_made(name: str) -> None:
    """More calls hang than run at one time."""
    results = call_all(_calls(name, "bbbaa", seconds=0.1), concurrency=1)
    assert [isinstance(result, TimeoutError) for result in results] == [True] * 3 + [False] * 2


def test_blocked_event_loop_is_replaced() -> None:
    """The call that blocks starts first; those behind it are made in another loop."""
    results = call_all(_calls("blocks_on_b", "baa", seconds=1.0))
    assert isinstance(results[0], TimeoutError)
    assert results[1:] == [1.0, 1.0]
    assert call_all(_calls("blocks_on_b", "a")) == [1.0]


def test_only_the_call_that_blocks_fails_and_others_of_its_function_run_in_threads() -> None:
    """Calls that started beside it are late too, but only since it blocked them; several that block wait together."""
    start = time.monotonic()
    results = call_all(_calls("also_blocks_on_b", "aba" + "b" * 10, seconds=0.5))
    assert [isinstance(result, TimeoutError) for result in results] == [False, True, False] + [True] * 10
    assert time.monotonic() - start < 4


def test_an_event_loop_that_is_blocked_before_a_call_is_replaced() -> None:
    """The late cleanup of an earlier call blocks it; a call that ends the loop's thread costs its own result only."""
    (late,) = call_all(_calls("blocks_at_its_end", "b", seconds=0.1))
    assert isinstance(late, TimeoutError)
    assert call_all(_calls("hangs_later_on_b", "aa", seconds=5.0)) == [1.0, 1.0]
    left, *others = call_all([Call(reward_functions.leaves, {}, 5.0), *_calls("waits_a_moment", "aaa")])
    assert isinstance(left, SystemExit)
    assert others == [1.0] * 3


def test_calls_that_block_for_less_than_their_limit_keep_their_results() -> None:
    results = call_all(
        [*_calls("blocks_briefly", "a" * 8, seconds=1.0), *_calls("waits_a_moment", "a" * 8, seconds=1.0)]
    )
    assert results == [1.0] * 16


def test_results_that_wait_while_this_process_does_not_run_are_taken() -> None:
    """A call that keeps the global lock for longer than the limit costs the finished calls nothing."""
    held = Call(lambda: sum(range(40_000_000)), {}, 60.0)
    results = call_all([held, *[Call(int, {}, 0.05)] * 20])
    assert results[1:] == [0] * 20


def test_calls_that_move_to_threads_get_one_after_all_threads_have_ended() -> None:
    plain = [Call(abs, {}, 5.0)] * 3  # raises: a parameter is missing
    results = call_all([*plain, *_calls("blocks_too_on_b", "bbb", seconds=0.3)], concurrency=1)
    assert [type(result) for result in results] == [TypeError] * 3 + [TimeLimitError] * 3


def test_call_that_keeps_the_global_lock_ends_the_process_with_its_traceback() -> None:
    program = """if True:
        import re
        from rl_sentinel.train.rollout import concurrent_calls
        concurrent_calls._GRACE = 0.5
        def backtracks():
            re.match("(a+)+b", "a" * 60)
        concurrent_calls.call_all([concurrent_calls.Call(backtracks, {}, 0.2)])
    """
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "in backtracks" in ended.stderr


def test_end_of_the_process_in_a_call_is_a_result() -> None:
    def leave() -> Any:
        raise SystemExit(3)

    assert isinstance(call_all([Call(leave, {}, 5.0)])[0], SystemExit)
