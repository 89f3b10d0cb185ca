"""slime's generation, rollout loop and evaluation, on a specimen of its call shapes in words of our own."""

from types import ModuleType

import pytest

from adapters.checks import Loads, answering, by_setting, check_verdict
from adapters.kit.round_trip import check_calls
from adapters.slime_rollout_specimen import files
from rl_sentinel.adapters.slime import FRAMEWORK, asynchronous_rollout, evaluation, generation, rollout_loop
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.knob_without_effect import LAW as CFG001
from rl_sentinel.laws.sample_lost_or_repeated import LAW as DAT002
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004
from rl_sentinel.laws.valid_input_raises import LAW as RAI001


def _bound(loads: Loads, module: ModuleType, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    target = loads(FRAMEWORK, files(**broken))
    return target, by_setting(module.boundaries(target))


@pytest.mark.parametrize(
    ("module", "law", "setting", "broken"),
    [
        (generation, PLC004, "default", {"SPENT": "2 * sample.response_length"}),
        (generation, PLC004, "room to spare", {"COPY": "params"}),
        (generation, PLC004, "default", {"PREFIX": "ids[1:]"}),
        (generation, PLC004, "token ids", {"PREFIX": "sample.tokens"}),
        (rollout_loop, DAT002, "filtered", {"ALL": "data"}),
        (rollout_loop, RAI001, "reward by key", {"SHOWN": "[float(one.reward['pred']) for one in group]"}),
        (evaluation, PLC004, "reward by key", {"KEY": "args.reward_key or args.eval_reward_key"}),
        (asynchronous_rollout, DAT002, "default", {"LIMIT": "8"}),
        (evaluation, CFG001, "command line", {"WHERE": "rollout_temperature"}),
    ],
)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(  # noqa: PLR0913 - parametrised
    loads: Loads, module: ModuleType, law: Law, setting: str, broken: dict[str, str], found: bool
) -> None:
    """Too little room for a request that continues, or after its siblings; dropped samples; groups finished ahead."""
    target, every = _bound(loads, module, **(broken if found else {}))
    check_verdict(law, every[setting], setting, target, found=found)


@pytest.mark.parametrize("module", [generation, rollout_loop, asynchronous_rollout, evaluation])
def test_answers(loads: Loads, module: ModuleType) -> None:
    target, every = _bound(loads, module)
    check_calls(target, every.values())


def test_revisions_without_log_probs(loads: Loads) -> None:
    """Early revisions keep no log-probs of the engine: tokens, masks and rewards are compared."""
    early = {place: text.replace("rollout_log_probs", "others") for place, text in files().items()}
    early["slime/ray/buffer.py"] = early["slime/ray/buffer.py"].replace('"others"', '"other"')
    target = loads(FRAMEWORK, early)
    every = by_setting(generation.boundaries(target))
    assert set(every["default"].outputs) == {"reward", "token", "mask"}
    assert answering({("specimen", setting): boundary for setting, boundary in every.items()}, target) == []
