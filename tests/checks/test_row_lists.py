"""Functions of a list with one dict or object per response: bound as they are, or refused with a binding that works."""

import re
from ast import literal_eval
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import rl_sentinel
from rl_sentinel.core.errors import InputError

GRPO: dict[str, Any] = {"stage": "advantage", "algorithm": "grpo", "laws": ["GRP001", "REF001"]}


def _advantages(rewards: list[float], groups: list[Any], shared: str = "group") -> Tensor:
    """Rewards less the mean of their prompt, or of the batch."""
    peers = [[r for r, h in zip(rewards, groups, strict=True) if shared == "batch" or h == g] for g in groups]
    return torch.tensor([r - sum(own) / len(own) for r, own in zip(rewards, peers, strict=True)])


def of_dicts(samples: Any) -> Tensor:
    return _advantages([row["reward"] for row in samples], [row["uid"] for row in samples])


def over_the_batch(samples: Any) -> Tensor:
    return _advantages([row["reward"] for row in samples], [row["uid"] for row in samples], "batch")


def of_objects(samples: Any) -> Tensor:
    return _advantages([samples[i].reward for i in range(len(samples))], [one.group_id for one in samples])


@dataclass
class Sample:
    """A response."""

    reward: float
    group_id: int


def of_dataclasses(rows: list[Sample]) -> list[float]:
    advantages: list[float] = _advantages([row.reward for row in rows], [row.group_id for row in rows]).tolist()
    return advantages


def written(samples: Any) -> Any:
    """Write the advantages into the rows, read them back, and return the rows."""
    for row, advantage in zip(samples, of_dicts(samples).tolist(), strict=True):
        row["advantage"] = advantage
        assert row["advantage"] == advantage
    return samples


def renamed(samples: Any) -> Tensor:
    return _advantages([row["verifier_reward"] for row in samples], [row["uid"] for row in samples])


def loss(rows: Any, clip_eps: float = 0.2) -> Tensor:
    """Token mean of a clipped loss; each row has tensors of its own length, and one advantage."""
    total, count = torch.zeros(()), 0
    for row in rows:
        ratio = (row["logprobs"] - row["old_logprobs"]).exp()
        clipped = ratio.clamp(1 - clip_eps, 1 + clip_eps)
        total = total - torch.min(ratio * row["advantage"], clipped * row["advantage"])[row["mask"].bool()].sum()
        count += int(row["mask"].sum())
    return total / max(count, 1)


@pytest.mark.parametrize("function", [of_dicts, of_objects, of_dataclasses, written])
def test_rows_need_no_binding(function: Any) -> None:
    result = rl_sentinel.check(function, **GRPO)
    assert (result.ok, result.findings) == (True, ()), result
    assert [v.outcome for v in result.verdicts] == ["holds", "holds"]


def test_a_fault_is_found_on_rows() -> None:
    assert {f.code for f in rl_sentinel.check(over_the_batch, **GRPO).faults} == {"GRP001", "REF001"}


def test_a_loss_of_rows_is_compared_with_its_formula() -> None:
    result = rl_sentinel.check(loss, stage="policy-loss", algorithm="ppo", laws=["REF001"])
    assert (result.ok, result.findings) == (True, ()), result


def test_an_unknown_key_is_refused_with_a_binding_that_works() -> None:
    with pytest.raises(InputError, match=r"parameter 'samples\.verifier_reward' of unknown name") as raised:
        rl_sentinel.check(renamed, **GRPO)
    proposed = re.search(r"bind=(\{.*?\})", str(raised.value))
    assert proposed is not None
    assert rl_sentinel.check(renamed, bind=literal_eval(proposed[1]), **GRPO).ok


def test_rows_without_a_known_key_are_refused_with_a_binding_that_works() -> None:
    def unknown(samples: Any) -> Tensor:
        return _advantages([row["verifier_score"] for row in samples], [row["source_index"] for row in samples])

    with pytest.raises(InputError, match=r"'samples\.verifier_score', 'samples\.source_index' of unknown") as raised:
        rl_sentinel.check(unknown, **GRPO)
    proposed = re.search(r"bind=(\{.*?\})", str(raised.value))
    assert proposed is not None
    assert rl_sentinel.check(unknown, bind=literal_eval(proposed[1]), **GRPO).ok


def test_rows_are_bound_by_a_list_with_one_dict() -> None:
    bind = {"samples": [{"verifier_reward": "reward", "uid": "group"}]}
    assert rl_sentinel.check(renamed, bind=bind, **GRPO).ok
