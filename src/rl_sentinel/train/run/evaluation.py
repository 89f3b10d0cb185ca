"""Held-out evaluation: accuracy of greedy responses, and pass@k of sampled responses."""

import math
from collections.abc import Sequence
from itertools import groupby

from rl_sentinel.train.config.settings import EvaluationSettings
from rl_sentinel.train.rollout.episodes import Episode


def pass_at_k(correct: int, samples: int, k: int) -> float:
    r"""The probability that at least one of ``k`` responses is correct, without bias from ``samples`` >= k of them.

    .. math:: 1 - \binom{n - c}{k} \Big/ \binom{n}{k}

    Source:
        Chen et al. 2021, arXiv:2107.03374, equation 1.

    Example:
        >>> from rl_sentinel.train.run.evaluation import pass_at_k
        >>> pass_at_k(1, 4, 1), pass_at_k(1, 4, 2), pass_at_k(3, 4, 2)
        (0.25, 0.5, 1.0)
    """
    return 1.0 - math.comb(samples - correct, k) / math.comb(samples, k)


def evaluation_metrics(episodes: Sequence[Episode], settings: EvaluationSettings) -> dict[str, float]:
    """The metrics of an evaluation.

    ``accuracy`` and ``reward`` are means over the greedy responses, ``reward`` without failed rewards (0 if all
    failed). ``failed`` is the share of all responses whose reward failed (they count as wrong), ``ended`` the share of
    all responses that ended. ``pass@k`` is a mean over the tasks.
    """
    greedy = [e.outcome for e in episodes if e.greedy and e.outcome is not None]
    rewards = [o.reward for o in greedy if not o.failure]
    metrics = {
        "accuracy": sum(o.correct for o in greedy) / len(greedy),
        "reward": sum(rewards) / max(1, len(rewards)),
        "failed": sum(bool(e.failure) for e in episodes) / len(episodes),
        "ended": sum(e.ended for e in episodes) / len(episodes),
    }
    sampled = sorted((e for e in episodes if not e.greedy), key=lambda e: e.group)
    tasks = [[bool(e.outcome and e.outcome.correct) for e in task] for _, task in groupby(sampled, lambda e: e.group)]
    for k in settings.k if tasks else ():
        metrics[f"pass@{k}"] = sum(pass_at_k(sum(task), len(task), k) for task in tasks) / len(tasks)
    return metrics
