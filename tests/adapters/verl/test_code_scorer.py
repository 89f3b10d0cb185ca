"""verl's scorer of programs, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, rewritten, the_only
from adapters.kit.round_trip import check_calls
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, code_scorer
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

SCORER = """
    from . import utils

    def compute_score(sandbox_fusion_url, concurrent_semaphore, completion, test_cases):
        code = completion.split("```python")[1].split("```")[0]
        return utils.share(sandbox_fusion_url, code, test_cases), []
"""

CASES = """
    WRAPPER = '''
    import json, sys
    lines = sys.stdin.read().splitlines()
    print(json.dumps({name}(*map(json.loads, lines))))
    '''

    def call_sandbox_api(sandbox_fusion_url, code, stdin):
        raise RuntimeError("there is no sandbox")

    def passes(url, code, given, expected):
        reply, _ = call_sandbox_api(sandbox_fusion_url=url, code=code, stdin=STDIN)
        if reply["status"] == "Failed":
            return False
        return expected is None or reply["run_result"]["stdout"].strip() == expected.strip()

    def share(url, code, cases):
        if "fn_name" in cases:
            code = code + WRAPPER.format(name=cases["fn_name"])
        checks = cases.get("assert_case", [""])
        inputs = cases.get("inputs", [""] * len(checks))
        outputs = cases.get("outputs", [None] * len(inputs))
        checks = checks * (len(inputs) // len(checks))
        passed = [
            passes(url, code + CHECK, given, expected)
            for check, given, expected in zip(checks, inputs, outputs, strict=True)
        ]
        return sum(passed) / len(passed)
"""

SOUND = {"STDIN": "given", "CHECK": '"\\n" + check'}


def _bound(loads: Loads, **broken: str) -> tuple[Target, Boundary]:
    parts = SOUND | broken
    folder = "verl/utils/reward_score/sandbox_fusion"
    tree = {f"{folder}/__init__.py": SCORER, f"{folder}/utils.py": rewritten(CASES, parts), "verl/__init__.py": ""}
    target = loads(FRAMEWORK, tree, {})
    return target, the_only(code_scorer.boundaries(target))


def test_answers_and_reads_back(loads: Loads) -> None:
    """Four kinds of test cases."""
    target, boundary = _bound(loads)
    assert list(boundary.settings) == list(code_scorer.SETTINGS)
    check_calls(target, [boundary])


@pytest.mark.parametrize("setting", code_scorer.SETTINGS)
def test_sound(loads: Loads, setting: str) -> None:
    """Right solutions have a reward, wrong ones have none."""
    target, boundary = _bound(loads)
    check_verdict(PLC004, boundary, setting, target, found=False)


@pytest.mark.parametrize(
    ("setting", "broken"),
    [
        ("inputs", {"STDIN": "None"}),
        ("a function", {"STDIN": "given.replace(chr(10), ' ')"}),
        ("a function without arguments", {"STDIN": "str(given)"}),
        ("assertions", {"CHECK": '""'}),
    ],
)
def test_broken(loads: Loads, setting: str, broken: dict[str, str]) -> None:
    """Inputs that are lost or joined, None as a text, and assertions that are not run."""
    target, boundary = _bound(loads, **broken)
    check_verdict(PLC004, boundary, setting, target, found=True)


def test_kinds_that_a_release_does_not_know(loads: Loads) -> None:
    """A scorer without functions and assertions is asked for inputs only."""
    folder = "verl/utils/reward_score/sandbox_fusion"
    tree = {f"{folder}/__init__.py": SCORER, f"{folder}/utils.py": "call_sandbox_api = None", "verl/__init__.py": ""}
    assert list(the_only(code_scorer.boundaries(loads(FRAMEWORK, tree, {}))).settings) == ["inputs"]


def test_releases_without_this_scorer(loads: Loads) -> None:
    """A release without the scorer has no boundary here."""
    assert list(code_scorer.boundaries(loads(FRAMEWORK, {"verl/__init__.py": ""}, {}))) == []
