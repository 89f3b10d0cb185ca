"""RNK001: a sound, a broken and a refusing specimen."""

from collections.abc import Callable

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.laws.better_response_ranked_below import LAW
from specimens import judged, specimen

READS = "reward group mask"
CLAIMS = {"baseline": "relative", "scope": "group", "grouping": "id"}


def _relative(batch: Batch) -> Tensor:
    same = (batch.group.unsqueeze(0) == batch.group.unsqueeze(1)).float()
    return batch.reward - same @ batch.reward / same.sum(dim=1)


def _per_token(row: Tensor, batch: Batch) -> Tensor:
    return row.unsqueeze(1) * batch.mask


def _sound(batch: Batch) -> Tensor:
    return _per_token(_relative(batch), batch)


def _only_the_best(batch: Batch) -> Tensor:
    return _per_token(_relative(batch).clamp(min=0), batch)


def _worst_first(batch: Batch) -> Tensor:
    return _per_token(-_relative(batch), batch)


def _of_the_next_row(batch: Batch) -> Tensor:
    return _per_token(_relative(batch).roll(1), batch)


def test_sound() -> None:
    """A difference from the group's mean keeps the order, and so does one that clips the worse ones to 0."""
    for compute in (_sound, _only_the_best):
        judgement = judged(LAW, specimen(compute, reads=READS, claims=CLAIMS))
        assert judgement.found is None
        assert judgement.tried > 0


def test_broken() -> None:
    """A flipped sign is found with two rows of one token."""
    found = judged(LAW, specimen(_worst_first, reads=READS, claims=CLAIMS)).found
    assert found is not None
    assert found.case.batch.mask.tolist() == [[True], [True]]
    assert found.expectation.sentence() == (
        "advantage is -0.5 at row 0, token 0, expected at least 0.5: "
        "the reward of row 0 is higher by 1 than in the other call, where rows 0 and 1 have each other's rewards"
    )
    assert LAW.level(found.case) == "fault"


def _lone_by(sign: float) -> Callable[[Batch], Tensor]:
    """Rewards less the group's mean, but a lone response keeps its reward, times ``sign``."""

    def compute(batch: Batch) -> Tensor:
        same = batch.group.unsqueeze(0) == batch.group.unsqueeze(1)
        return _per_token(torch.where(same.sum(dim=1) == 1, sign * batch.reward, _relative(batch)), batch)

    return compute


def test_lone() -> None:
    """A lone response that is unlearned the more, the better it is, is found with one token."""
    claims = {"scope": "group", "grouping": "id", "credit": "outcome"}
    for sign in (0.0, 1.0):
        judgement = judged(LAW, specimen(_lone_by(sign), reads=READS, claims=claims))
        assert judgement.found is None
        assert judgement.tried > 0
    found = judged(LAW, specimen(_lone_by(-1.0), reads=READS, claims=claims)).found
    assert found is not None
    assert found.case.batch.mask.tolist() == [[True]]
    assert found.expectation.sentence() == (
        "advantage is -1 at row 0, token 0, expected at least 0: "
        "it is alone in its group, and its reward is higher by 1 than in the other call"
    )


def test_lone_response_without_a_number() -> None:
    """NaN of a lone response, as of a deviation over n - 1, ranks nothing: DEG001 finds it."""

    def undefined(batch: Batch) -> Tensor:
        same = batch.group.unsqueeze(0) == batch.group.unsqueeze(1)
        return _per_token(torch.where(same.sum(dim=1) == 1, torch.nan, _relative(batch)), batch)

    claims = {"scope": "group", "grouping": "id", "credit": "outcome"}
    assert judged(LAW, specimen(undefined, reads=READS, claims=claims)).found is None


def test_rows_out_of_step() -> None:
    """The reward of another row is found too."""
    assert judged(LAW, specimen(_of_the_next_row, reads=READS, claims=CLAIMS)).found is not None


def test_not_applicable() -> None:
    """Without a claimed baseline, or without a reward, nothing is ranked."""
    judgement = judged(LAW, specimen(_worst_first, reads=READS, claims={"scope": "group"}))
    assert (judgement.tried, judgement.reason) == (0, "the boundary does not claim a relative baseline")
    judgement = judged(LAW, specimen(_worst_first, reads="token_reward mask", claims=CLAIMS))
    assert (judgement.tried, judgement.reason) == (0, "the boundary reads no task reward")


def test_refusing() -> None:
    """A boundary that refuses every batch is not judged."""

    def refuses(batch: Batch) -> Tensor:
        raise ValueError(f"{batch.rows} rows")

    assert judged(LAW, specimen(refuses, reads=READS, claims=CLAIMS)).tried == 0
