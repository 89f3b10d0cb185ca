"""The verifiers environment, if it is installed."""

import importlib.util
import random
import sys
from pathlib import Path

import pytest

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.rollout.environment.verifiers import Environment
from rl_sentinel.train.rollout.interfaces import Outcome

INSTALLED = importlib.util.find_spec("verifiers") is not None and importlib.util.find_spec("verifiers.v1") is not None
extra = pytest.mark.skipif(not INSTALLED, reason="verifiers is not installed")

#: A taskset with two rewards, one of them weighted; and one without a reward.
TASKSET = """
import verifiers.v1 as vf


class Row(vf.TaskData):
    answer: str = ""


class Sum(vf.Task[Row]):
    @vf.reward
    async def exact(self, trace: vf.Trace) -> float:
        return float(trace.last_reply == self.data.answer)

    @vf.reward(weight=0.5)
    async def short(self, trace: vf.Trace) -> float:
        if trace.last_reply == "raise":
            raise ValueError("as a sandbox might")
        return float(len(trace.last_reply) < 4)


class Silent(vf.Task[Row]):
    pass


class Sums(vf.Taskset[Sum, vf.TasksetConfig]):
    def load(self):
        for one in range(9):
            for two in range(9):
                yield Sum(Row(prompt=f"{one} + {two} =", answer=str(one + two)), self.config.task)


class Nothing(vf.Taskset[Silent, vf.TasksetConfig]):
    def load(self):
        yield Silent(Row(prompt="?"), self.config.task)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "sums_of_a_test.py").write_text(TASKSET, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "sums_of_a_test", raising=False)
    return "sums_of_a_test"


@extra
@pytest.mark.filterwarnings("ignore")  # of verifiers' own imports
def test_response_is_scored_by_its_task(module: str) -> None:
    """Weighted rewards are summed; a response without an end gets 0; equal seeds give equal tasks."""
    environment = Environment(taskset=f"{module}:Sums", most=20, template="{prompt} ", full=1.5)
    task, same = (environment.task(random.Random(4)) for _ in range(2))
    assert task == same
    assert {environment.task(random.Random(n)).answer for n in range(99)} <= {str(n) for n in range(20)}
    one, two = (int(n) for n in task.prompt.removesuffix(" = ").split(" + "))
    rewards = {(str(one + two), True): 1.5, ("no", True): 0.5, ("no, never", True): 0.0, (str(one + two), False): 0.0}
    for (text, ended), reward in rewards.items():
        assert environment.reply(task, [text], ended=ended) == Outcome(reward, correct=reward == 1.5)


@extra
@pytest.mark.filterwarnings("ignore")  # as above
def test_invalid_taskset_or_reward_is_one_line(module: str) -> None:
    with pytest.raises(SentinelError, match=r"environment.taskset 'sums_of_a_test:Row' cannot be loaded"):
        Environment(taskset=f"{module}:Row")
    silent = Environment(taskset=f"{module}:Nothing")
    with pytest.raises(SentinelError, match=r"environment.taskset gave no reward for a response"):
        silent.reply(silent.task(random.Random(0)), ["a"], ended=True)
    environment = Environment(taskset=f"{module}:Sums")
    with pytest.raises(SentinelError, match=r"environment.taskset failed to score a response .*as a sandbox might"):
        environment.reply(environment.task(random.Random(0)), ["raise"], ended=True)


@pytest.mark.skipif(INSTALLED, reason="verifiers is installed")
def test_missing_package_is_named() -> None:
    with pytest.raises(SentinelError, match=r"environment verifiers needs verifiers of 0.4 or newer .*pip install"):
        Environment(taskset="a:B")
