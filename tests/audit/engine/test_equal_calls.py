"""Equal calls: found by the columns that calls read, and by nothing less."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from rl_sentinel.audit.engine import equal_calls
from rl_sentinel.audit.engine.equal_calls import EqualCalls
from rl_sentinel.audit.engine.executor import Asker
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.case import Case, with_batch, with_layout
from rl_sentinel.search.small_cases import small_cases
from specimens import specimen

CASE = small_cases()[0]


def _rewards(batch: Batch) -> Tensor:
    return batch.reward.unsqueeze(1) * batch.mask


def _asker(calls: list[int], reads: str = "reward mask") -> Asker:
    def counted(batch: Batch, **_settings: float) -> Tensor:
        calls.append(1)
        return _rewards(batch)

    return Asker(specimen(counted, reads=reads), {}, equal_calls=EqualCalls())


def _at(**columns: Tensor) -> Case:
    return with_batch(CASE, with_columns(CASE.batch, **columns))


def test_call_is_not_made_again_when_only_unread_columns_differ() -> None:
    calls: list[int] = []
    ask = _asker(calls)
    first, second = ask(CASE), ask(_at(version=CASE.batch.version + 1))
    assert len(calls) == 1
    assert torch.equal(first.values["advantage"], second.values["advantage"])


@pytest.mark.parametrize(
    "other",
    [
        _at(reward=CASE.batch.reward + 1),
        _at(reward=CASE.batch.reward.double()),
        replace(CASE, seed=CASE.seed + 1),
        replace(CASE, override={"clip_low": 0.5}),
        with_layout(CASE, extra=1),
    ],
    ids=["content", "dtype", "seed", "override", "layout"],
)
def test_call_is_made_again_when_anything_that_it_reads_differs(other: Case) -> None:
    calls: list[int] = []
    ask = _asker(calls)
    ask(CASE)
    ask(other)
    assert len(calls) == 2


def test_fresh_and_watched_calls_are_made_again() -> None:
    calls: list[int] = []
    ask = _asker(calls)
    ask(CASE)
    ask(CASE, fresh=True)
    assert "reward" in ask(CASE, watched=True).inputs_after
    assert len(calls) == 3


def test_column_that_only_some_calls_read_counts_once_it_was_read() -> None:
    def compute(batch: Batch) -> Tensor:
        return _rewards(batch) * (batch.group.unsqueeze(1) if bool(batch.reward.sum() > 5) else 1)

    ask = Asker(specimen(compute, reads="reward mask group"), {}, equal_calls=EqualCalls())
    high = CASE.batch.reward + 9
    ask(CASE)
    ones, twos = (ask(_at(reward=high, group=CASE.batch.group * 0 + n)).values["advantage"] for n in (1, 2))
    assert torch.equal(twos, 2 * ones)
    assert bool(ones.any())


def test_number_of_results_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equal_calls, "MOST_RESULTS", 2)
    ask = _asker([])
    for number in range(3):
        ask(_at(reward=CASE.batch.reward + number))
    assert ask.equal_calls is not None
    assert len(ask.equal_calls.results) == 1
