"""A taskset of verifiers, where it is installed."""

import importlib.util
import random
import sys
from pathlib import Path

import pytest

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.rollout.environment.verifiers import Environment
from rl_sentinel.train.rollout.interfaces import Outcome

THERE = importlib.util.find_spec("verifiers") is not None and importlib.util.find_spec("verifiers.v1") is not None
extra = pytest.mark.skipif(not THERE, reason="verifiers is not installed")

#: A taskset as its users write them: two rewards, one of them weighted; and one without a reward.
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
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The module of the taskset."""
    (tmp_path / "sums_of_a_test.py").write_text(TASKSET, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "sums_of_a_test", raising=False)
    return "sums_of_a_test"


@extra
@pytest.mark.filterwarnings("ignore")  # of verifiers' own imports
def test_question_is_judged_by_its_task(named: str) -> None:
    """Weighted rewards are summed; what was cut is worth nothing; the same chance asks the same."""
    environment = Environment(taskset=f"{named}:Sums", most=20, template="{prompt} ", full=1.5)
    task, again = (environment.task(random.Random(4)) for _ in range(2))
    assert task == again
    assert {environment.task(random.Random(n)).answer for n in range(99)} <= {str(n) for n in range(20)}
    one, two = (int(n) for n in task.prompt.removesuffix(" = ").split(" + "))
    said = {(str(one + two), True): 1.5, ("no", True): 0.5, ("no, never", True): 0.0, (str(one + two), False): 0.0}
    for (text, ended), reward in said.items():
        assert environment.reply(task, [text], ended=ended) == Outcome(reward, correct=reward == 1.5)


@extra
@pytest.mark.filterwarnings("ignore")  # as above
def test_what_cannot_be_asked_or_judged_is_one_line(named: str) -> None:
    """A taskset that is none, one without a reward, and a reward that fails."""
    with pytest.raises(SentinelError, match=r"environment.taskset 'sums_of_a_test:Row' cannot be loaded"):
        Environment(taskset=f"{named}:Row")
    silent = Environment(taskset=f"{named}:Nothing")
    with pytest.raises(SentinelError, match=r"environment.taskset gave no reward without a sandbox"):
        silent.reply(silent.task(random.Random(0)), ["a"], ended=True)
    environment = Environment(taskset=f"{named}:Sums")
    with pytest.raises(SentinelError, match=r"environment.taskset failed to judge an answer .*as a sandbox might"):
        environment.reply(environment.task(random.Random(0)), ["raise"], ended=True)


@pytest.mark.skipif(THERE, reason="verifiers is there")
def test_without_it_the_way_is_named() -> None:
    """In one line."""
    with pytest.raises(SentinelError, match=r"environment verifiers needs verifiers of 0.4 or newer .*pip install"):
        Environment(taskset="a:B")
