"""Reward functions that tests name in recipes."""

import asyncio
import threading

import numpy as np
import torch

#: Set to release the functions that hang, so that no thread outlives its test for long.
RELEASED = threading.Event()


def letters(response: str, answer: str) -> float:
    """The share of three characters that are the answer."""
    return response.count(answer) / 3


async def short(response: str, *, least: int = 0) -> bool:
    """Whether a response has at most two characters."""
    await asyncio.sleep(0)
    return least <= len(response) <= 2


def column(response: str, bonus: float) -> float:
    """A column of the data."""
    return bonus + 0 * len(response)


def everything(**values: object) -> int:
    """The number of arguments."""
    return len(values)


def fails_on_b(answer: str) -> float:
    """Raise for one of two answers."""
    if answer == "b":
        raise ValueError("no b\nat all")
    return 1.0


def raises(response: str) -> float:
    """Raise always."""
    raise KeyError(response)


async def raises_later(response: str) -> float:
    """The same in an async function."""
    await asyncio.sleep(0)
    raise KeyError(response)


def hangs_on_b(answer: str) -> float:
    """Wait for the end of the test for one of two answers."""
    if answer == "b":
        RELEASED.wait(30)
    return 1.0


async def hangs_later_on_b(answer: str) -> float:
    """The same in an async function."""
    if answer == "b":
        await asyncio.sleep(30)
    return 1.0


async def blocks_on_b(answer: str) -> float:
    """Block the event loop, which an async function should not do."""
    if answer == "b":
        RELEASED.wait(30)
    await asyncio.sleep(0.3)
    return 1.0


async def also_blocks_on_b(answer: str) -> float:
    """Another function that does; one that has blocked is run in threads from then on."""
    if answer == "b":
        RELEASED.wait(30)
    await asyncio.sleep(0)
    return 1.0


async def blocks_too_on_b(answer: str) -> float:
    """A third one, for another test."""
    return await also_blocks_on_b(answer)


async def blocks_at_its_end(answer: str) -> float:
    """Block the event loop when the call is given up."""
    try:
        await asyncio.sleep(30)
    finally:
        RELEASED.wait(30)
    return float(bool(answer))


async def leaves() -> float:
    """End the thread of the event loop, if nothing catches it."""
    raise SystemExit(3)


async def waits_a_moment(answer: str) -> float:
    """Let others run."""
    await asyncio.sleep(0.1)
    return float(bool(answer))


async def blocks_briefly(answer: str) -> float:
    """Block the event loop for a third of a second."""
    RELEASED.wait(0.34)
    return float(bool(answer))


def returns_text(response: str) -> str:
    """Return what is not a number."""
    return response


def returns_nan(response: str) -> float:
    """Return what is not finite."""
    return float("nan")


def returns_too_much(response: str) -> float:
    """Return what float32 cannot hold."""
    return 1e200 + 0 * len(response)


def by_place(response: str, /) -> float:
    """Take an argument that cannot be given by name."""
    return float(len(response))


def any_number(*values: object) -> float:
    """Take arguments that have no names."""
    return float(len(values))


def unknown_argument(mood: str) -> float:
    """Take an argument that does not exist."""
    return float(len(mood))


NOT_A_FUNCTION = 3


def returns_a_huge_integer(response: str) -> int:
    """Return an integer that no float can hold."""
    huge: int = 10 ** (400 * len(response))
    return huge


def returns_two_numbers(response: str) -> torch.Tensor:
    """Return a tensor with two entries."""
    return torch.ones(2) * len(response)


def returns_an_array(response: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return an array with one entry."""
    return np.array([0.5]) * len(response)


def returns_a_tensor(response: str) -> torch.Tensor:
    """Return a tensor without axes."""
    return torch.tensor(0.5) * len(response)


def returns_much_for_b(answer: str) -> float:
    """Return a number that is finite without a weight for one of two answers."""
    return 3e38 if answer == "b" else 0.0
