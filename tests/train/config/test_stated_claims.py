"""``CLAIMS`` of the module that a recipe names, or of the module of the function."""

from functools import partial
from pathlib import Path

import pytest

import rl_sentinel.signal.loss.ppo as library
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.config.stated_claims import stated_claims
from rl_sentinel.train.config.user_code import import_object

MODULE = """
from functools import partial, wraps
from rl_sentinel.signal.loss.ppo import loss as imported

def plain(logprob): return logprob

class Loss:
    def __call__(self, logprob): return logprob
    def method(self, logprob): return logprob

def decorated(function):
    def inner(*args): return function(*args)
    return inner

part, instance, wrapped = partial(partial(plain)), Loss(), decorated(plain)
method = instance.method
"""


def _stated(folder: Path, name: str, claims: str) -> dict[str, str]:
    file = folder / "own.py"
    file.write_text(MODULE + claims, encoding="utf-8")
    reference = f"{file}:{name}"
    return stated_claims("loss", reference, import_object("loss", reference))


@pytest.mark.parametrize("name", ["plain", "part", "instance", "wrapped", "method", "imported"])
def test_claims_are_those_of_the_named_module(tmp_path: Path, name: str) -> None:
    assert _stated(tmp_path, name, 'CLAIMS = {"algorithm": "ppo"}') == {"algorithm": "ppo"}


def test_without_claims_those_of_the_functions_own_module_hold(tmp_path: Path) -> None:
    assert _stated(tmp_path, "imported", "") == library.CLAIMS
    assert _stated(tmp_path, "plain", "") == {}
    assert stated_claims("loss", "ppo", partial(library.loss, clip_low=0.1)) == library.CLAIMS


def test_a_function_may_have_claims_of_its_own(tmp_path: Path) -> None:
    claims = 'CLAIMS = {"scope": "group", "plain": {"algorithm": "ppo"}}'
    assert _stated(tmp_path, "plain", claims) == {"algorithm": "ppo"}
    assert _stated(tmp_path, "part", claims) == {"scope": "group"}


@pytest.mark.parametrize(
    ("claims", "found"),
    [
        ("['ppo']", r"\['ppo'\]"),
        ("None", "None"),
        ("{'ratio': True}", "'ratio': True"),
        ("{1: 'ppo'}", "1: 'ppo'"),
        ("{'plain': {'ratio': True}}", "'ratio': True"),
    ],
)
def test_claims_that_are_no_texts_are_one_line(tmp_path: Path, claims: str, found: str) -> None:
    with pytest.raises(
        SentinelError, match=rf"^loss '.*own.py:plain' has CLAIMS with {found}, expected a dict of texts"
    ):
        _stated(tmp_path, "plain", f"CLAIMS = {claims}")
