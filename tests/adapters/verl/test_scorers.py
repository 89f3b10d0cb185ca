"""verl's scorers by rule, on specimens in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict
from adapters.kit.round_trip import check_calls
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, scorers
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

BY_NUMBER = """
    def compute_score(solution_str, ground_truth):
        return {"score": 1 if solution_str.split()[-1]WHOLE == ground_truthWHOLE else -1}
"""

BY_PACKAGE = """
    from math_verify.grader import verify
    from math_verify.metric import math_metric
    from math_verify.parser import parse

    def compute_score(model_output, ground_truth):
        gold = "\\\\boxed{" + ground_truth + "}"
        try:
            WAY
        except Exception:
            return 0.0
"""

#: How the package is called, and whether it works outside of a main thread.
WAYS = {
    "return math_metric()([gold], [model_output])[0]": False,
    "return verify(parse(gold)[0], parse(model_output)[0], timeout_seconds=None)": False,
    "return verify(parse(gold, parsing_timeout=None)[0], parse(model_output, parsing_timeout=None)[0])": False,
    "return verify(*(parse(x, parsing_timeout=None)[0] for x in (gold, model_output)), timeout_seconds=None)": True,
    "return _get_pool().submit(lambda: math_metric()([gold], [model_output])[0]).result()": True,
}

POOL = """
    def _get_pool():
        raise RuntimeError("processes are asked for")
"""


def _bound(loads: Loads, way: str, whole: str = "", *, threads: bool = True) -> tuple[Target, dict[str, Boundary]]:
    folder, loop = "verl/utils/reward_score", "verl/experimental/reward_loop/reward_manager/naive.py"
    tree = {
        **files(),
        f"{folder}/gsm8k.py": BY_NUMBER.replace("WHOLE", whole),
        f"{folder}/math_verify.py": BY_PACKAGE.replace("WAY", way) + (POOL if "_get_pool" in way else ""),
        **({loop: "class NaiveRewardManager: pass"} if threads else {}),
    }
    target = loads(FRAMEWORK, tree)
    found = [b for b in scorers.boundaries(target) if isinstance(b, Boundary)]
    return target, {b.path.split(".")[-2]: b for b in found}


def test_answers_and_reads_back(loads: Loads) -> None:
    target, named = _bound(loads, next(iter(WAYS)))
    assert set(named) == {"gsm8k", "math_verify"}
    assert set(named["gsm8k"].settings) == {"main thread", "another thread"}
    check_calls(target, named.values())


@pytest.mark.parametrize("whole", ["", "[:0]"])
def test_wrong_answers_get_another_score(loads: Loads, whole: str) -> None:
    """A scorer that compares nothing accepts every answer."""
    target, named = _bound(loads, "return 0.0", whole)
    check_verdict(PLC004, named["gsm8k"], "main thread", target, found=bool(whole))


@pytest.mark.parametrize(("way", "works"), WAYS.items())
def test_signals_work_in_main_threads_alone(loads: Loads, way: str, works: bool) -> None:
    """The package limits time by signals unless it is told not to."""
    target, named = _bound(loads, way)
    for setting, sound in (("main thread", True), ("another thread", works)):
        check_verdict(PLC004, named["math_verify"], setting, target, found=not sound)


def test_releases_that_score_in_one_thread(loads: Loads) -> None:
    """Are not asked in another."""
    _, named = _bound(loads, "return 0.0", threads=False)
    assert set(named["gsm8k"].settings) == {"main thread"}
