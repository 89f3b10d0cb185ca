"""Boundaries of verl's scorers by rule: the reward of right and wrong answers, in any thread."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from functools import partial
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.binding import present, try_bind
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.rewards import EARLIER_LOOP, LOOP
from rl_sentinel.adapters.verl.scorer_fakes import Pool, math_verify
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

_FOLDER = "verl.utils.reward_score"

#: Module of a scorer -> the end of a response that it scores; ``{}`` stands for the answer.
SCORERS: Mapping[str, str] = {
    "gsm8k": "so #### {}",
    "math": r"so \boxed{{{}}}",  # its name until August 2025
    "math_reward": r"so \boxed{{{}}}",
    "math_dapo": "so\nAnswer: {}",
    "math_verify": r"so \boxed{{{}}}",
    "search_r1_like_qa_em": "so <answer>{}</answer>",
}

#: Scorers whose ground truth is a dict.
_TARGETS = ("search_r1_like_qa_em",)

_RULE = (
    "reward_score/*.py, docstrings of compute_score: the score of the correct answer, and another one for a wrong "
    "answer"
)
_CALLED = (
    "reward_loop/reward_manager/naive.py, run_single: compute_score in an executor; workers/reward_manager/naive.py: "
    "in the thread of a Ray worker; solution text and ground truth of the data set"
)

_MAIN: Mapping[str, Settings] = {"main thread": {"threads": 0}}
_OTHER: Mapping[str, Settings] = {"another thread": {"threads": 1}}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of each scorer whose module can be imported."""
    for name in SCORERS:
        path = f"{_FOLDER}.{name}.compute_score"
        with math_verify():
            found = target.has(path) and not target.fails(path)  # imports its module
        if found:
            yield from try_bind(target, path, "batch", partial(_scorers, target, name, path))


def scored(score: Callable[[str, Any], Any], name: str, tokens: Tensor, rewards: Tensor, threads: int) -> list[float]:
    """Score a right answer for each row with a positive reward, and a wrong answer for each other row.

    Returns the row's reward, but 0 if a right answer has no positive score, and 1 if a wrong answer has one.
    With ``threads``, the scorer is called in another thread.
    """

    def of(row: int, reward: float) -> float:
        answer, wrong = str(row + 2), str(row + 3)
        truth: Any = {"target": [answer]} if name in _TARGETS else answer
        with redirect_stdout(None):
            end = SCORERS[name].format(answer if reward > 0 else wrong)
            result = score(f"{' '.join(map(str, tokens[row].tolist()))} {end}", truth)
        passed = float(result["score"] if isinstance(result, dict) else result) > 0
        return reward if passed == (reward > 0) else float(passed)

    rows = list(enumerate(rewards.tolist()))
    with math_verify(), ThreadPoolExecutor(max(threads, 1)) as pool:  # some import it when they score
        return list(pool.map(lambda row: of(*row), rows)) if threads else [of(*row) for row in rows]


def scores_in_threads(target: Target) -> bool:
    """Whether the release has managers that score in an executor."""
    return any(target.has(path) and target.locate(path) == path for path in (*LOOP.values(), *EARLIER_LOOP.values()))


def _scorers(target: Target, name: str, path: str) -> Iterator[Boundary]:
    pools = {f"{_FOLDER}.{name}._get_pool": Pool}
    yield one_call(
        path=path,
        stage="batch",
        call=scored,
        name="scored",
        fakes=present(target, pools),
        arguments={
            "score": Constant(Function(path)),
            "name": Constant(name),
            "tokens": Column("token"),
            "rewards": Column("reward"),
            "threads": Knob("threads"),
        },
        produced_by={"score": _CALLED},
        unused=frozenset({"token"}),
        outputs={"reward": Output("B", "reward", "reward", at=Use("scored"), form=PerRow("list"))},
        settings={**_MAIN, **(_OTHER if scores_in_threads(target) else {})},
        claims=claims(_RULE, conserves=True),
        reach=f"reward_score.{name}, by the data source or as custom_reward_function",
    )
