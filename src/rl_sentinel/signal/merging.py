"""Merge the steps of a conversation that share a prefix, so that each token is trained once."""

from collections.abc import Sequence
from dataclasses import replace

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.requirements import require_instance
from rl_sentinel.signal.trajectory_step import Step


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
        >>> from rl_sentinel.signal.merging import merge
        >>> from rl_sentinel.signal.trajectory_step import Step
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
        >>> from rl_sentinel.signal.merging import counts, merge
        >>> from rl_sentinel.signal.trajectory_step import Step
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
