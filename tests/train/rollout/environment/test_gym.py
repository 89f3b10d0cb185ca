"""Tasks of reasoning-gym, where it is installed."""

import importlib.util
import random

import pytest

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.rollout.environment.gym import Environment
from rl_sentinel.train.rollout.interfaces import Outcome

THERE = importlib.util.find_spec("reasoning_gym") is not None
extra = pytest.mark.skipif(not THERE, reason="reasoning-gym is an extra")


@extra
def test_question_is_judged_by_its_data_set() -> None:
    """The right answer, a wrong one, one that was cut; and the same seed asks the same."""
    import reasoning_gym  # noqa: PLC0415 - an extra

    environment = Environment(task_name="chain_sum")
    task, again = (environment.task(random.Random(4)) for _ in range(2))
    assert task == again != environment.task(random.Random(5))
    entry = reasoning_gym.create_dataset("chain_sum", seed=int(task.answer), size=1)[0]
    assert task.prompt == entry["question"] + "\n"
    assert environment.reply(task, [f" {entry['answer']}\n"], ended=True) == Outcome(1.0, correct=True)
    assert environment.reply(task, [entry["answer"]], ended=False) == Outcome(0.0, correct=False)
    wrong = environment.reply(task, [entry["answer"] + "1"], ended=True)
    assert isinstance(wrong, Outcome)
    assert (wrong.reward < 1, wrong.correct) == (True, False)


@extra
def test_unknown_name_is_one_line() -> None:
    """Before anything is sampled."""
    with pytest.raises(SentinelError, match=r"environment.task_name 'chain_summ' is no data set of reasoning-gym \("):
        Environment(task_name="chain_summ")


@pytest.mark.skipif(THERE, reason="reasoning-gym is there")
def test_without_it_the_extra_is_named() -> None:
    """In one line."""
    with pytest.raises(
        SentinelError, match=r"environment gym needs reasoning-gym, which is not installed: pip install"
    ):
        Environment(task_name="chain_sum")
