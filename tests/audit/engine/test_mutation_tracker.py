"""What a target's calls change in place: a tiny target that is given what was made of a batch."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from rl_sentinel.adapters.target import Target
from rl_sentinel.audit.engine.executor import Asker
from rl_sentinel.audit.engine.judge import Judgment, search, smallest
from rl_sentinel.audit.engine.mutation_tracker import Watch
from rl_sentinel.core.batch import Batch
from rl_sentinel.laws.input_is_mutated import LAW
from rl_sentinel.search.small_cases import small_cases
from specimens import specimen

NAME = "watch_specimen"

SOURCE = """
def new(scores, mask):
    return (scores - scores.mean()) * mask


def in_place(scores, mask):
    scores -= scores.mean()
    return scores * mask


def off_mask(scores, mask):
    scores *= mask
    return scores * mask


def table(data, extra=None):
    data.batch["advantages"] = data.batch["scores"] + 1
    data.batch["values"].mul_(2)
    data.batch["mask"] = data.batch["mask"] * 0
    extra[1][0] = 5


def raising(scores):
    scores.zero_()
    raise ValueError("no")
"""


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    """A package with functions that keep what they are given, or write into it."""
    (tmp_path / f"{NAME}.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield Target(root=tmp_path)
    sys.modules.pop(NAME, None)


def _judged(target: Target, function: str, writes: str = "") -> Judgment:
    def compute(batch: Batch) -> Tensor:
        scores = batch.reward.unsqueeze(1) * torch.ones(batch.mask.shape)
        scores = batch.token_reward.clone() if writes else scores
        answer: Tensor = target.call(f"{NAME}.{function}", scores, mask=batch.mask)
        return answer

    reads = "reward mask token_reward" if writes else "reward mask"
    boundary = specimen(compute, reads=reads, writes=frozenset(writes.split()))
    ask = Asker(boundary, {}, gate=target)
    judgement = search(LAW, ask, "default", seed=0, budget=8)
    if judgement.found is None:
        return judgement
    return Judgment(judgement.tried, smallest(LAW, ask, judgement.found))


def test_tensor_made_of_a_column_is_watched(target: Target) -> None:
    found = _judged(target, "in_place").found
    assert found is not None
    assert found.expectation.name == "argument scores of in_place"
    assert re.fullmatch(
        r"an input must not be changed, yet the call moves argument scores of in_place .* from \S+ to \S+",
        found.expectation.sentence(),
    )
    assert found.case.batch.mask.tolist() == [[True]]


def test_what_writes_nothing_that_counts_holds(target: Target) -> None:
    for function, writes in (("new", ""), ("off_mask", ""), ("in_place", "token_reward")):
        judgement = _judged(target, function, writes=writes)
        assert judgement.found is None, function
        assert judgement.tried > 0, function


def test_a_call_is_watched_where_that_is_wanted(target: Target) -> None:
    boundary = specimen(lambda b: target.call(f"{NAME}.in_place", b.reward.unsqueeze(1) + b.mask, b.mask), reads="mask")
    ask = Asker(boundary, {}, gate=target)
    assert not ask(small_cases()[0]).arguments
    seen = ask(small_cases()[0], watched=True)
    assert list(seen.arguments) == ["scores of in_place"]
    assert target.recorder is None


def test_tables_lists_and_arrays(target: Target) -> None:
    held = {"scores": torch.ones(2), "values": torch.tensor([1.0, float("nan")]), "mask": torch.ones(2)}
    array = np.array([1.0, 2.0])
    target.recorder = watch = Watch(target)
    target.call(f"{NAME}.table", SimpleNamespace(batch=held), extra=("x", array))
    assert sorted(watch.changed) == ["data.batch[values] of table", "extra[1] of table"]
    before, after = watch.changed["extra[1] of table"]
    assert (before.tolist(), after.tolist()) == ([1.0, 2.0], [5.0, 2.0])


def test_call_that_raises_changes_nothing(target: Target) -> None:
    target.recorder = watch = Watch(target)
    with pytest.raises(ValueError, match="no"):
        target.call(f"{NAME}.raising", torch.ones(2))
    target.call(f"{NAME}.new", torch.ones(2), torch.ones(2))
    assert not watch.changed
