"""The sampler: episodes of a step, and of an evaluation."""

from typing import Any

from rl_sentinel.train.config.selection import select_components
from rl_sentinel.train.config.settings import EvaluationSettings
from rl_sentinel.train.model.policy import init_policy
from rl_sentinel.train.rollout.engine.process import build_engine
from rl_sentinel.train.rollout.sampler import Sampler
from rl_sentinel.train.run.distributed import ALONE, Ranks
from rl_sentinel.train.run.stopwatch import Stopwatch
from training import recipe


def _sampler(ranks: Ranks = ALONE, *, greedy_too: bool = False, **more: Any) -> Sampler:
    wanted = recipe(evaluation={"every": 1, "tasks": 5, "responses": 2, "k": (1,)}, **more)
    selection, policy = select_components(wanted), init_policy(wanted)
    engine, held_out = build_engine(wanted.rollout, policy, shared=True), selection.held_out
    return Sampler(wanted, selection.environment, held_out, policy.tokenizer, engine, ranks, Stopwatch(), greedy_too)


def test_step_has_its_episodes_and_times() -> None:
    sampler = _sampler(greedy_too=True)
    episodes = sampler.sample_step(3, {}, 3)
    assert [(e.group, e.greedy) for e in episodes] == [(n, False) for n in (0,) * 4 + (1,) * 4] + [(0, True), (1, True)]
    assert {e.versions[0] for e in episodes} == {3}
    times = sampler.stopwatch.take(3)
    assert min(times["sampling"], times["rewards"], times["publish"]) > 0


def test_evaluations_of_all_steps_and_seeds_have_the_same_tasks() -> None:
    settings = EvaluationSettings(every=1, tasks=5, responses=2, k=(1,))
    one, two = (_sampler(seed=seed).sample_evaluation(settings, {}, 9) for seed in (0, 1))
    assert [(e.group, e.greedy) for e in one] == [(n, True) for n in range(5)] + [(n // 2, False) for n in range(10)]
    assert [e.task for e in one] == [e.task for e in two]


def test_ranks_share_the_episodes() -> None:
    settings = EvaluationSettings(every=1, tasks=5, responses=2, k=(1,))
    whole = _sampler().sample_evaluation(settings, {}, 0)
    parts = [e for n in range(2) for e in _sampler(Ranks(n, 2)).sample_evaluation(settings, {}, 0)]
    key = [(e.greedy, e.group, e.row, e.task.prompt) for e in whole]
    assert sorted((e.greedy, e.group, e.row, e.task.prompt) for e in parts) == sorted(key)
