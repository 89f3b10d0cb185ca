"""The responses of a step with their rewards and advantages, for people to read."""

from collections.abc import Sequence
from typing import Any

from rl_sentinel.signal.reduce import row_counts
from rl_sentinel.train.rollout.episodes import Episode
from rl_sentinel.train.update.training_batch import TrainingBatch


def completion_lines(
    episodes: Sequence[Episode], batch: TrainingBatch, *, parts: Sequence[str], step: int
) -> list[dict[str, Any]]:
    """A line of ``completions.jsonl`` per trajectory.

    Args:
        episodes: the trajectories.
        batch: their training batch.
        parts: the names of the parts of a reward.
        step: the step, counted from 1.

    Returns:
        ``step``; ``group``, the index of the prompt; ``prompt``; ``completion``, all text after it, including a tool's
        texts; ``rewards`` by name; ``reward``; ``advantage``, a mean over the trained tokens, None if no token
        trains; ``correct``, ``ended``. If there is no reward, ``rewards`` and ``reward`` are None, and ``failure`` says
        why.
    """
    trajectory = batch.laid.rollout.trajectory
    assert trajectory is not None  # noqa: S101 - laid out with it
    counts, sums = row_counts(mask=batch.mask).tolist(), (batch.advantage * batch.mask).sum(dim=1).tolist()
    total, trained = [0.0] * len(episodes), [0] * len(episodes)
    for place, count, advantage in zip(trajectory.tolist(), counts, sums, strict=True):
        total[place] += advantage
        trained[place] += int(count)
    lines = []
    for episode, advantage, tokens in zip(episodes, total, trained, strict=True):
        outcome = episode.outcome
        assert outcome is not None  # noqa: S101 - the episode has ended
        line = {
            "step": step,
            "group": episode.group,
            "prompt": episode.text,
            "completion": "".join(episode.transcript),
            "rewards": None if outcome.failure else dict(zip(parts, outcome.parts, strict=True)),
            "reward": None if outcome.failure else outcome.reward,
            "advantage": advantage / tokens if tokens else None,
            "correct": outcome.correct,
            "ended": episode.ended,
        }
        lines.append(line | ({"failure": outcome.failure} if outcome.failure else {}))
    return lines
