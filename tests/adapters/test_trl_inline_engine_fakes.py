"""TRL's trainer that asks vLLM itself, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, by_setting, check_verdict
from adapters.kit.round_trip import check_calls
from adapters.trl_inline_specimen import files, overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, inline_prompts, sampling
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.law import Law
from rl_sentinel.laws.columns_out_of_step import LAW as DAT001
from rl_sentinel.laws.setting_arrives_changed import LAW as CFG004
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004


def _bound(target: Target) -> dict[str, Boundary]:
    """Setting -> boundary."""
    every = [b for module in (sampling, inline_prompts) for b in module.boundaries(target)]
    assert [b.reason for b in every if isinstance(b, Unbound)] == []
    return by_setting(every)


def test_all_boundaries_answer(loads: Loads) -> None:
    """Options, rows and prompts of both engines; the calls read back."""
    target = loads(FRAMEWORK, files(), overlay())
    bound = _bound(target)
    prompts = {f"prompts, {engine}{cut}" for engine in ("server", "colocate") for cut in ("", ", truncated")}
    others = {f"{what}, {engine}" for what in ("options", "rows") for engine in ("server", "colocate")}
    assert set(bound) == prompts | others
    check_calls(target, bound.values())


CASES: list[tuple[Law, str, dict[str, str]]] = [
    (DAT001, "prompts, server, truncated", {"read": "prompts"}),
    (DAT001, "prompts, colocate, truncated", {"read": '[text.replace("<eos>", "") for text in texts]'}),
    (CFG004, "options, server", {"heat": "1.0"}),
    (CFG004, "options, colocate", {"heat": "1.0"}),
    (PLC004, "rows, server", {"rank": "0"}),
]


@pytest.mark.parametrize(("law", "setting", "broken"), CASES)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(loads: Loads, law: Law, setting: str, broken: dict[str, str], found: bool) -> None:
    """A whole prompt, one without special tokens, another temperature, and the first rank's rows for each rank."""
    target = loads(FRAMEWORK, files(**(broken if found else {})), overlay())
    check_verdict(law, _bound(target)[setting], setting, target, found=found)
