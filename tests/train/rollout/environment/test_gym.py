"""The reasoning-gym environment, if it is installed."""

import importlib.util
import random

import pytest

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.rollout.environment.gym import Environment
from rl_sentinel.train.rollout.interfaces import Outcome

INSTALLED = importlib.util.find_spec("reasoning_gym") is not None
extra = pytest.mark.skipif(not INSTALLED, reason="reasoning-gym is an extra")


@extra
def test_question_is_scored_by_its_data_set() -> None:
    import reasoning_gym  # noqa: PLC0415 - an extra

    environment = Environment(task_name="chain_sum")
    task, same = (environment.task(random.Random(4)) for _ in range(2))
    assert task == same != environment.task(random.Random(5))
    entry = reasoning_gym.create_dataset("chain_sum", seed=int(task.answer), size=1)[0]
    assert task.prompt == entry["question"] + "\n"
    assert environment.reply(task, [f" {entry['answer']}\n"], ended=True) == Outcome(1.0, correct=True)
    assert environment.reply(task, [entry["answer"]], ended=False) == Outcome(0.0, correct=False)
    wrong = environment.reply(task, [entry["answer"] + "1"], ended=True)
    assert isinstance(wrong, Outcome)
    assert (wrong.reward < 1, wrong.correct) == (True, False)


@extra
def test_unknown_data_set_is_one_line() -> None:
    with pytest.raises(SentinelError, match=r"environment.task_name 'chain_summ' cannot be made by reasoning-gym \("):
        Environment(task_name="chain_summ")


@pytest.mark.skipif(INSTALLED, reason="reasoning-gym is installed")
def test_missing_extra_is_named() -> None:
    with pytest.raises(
        SentinelError, match=r"environment gym needs reasoning-gym, which cannot be imported .*: pip install"
    ):
        Environment(task_name="chain_sum")
