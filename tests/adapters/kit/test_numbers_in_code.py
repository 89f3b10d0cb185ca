"""Numbers of ``self``, configurations, globals and closures: read by name; those of micro-batches set to 1."""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from rl_sentinel.adapters.kit.numbers_in_code import named_numbers, set_numbers
from rl_sentinel.adapters.kit.parameter_names import ROLES
from rl_sentinel.adapters.live_target import live_target

GRAD_ACCUM_STEPS = 8
ONE = dict.fromkeys(ROLES["accumulation"].names, 1)
ARGS = SimpleNamespace(accum_steps=4, clip_eps=0.3)


@dataclass(frozen=True)
class Frozen:
    """A configuration that refuses assignments."""

    gradient_accumulation_steps: int = 4


class Trainer:
    """A trainer with its numbers in the class, in a configuration and in a dict."""

    current_gradient_accumulation_steps = 4
    eps_low = 0.1

    def __init__(self) -> None:
        """Configurations in several forms."""
        self.args, self.config = Frozen(), {"optim": SimpleNamespace(accum_steps=2)}

    def loss(self, loss: float) -> Any:
        return loss * (1 - self.eps_low) / self.current_gradient_accumulation_steps

    async def later(self, loss: float) -> Any:
        return loss * (1 - self.eps_low)

    def of_args(self, loss: float) -> Any:
        return loss / self.args.gradient_accumulation_steps

    def of_dict(self, loss: float) -> Any:
        return loss / self.config["optim"].accum_steps


def of_global(loss: float) -> float:
    return loss / GRAD_ACCUM_STEPS


def of_arguments(loss: float) -> Any:
    return loss * ARGS.clip_eps / ARGS.accum_steps


def of_closure() -> Any:
    accumulation_steps = 4
    return lambda loss: loss / accumulation_steps


@pytest.mark.parametrize("method", ["loss", "later"])
def test_a_method_and_an_async_method_read_the_same_numbers(method: str) -> None:
    function = live_target(getattr(Trainer(), method)).function
    assert named_numbers(function)["eps_low"] == 0.1


@pytest.mark.parametrize(
    ("function", "scaled", "name"),
    [
        (Trainer().loss, 0.9, "current_gradient_accumulation_steps"),
        (Trainer().of_args, 1.0, "gradient_accumulation_steps"),
        (Trainer().of_dict, 1.0, "accum_steps"),
        (of_closure(), 1.0, "accumulation_steps"),
    ],
)
def test_a_count_of_micro_batches_becomes_one(function: Any, scaled: float, name: str) -> None:
    assert function(1.0) < scaled
    assert set_numbers(function, {}, ONE) == [name]
    assert function(1.0) == scaled
    assert set_numbers(function, {}, ONE) == []


@dataclass
class _Bounds:
    """Clip ranges that a subclass inherits."""

    clip_low: float = 0.2
    clip_high: float = 0.3


class _Inherited(_Bounds):
    """A configuration without fields of its own."""


@dataclass(slots=True)
class _Slots:
    """Clip ranges without a ``__dict__``."""

    clip_low: float = 0.2
    clip_high: float = 0.3


@pytest.mark.parametrize("kind", [_Bounds, _Inherited, _Slots])
def test_a_forgotten_range_of_any_kind_of_object(kind: Callable[[], object]) -> None:
    def clipped(ratio: float, args: Any) -> float:
        return ratio - float(args.clip_low)

    assert named_numbers(clipped, {"args": kind()}) == {"clip_low": 0.2, "clip_high": 0.3}


def test_of_a_global_and_a_passed_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.GRAD_ACCUM_STEPS", 16)
    assert (of_global(16.0), set_numbers(of_global, {}, ONE), of_global(16.0)) == (1.0, ["GRAD_ACCUM_STEPS"], 16.0)
    args = SimpleNamespace(accum_steps=4, lr=4)
    assert set_numbers(lambda loss, args: loss / args.accum_steps * args.lr, {"args": args}, ONE) == ["accum_steps"]
    assert (args.accum_steps, args.lr) == (1, 4)


def test_of_a_configuration_in_a_global(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.ARGS", SimpleNamespace(accum_steps=4, clip_eps=0.3))
    assert named_numbers(of_arguments)["clip_eps"] == 0.3
    assert (set_numbers(of_arguments, {}, ONE), ARGS.accum_steps) == (["accum_steps"], 1)
