"""Build the trainer's episodes from the rows of a batch."""

from collections.abc import Iterator
from typing import Any

from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch

TRAIN = "rl_sentinel.train"


def episodes_of(
    target: Target, batch: Batch, columns: frozenset[str], *, sampled: str = "", parts: int = 0
) -> tuple[list[Any], list[int]]:
    """One episode per trajectory of the batch, with one step per row, or per turn of a row if ``columns`` has turns.

    Each row is a trajectory if ``columns`` has no trajectories.

    Args:
        target: the tree that contains the trainer.
        batch: the batch.
        columns: the columns to use besides reward, group and mask; the others have default values.
        sampled: the column with the sampler's log-probs; if empty, they are -1.
        parts: number of reward parts; the parts of the batch are repeated if it has fewer.

    Returns:
        The episodes, and the rows of the batch in the order of their steps.
    """
    trajectory = batch.trajectory.tolist() if "trajectory" in columns else list(range(batch.rows))
    last = batch.last_step.tolist() if "last_step" in columns else [True] * batch.rows
    order = sorted(range(batch.rows), key=lambda row: (trajectory[row], last[row], int(batch.step[row])))
    episodes: dict[int, Any] = {}
    for row in order:
        if trajectory[row] not in episodes:
            episodes[trajectory[row]] = target.call(
                f"{TRAIN}.rollout.episodes.Episode", trajectory[row], int(batch.group[row]), None, (1,)
            )
        episode = episodes[trajectory[row]]
        rewards = batch.reward_parts[row].tolist() if "reward_parts" in columns else []
        episode.outcome = target.call(
            f"{TRAIN}.rollout.interfaces.Outcome",
            float(batch.reward[row]),
            correct=False,
            parts=tuple(rewards[n % len(rewards)] for n in range(parts)) if rewards else (),
        )
        episode.baseline = float(batch.reward_baseline[row]) if "reward_baseline" in columns else None
        episode.ended = bool(batch.scored[row]) if "scored" in columns else True
        logprob = getattr(batch, sampled)[row].tolist() if sampled else [-1.0] * batch.width
        turns = list(_turns(batch, row)) if "turn" in columns else [(0, int(batch.length[row]))]
        for start, end in turns:
            step = target.call(
                "rl_sentinel.signal.trajectory_step.Step",
                trajectory=episode.name,
                prompt=(1, *range(2, 2 + start)),
                response=tuple(range(2 + start, 2 + end)),
                trained=tuple(batch.mask[row, start:end].tolist()),
                token_reward=(0.0,) * (end - start),
                logprob=tuple(logprob[start:end]),
                last=last[row] and end == turns[-1][1],
            )
            episode.steps.append(step)
    return list(episodes.values()), order


def _turns(batch: Batch, row: int) -> Iterator[tuple[int, int]]:
    """Start and end (exclusive) of each turn of a row."""
    turn, start = batch.turn[row, : int(batch.length[row])].tolist(), 0
    for place in range(1, len(turn) + 1):
        if place == len(turn) or turn[place] != turn[start]:
            yield start, place
            start = place
