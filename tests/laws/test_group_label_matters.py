"""GRP002: a sound, two broken and a refusing specimen."""

import re

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.laws.group_label_matters import LAW
from specimens import judged, specimen

CLAIMS = {"grouping": "id"}


def _by_id(batch: Batch) -> Tensor:
    same = (batch.group.unsqueeze(0) == batch.group.unsqueeze(1)).float()
    return (batch.reward - same @ batch.reward / same.sum(dim=1)).unsqueeze(1) * batch.mask


def _by_position(batch: Batch) -> Tensor:
    return (batch.reward - batch.reward[batch.group.clamp(max=batch.rows - 1)]).unsqueeze(1) * batch.mask


def _by_neighbor(batch: Batch) -> Tensor:
    first = torch.cat([torch.tensor([True]), batch.group[1:] != batch.group[:-1]])
    start = torch.where(first, torch.arange(batch.rows), 0).cummax(dim=0).values
    return (batch.reward - batch.reward[start]).unsqueeze(1) * batch.mask


def test_sound() -> None:
    """Groups by label stand however they are called and wherever their rows are."""
    judgement = judged(LAW, specimen(_by_id, reads="reward group mask", claims=CLAIMS))
    assert judgement.found is None
    assert judgement.tried > 0


def test_label_as_position_is_found() -> None:
    found = judged(LAW, specimen(_by_position, reads="reward group mask")).found
    assert found is not None
    assert re.fullmatch(
        r"ids only state which rows share a prompt, "
        r"yet giving the groups other ids moves advantage at row \d, token 0 from \S+ to \S+",
        found.expectation.sentence(),
    )
    assert LAW.level(found.case) == "fault"


def _by_remainder(batch: Batch) -> Tensor:
    """The id modulo the number of groups as the position of the group."""
    count = len(set(batch.group.tolist()))
    member = torch.nn.functional.one_hot(batch.group % count, count).float()
    mean = (member.T @ batch.reward) / member.sum(0).clamp(min=1)
    return (batch.reward - member @ mean).unsqueeze(1) * batch.mask


def test_label_modulo_the_number_of_groups_is_found() -> None:
    """It is right for ids from 0, and for ids that happen to have other remainders."""
    found = judged(LAW, specimen(_by_remainder, reads="reward group mask")).found
    assert found is not None
    assert found.expectation.sentence().startswith("ids only state which rows share a prompt, yet giving the groups")


def test_neighbors_as_siblings_are_found() -> None:
    found = judged(LAW, specimen(_by_neighbor, reads="reward group mask", claims=CLAIMS)).found
    assert found is not None
    assert found.case.batch.rows == 3
    assert re.fullmatch(
        r"ids only state which rows share a prompt, "
        r"yet interleaving the rows of the groups moves advantage at row \d, token 0 from \S+ to \S+",
        found.expectation.sentence(),
    )
    assert judged(LAW, specimen(_by_neighbor, reads="reward group mask")).found is None


def test_not_applicable() -> None:
    """What reads no group has no labels."""
    judgement = judged(LAW, specimen(_by_id, reads="reward mask"))
    assert (judgement.tried, judgement.reason) == (0, "the boundary reads no group")
