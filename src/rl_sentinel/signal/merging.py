"""Merge the steps of a conversation that share a prefix, so that each token is trained once."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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
        if self._is_usual():
            return
        validate_record(self)
        require_instance("trajectory", self.trajectory, str, "the name of a trajectory")
        for name, (fits, expected) in _ENTRIES.items():
            column = getattr(self, name)
            if not isinstance(column, tuple):
                raise InputError(
                    f"{name} of a step of trajectory {self.trajectory} is {shortened(column)}, expected a tuple with "
                    "an entry for each token: tuple(...) of a list, or of the tolist() of a tensor, makes one"
                )
            if name != "prompt" and len(column) != len(self.response):
                raise InputError(
                    f"{name} of a step of trajectory {self.trajectory} has {len(column)} entries, "
                    f"expected {len(self.response)}, one for each token of the response"
                )
            self._require_entries(name, fits, expected)
        self._require_finite_rewards()

    def _is_usual(self) -> bool:
        """Whether all fields have the usual types, and valid values; much faster than the checks with messages."""
        columns = self.prompt, self.response, self.trained, self.token_reward, self.logprob
        return (
            (type(self.trajectory), type(self.last), *map(type, columns)) == _USUAL
            and len(self.response) == len(self.trained) == len(self.token_reward) == len(self.logprob)
            and set(map(type, self.trained)) <= {bool}
            and set(map(type, self.token_reward + self.logprob)) <= {float}
            and _fit_64_bits(self.prompt + self.response)
            and math.isfinite(sum(self.token_reward))
        )

    def _require_entries(self, name: str, fits: Callable[[Any], bool], expected: str) -> None:
        column = getattr(self, name)
        wrong = next((place for place, entry in enumerate(column) if not fits(entry)), None)
        if wrong is not None:
            place = f"{name}[{wrong}] of a step of trajectory {self.trajectory}"
            fix = ": convert the column with tolist()" if hasattr(column[wrong], "tolist") else ""
            raise InputError(f"{place} is {shortened(column[wrong])}, expected {expected}{fix}")

    def _require_finite_rewards(self) -> None:
        for token, (reward, is_trained) in enumerate(zip(self.token_reward, self.trained, strict=True)):
            if is_trained and not math.isfinite(reward):
                raise InputError(
                    f"token_reward[{token}] of a step of trajectory {self.trajectory} is {reward}, "
                    "expected a finite number: the token is trained"
                )


def merge(steps: Sequence[Step]) -> list[Step]:
    """Join each step to the previous one if its prompt starts with the previous prompt and response.

    A conversation of n turns, each sent with its whole history, is n sequences of growing length. Joined,
    it is one sequence, in which the text between turns (tool output, the user) is untrained tokens of the
    response. Where history was changed or cut, a new sequence begins.

    Args:
        steps: steps of trajectories, those of one trajectory together and in order.

    Returns:
        Merged steps in the same order. Trained tokens, their log-probs and the sum of rewards are
        those of the steps; text between turns has reward 0, log-prob 0, and is not trained.

    Raises:
        InputError: if a trajectory's final step is not marked as last, a step before it is, or a
            trajectory's steps are not together.

    Source:
        Multi-turn rollouts as one sequence when each prompt extends the sequence before it. Rewards of
        joined steps stay at their own tokens, so that none is dropped.

    Example:
        >>> from rl_sentinel.signal.merging import Step, merge
        >>> first = Step("a", (1,), (2, 3), (True, True), (0.0, 0.5), (-1.0, -1.0), last=False)
        >>> second = Step("a", (1, 2, 3, 9), (4,), (True,), (1.0,), (-2.0,), last=True)
        >>> (merged,) = merge([first, second])
        >>> merged.response, merged.trained, merged.token_reward
        ((2, 3, 9, 4), (True, True, False, True), (0.0, 0.5, 0.0, 1.0))
    """
    _require_steps("steps", steps)
    _require_order(steps)
    merged: list[Step] = []
    for step in steps:
        before = merged[-1] if merged else None
        if before is not None and not before.last and _extends(step, before):
            merged[-1] = _joined(before, step)
        else:
            merged.append(step)
    return merged


def counts(before: Sequence[Step], after: Sequence[Step]) -> dict[str, int]:
    """Count sequences before and after merging, for the log.

    Example:
        >>> from rl_sentinel.signal.merging import Step, counts, merge
        >>> step = Step("a", (1,), (2,), (True,), (0.0,), (0.0,), last=True)
        >>> counts([step], merge([step]))
        {'num_seq_before_merge': 1, 'num_seq_after_merge': 1}
    """
    _require_steps("before", before)
    _require_steps("after", after)
    return {"num_seq_before_merge": len(before), "num_seq_after_merge": len(after)}


def _extends(step: Step, before: Step) -> bool:
    sequence = before.prompt + before.response
    return step.prompt[: len(sequence)] == sequence


def _joined(before: Step, step: Step) -> Step:
    between = step.prompt[len(before.prompt) + len(before.response) :]
    return replace(
        before,
        response=before.response + between + step.response,
        trained=before.trained + (False,) * len(between) + step.trained,
        token_reward=before.token_reward + (0.0,) * len(between) + step.token_reward,
        logprob=before.logprob + (0.0,) * len(between) + step.logprob,
        last=step.last,
    )


#: What is expected of the steps of each trajectory.
_ORDER = "its steps next to each other, last=True only at the final one"


def _require_order(steps: Sequence[Step]) -> None:
    closed: set[str] = set()
    for step, after in zip(steps, [*steps[1:], None], strict=False):
        ends = after is None or after.trajectory != step.trajectory
        if step.trajectory in closed:
            raise InputError(_fault(step, "continues after it ended", _ORDER))
        if ends and not step.last:
            raise InputError(_fault(step, "stops at a step that is not last", _ORDER))
        if step.last:
            closed.add(step.trajectory)


def _fault(step: Step, fault: str, expected: str) -> str:
    return f"trajectory {step.trajectory} {fault}, expected {expected}"


def _require_steps(name: str, steps: Sequence[Step]) -> None:
    if not isinstance(steps, Sequence):
        raise InputError(f"{name} is of type {type(steps).__name__}, expected a sequence of Step, such as a list")
    wrong = next((place for place, step in enumerate(steps) if not isinstance(step, Step)), None)
    if wrong is not None:
        require_instance(f"{name}[{wrong}]", steps[wrong], Step, "a call of the policy")
