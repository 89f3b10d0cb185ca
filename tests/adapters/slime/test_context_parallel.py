"""Context parallelism of slime's specimen: what ranks hold, what the split leaves alone, and what the law finds."""

import importlib
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist

from adapters.checks import Loads, bound, check_verdict
from adapters.slime_specimen import CUT, files
from rl_sentinel.adapters.kit.execution import execute, inputs_of
from rl_sentinel.adapters.kit.rank_threads import run_on_ranks
from rl_sentinel.adapters.slime import FRAMEWORK
from rl_sentinel.adapters.slime.context_parallel import chunks_are_full
from rl_sentinel.adapters.slime.context_rank_fakes import context_of, merge_shares, share, spans
from rl_sentinel.core.batch import Batch, batch_of
from rl_sentinel.core.case import Case, with_layout
from rl_sentinel.core.errors import NotApplicable
from rl_sentinel.laws.context_split_changes_signal import LAW as SPL004

BACKEND = "slime/backends/megatron_utils"
SIZE = "mpu.get_context_parallel_world_size()"
WHITENED = "reinforce_plus_plus, whitened, context parallel"
GRPO_TOTAL = "grpo, per token, context parallel"


def _tree(*changes: tuple[str, str]) -> dict[str, str]:
    """The specimen with context parallelism; ``changes`` are words of its loss, and what stands in their place."""
    tree = files(fixed=True)
    loss = tree[f"{BACKEND}/loss.py"]
    counted = "loss = loss * num_microbatches / step_global_batch_size"
    loss = loss.replace(
        "        if not args.calculate_per_token_loss:\n            loss = loss * num_microbatches / "
        '(step_global_batch_size if True else len(batch["loss_masks"]))',
        f"        if not args.calculate_per_token_loss:\n            {counted} * {SIZE}\n"
        f"        else:\n            loss = loss * {SIZE}",
    )
    assert counted in loss
    loss = loss.replace("total / sum(map(len, advantages))", "total / count").replace(
        "            advantages = [a - total / count",
        "            count = torch.tensor(float(sum(map(len, advantages))))\n"
        "            dist.all_reduce(count, group=mpu.get_data_parallel_group(with_context_parallel=True))\n"
        "            advantages = [a - total / count",
    )
    for old, new in changes:
        assert old in loss
        loss = loss.replace(old, new)
    return tree | {f"{BACKEND}/loss.py": loss, f"{BACKEND}/cp_utils.py": CUT}


def _batch() -> Batch:
    """One response of four tokens after a prompt of twelve: 16 tokens in four chunks, the response is the last one."""
    columns = {"old_logprob": [[0.0] * 4], "logprob": [[0.0] * 4], "advantage": [[1.0, 2.0, 3.0, 6.0]]}
    columns |= {"entropy": [[0.0] * 4]}
    mask = torch.ones(1, 4, dtype=torch.bool)
    batch = {name: torch.tensor(rows) for name, rows in columns.items()}
    return batch_of(mask, prompt_length=torch.tensor([12]), reward=torch.tensor([2.0]), **batch)


def test_shares_by_hand() -> None:
    """Position t of the response is predicted at sequence position t + 11: 11 is in rank 1's chunk, 12 to 15 in 0's."""

    def offsets(_total: int, _response: int) -> tuple[None, None, list[tuple[int, int]]]:
        return None, None, [(0, 0), (11, 12)]

    own = spans(lambda total, response: (*offsets(total, response), None), 16, 4)
    assert own == [(0, 0), (0, 1)]
    data = {"advantages": [torch.tensor([1.0, 2.0, 3.0, 6.0])], "loss_masks": [torch.ones(4)]}
    held = share(data, [own])
    assert held["advantages"][0].tolist() == [1.0]
    assert held["loss_masks"] is data["loss_masks"]
    whole = merge_shares([[torch.tensor([2.0, 3.0, 6.0])], held["advantages"]], [[[(0, 0), (1, 4)]], [own]], [4])
    assert whole[0].tolist() == [1.0, 2.0, 3.0, 6.0]


@pytest.mark.parametrize("setting", ["grpo, per token, context parallel", "grpo, regularized, context parallel"])
@pytest.mark.parametrize("size", [1, 2])
def test_loss_by_hand(loads: Loads, setting: str, size: int) -> None:
    """With a ratio of 1 the loss is minus the mean advantage, whoever holds the tokens."""
    target = loads(FRAMEWORK, _tree())
    boundary = bound(FRAMEWORK, target)["policy_loss_function", setting]
    inputs = inputs_of(boundary, with_layout(Case(_batch(), setting=setting), context=size))
    assert chunks_are_full(inputs) == ""
    assert execute(target, boundary, inputs).values["loss"].item() == pytest.approx(-3.0)


@pytest.mark.parametrize(
    ("name", "setting"), [("compute_advantages_and_returns", WHITENED), ("policy_loss_function", GRPO_TOTAL)]
)
def test_split_that_does_not_show(loads: Loads, name: str, setting: str) -> None:
    """Statistics of all ranks, and a loss that counts them."""
    target = loads(FRAMEWORK, _tree())
    check_verdict(SPL004, bound(FRAMEWORK, target)[name, setting], setting, target, found=False)


@pytest.mark.parametrize(
    ("name", "setting", "change"),
    [
        ("compute_advantages_and_returns", WHITENED, ("(with_context_parallel=True)", "()")),
        ("policy_loss_function", GRPO_TOTAL, (f"loss = loss * {SIZE}\n", "pass\n")),
    ],
)
def test_split_that_is_found(loads: Loads, name: str, setting: str, change: tuple[str, str]) -> None:
    """A statistic of one rank's tokens, or a loss that does not count the ranks."""
    target = loads(FRAMEWORK, _tree(change))
    check_verdict(SPL004, bound(FRAMEWORK, target)[name, setting], setting, target, found=True)


def test_short_sequences_are_left_out(loads: Loads) -> None:
    """Sequences of a run fill all chunks; the last chunk of 13 tokens in four chunks predicts nothing."""
    target = loads(FRAMEWORK, _tree())
    boundary = bound(FRAMEWORK, target)["policy_loss_function", GRPO_TOTAL]
    batch = replace(_batch(), prompt_length=torch.tensor([9]))
    short = with_layout(Case(batch, setting=GRPO_TOTAL), context=2)
    with pytest.raises(NotApplicable, match="a sequence of 13 tokens does not fill 4 chunks"):
        execute(target, boundary, inputs_of(boundary, short))


def test_groups_of_megatron(loads: Loads) -> None:
    """A collective over a group without context parallelism leaves what one rank has."""
    loads(FRAMEWORK, _tree())
    mpu = importlib.import_module("megatron.core").mpu

    def total(rank: int, *, shared: bool) -> float:
        value = torch.tensor(float(rank + 1))
        dist.all_reduce(value, group=mpu.get_data_parallel_group(with_context_parallel=shared))
        return value.item()

    with context_of(2):
        assert run_on_ranks(2, lambda rank: total(rank, shared=True)) == [3.0, 3.0]
        assert run_on_ranks(2, lambda rank: total(rank, shared=False)) == [1.0, 2.0]


def test_no_context_parallelism(loads: Loads) -> None:
    """A release without the offsets has no such boundary."""
    target = loads(FRAMEWORK, files(fixed=True))
    assert not [setting for _, setting in bound(FRAMEWORK, target) if "context parallel" in setting]
