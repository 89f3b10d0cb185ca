"""TRL's GMPO and its asynchronous GRPO, on a specimen of their call shapes in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict
from adapters.kit.round_trip import check_calls
from adapters.trl_async_specimen import files
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, async_loss, async_metrics, async_router, gmpo
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.dead_row_shifts_signal import LAW as MSK001
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.metric_fits_no_definition import LAW as MET001
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001
from rl_sentinel.laws.padding_shifts_signal import LAW as PAD001
from rl_sentinel.laws.rank_split_changes_loss import LAW as SPL002
from rl_sentinel.laws.setting_arrives_changed import LAW as CFG004

GMPO = f"{gmpo.GMPO}._compute_loss"
LOGGED = f"{async_loss.COLLATOR}.torch_call -> {async_loss.TRAINER}.log"
ASYNC = f"{async_loss.TRAINER}.compute_loss"


def _bound(target: Target) -> dict[tuple[str, str], Boundary]:
    """(path, setting) to boundary."""
    every = [b for module in (gmpo, async_loss, async_router, async_metrics) for b in module.boundaries(target)]
    return {(b.path, setting): b for b in every if isinstance(b, Boundary) for setting in b.settings}


def test_all_boundaries_answer_and_read_back(loads: Loads) -> None:
    """Each form binds, and every column survives the round trip."""
    target = loads(FRAMEWORK, files(), overlay())
    boundaries = _bound(target)
    assert set(boundaries) == {
        (GMPO, "default"),
        (GMPO, "KL"),
        (GMPO, "top entropy"),
        (ASYNC, "default"),
        (ASYNC, "over ranks"),
        (ASYNC, "router"),
        (LOGGED, "logged"),
    }
    check_calls(target, boundaries.values())


@pytest.mark.parametrize("sound", [True, False])
@pytest.mark.parametrize(
    ("law", "path", "choices"),
    [
        (REF001, GMPO, {"ceiling": "self.high"}),
        (REF001, GMPO, {"tokens": "mask.shape[1]"}),
        (MSK001, GMPO, {"counted": "1"}),
        (SPL001, GMPO, {"parts": "1"}),
        (PAD001, GMPO, {"among": "entropy"}),
        (REF001, ASYNC, {"above": "self.epsilon_low"}),
        (REF001, ASYNC, {"weight": 'row[0]["advantage"]'}),
        (REF001, ASYNC, {"first": ":-1]"}),
        (SPL002, ASYNC, {"denominator": "mask.sum().clamp(min=1)"}),
        (MET001, ASYNC, {"kl_count": "mask.numel()"}),
        (CFG004, ASYNC, {"router_parts": "1"}),
        (CFG004, ASYNC, {"router_ranks": "1"}),
        (MET001, LOGGED, {"every": "len(samples)"}),
        (MET001, LOGGED, {"room": "sum(passed)"}),
    ],
)
def test_faults(loads: Loads, law: Law, path: str, choices: dict[str, str], sound: bool) -> None:
    """Ratios clipped at the range, means over trained tokens, weights of their own samples, one count for all ranks."""
    target = loads(FRAMEWORK, files(**({} if sound else choices)), overlay())
    setting = {SPL002: "over ranks", PAD001: "top entropy", CFG004: "router"}.get(
        law, "logged" if path == LOGGED else "default"
    )
    check_verdict(law, _bound(target)[path, setting], setting, target, found=not sound)


@pytest.mark.parametrize(("rank", "sound"), [("1 - self.args.top_entropy_quantile", True), ("0.25", False)])
def test_tokens_of_high_entropy(loads: Loads, rank: str, sound: bool) -> None:
    """A share of 0.25 keeps the upper quarter of the tokens, not the upper three quarters."""
    target = loads(FRAMEWORK, files(rank=rank), overlay())
    check_verdict(REF001, _bound(target)[GMPO, "top entropy"], "top entropy", target, found=not sound)
