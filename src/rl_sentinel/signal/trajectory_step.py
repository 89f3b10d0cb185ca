"""One step of a trajectory, and the checks of its fields."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from rl_sentinel.core.argument_checks import is_number
from rl_sentinel.core.errors import InputError
from rl_sentinel.core.phrasing import shortened
from rl_sentinel.signal.requirements import require_instance
from rl_sentinel.signal.validation import validate_record


def _is_token(entry: object) -> bool:
    return isinstance(entry, Integral) and not isinstance(entry, bool) and -(2**63) <= int(entry) < 2**63


_TOKEN, _NUMBER = (_is_token, "a token: an integer of at most 64 bits"), (is_number, "a number")

#: Column -> the check of an entry, and what it must be.
_ENTRIES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "prompt": _TOKEN,
    "response": _TOKEN,
    "trained": (lambda entry: isinstance(entry, bool), "True or False"),
    "token_reward": _NUMBER,
    "logprob": _NUMBER,
}


#: The usual types of the fields of a step, with its two plain fields first.
_USUAL = (str, bool, *(tuple,) * len(_ENTRIES))


def _fit_64_bits(tokens: tuple[Any, ...]) -> bool:
    """Whether all are integers of 64 bits, and not bools."""
    return set(map(type, tokens)) <= {int} and (not tokens or (min(tokens) >= -(2**63) and max(tokens) < 2**63))


@dataclass(frozen=True, slots=True)
class Step:
    """One call of the policy in a trajectory: prompt, response, and which response tokens are trained.

    ``response``, ``trained``, ``token_reward`` (reward units) and ``logprob`` (nats, of the policy that
    sampled) have one entry per token of the response. ``last`` marks the end of the trajectory.

    Raises:
        InputError: if a field has a wrong type, length or value, or the reward of a trained token is not finite.

    Example:
        >>> from rl_sentinel.signal.trajectory_step import Step
        >>> step = Step("a", (1, 2), (3, 4), (True, False), (0.5, 0.0), (-1.0, -2.0), last=True)
        >>> step.prompt + step.response
        (1, 2, 3, 4)
    """

    trajectory: str
    prompt: tuple[int, ...]
    response: tuple[int, ...]
    trained: tuple[bool, ...]
    token_reward: tuple[float, ...]
    logprob: tuple[float, ...]
    last: bool

    def __post_init__(self) -> None:
        """Validate types and lengths of all fields, and that rewards of trained tokens are finite."""
        if not _is_usual(self):
            _require_step(self)


def _is_usual(step: Step) -> bool:
    """Whether all fields have the usual types, and valid values; much faster than the checks with messages."""
    columns = step.prompt, step.response, step.trained, step.token_reward, step.logprob
    return (
        (type(step.trajectory), type(step.last), *map(type, columns)) == _USUAL
        and len(step.response) == len(step.trained) == len(step.token_reward) == len(step.logprob)
        and set(map(type, step.trained)) <= {bool}
        and set(map(type, step.token_reward + step.logprob)) <= {float}
        and _fit_64_bits(step.prompt + step.response)
        and math.isfinite(sum(step.token_reward))
    )


def _require_step(step: Step) -> None:
    """Raise ``InputError`` at the first field of a step with a wrong type, length or value."""
    validate_record(step)
    require_instance("trajectory", step.trajectory, str, "the name of a trajectory")
    for name in _ENTRIES:
        column = getattr(step, name)
        if not isinstance(column, tuple):
            raise InputError(
                f"{name} of a step of trajectory {step.trajectory} is {shortened(column)}, expected a tuple with "
                "an entry for each token: tuple(...) of a list, or of the tolist() of a tensor, makes one"
            )
        if name != "prompt" and len(column) != len(step.response):
            raise InputError(
                f"{name} of a step of trajectory {step.trajectory} has {len(column)} entries, "
                f"expected {len(step.response)}, one for each token of the response"
            )
        _require_entries(step.trajectory, name, column)
    _require_finite_rewards(step)


def _require_entries(trajectory: str, name: str, column: tuple[Any, ...]) -> None:
    fits, expected = _ENTRIES[name]
    wrong = next((place for place, entry in enumerate(column) if not fits(entry)), None)
    if wrong is not None:
        place = f"{name}[{wrong}] of a step of trajectory {trajectory}"
        fix = ": convert the column with tolist()" if hasattr(column[wrong], "tolist") else ""
        raise InputError(f"{place} is {shortened(column[wrong])}, expected {expected}{fix}")


def _require_finite_rewards(step: Step) -> None:
    for token, (reward, is_trained) in enumerate(zip(step.token_reward, step.trained, strict=True)):
        if is_trained and not math.isfinite(reward):
            raise InputError(
                f"token_reward[{token}] of a step of trajectory {step.trajectory} is {reward}, "
                "expected a finite number: the token is trained"
            )
