"""verl's functions of logits, on specimens in words of our own."""

import pytest

from adapters.checks import Loads, answering, check_verdict
from adapters.kit.round_trip import check_round_trips
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, logit_functions
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.valid_input_raises import LAW as RAI001

PLAIN = """
    import torch

    def logprobs_from_logits_naive(logits, labels):
        return logits.log_softmax(-1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)

    def entropy_from_logits_with_chunking(logits, chunk_size=2048):
        found = torch.zeros(logits.shape[0])
        for start in range(0, logits.shape[0] - REST, chunk_size):
            own = logits[start : start + chunk_size].log_softmax(-1)
            found[start : start + chunk_size] = -(own.exp() * own).sum(-1)
        return found
"""

SHARDED = """
    import torch
    import torch.distributed as dist
    from megatron.core import parallel_state as mpu

    class Entropy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, logits):
            own = logits.log_softmax(-1)
            entropy = -(own.exp() * own).sum(-1)
            dist.all_reduce(entropy, group=mpu.get_tensor_model_parallel_group())
            ctx.save_for_backward(logits, own, entropy)
            return entropy

        @staticmethod
        def backward(ctx, grad):
            logits, own, entropy = ctx.saved_tensors
            SPOILED
            return -own.exp() * (own + entropy.unsqueeze(-1)) * grad.unsqueeze(-1)

    def vocab_parallel_entropy_with_chunking(logits, chunk_size=2048):
        found = torch.zeros(logits.shape[:-1])
        for start in range(0, logits.shape[1], chunk_size):
            found[:, start : start + chunk_size] = Entropy.apply(logits[:, start : start + chunk_size])
        return found
"""


def _bound(loads: Loads, rest: str = "0", spoiled: str = "pass") -> tuple[Target, dict[tuple[str, str], Boundary]]:
    tree = files()
    tree["verl/utils/torch_functional.py"] = PLAIN.replace("REST", rest)
    tree["verl/utils/megatron/tensor_parallel.py"] = SHARDED.replace("SPOILED", spoiled)
    target = loads(FRAMEWORK, tree)
    made = [one for one in logit_functions.boundaries(target) if isinstance(one, Boundary)]
    return target, {(one.path.rpartition(".")[2], next(iter(one.settings))): one for one in made}


def test_all_boundaries_answer(loads: Loads) -> None:
    target, boundaries = _bound(loads)
    assert len(boundaries) == 4
    assert answering(boundaries, target) == []


def test_round_trips(loads: Loads) -> None:
    target, boundaries = _bound(loads)
    check_round_trips(target, boundaries.values())


@pytest.mark.parametrize(("rest", "found"), [("0", False), ("1", True)])
@pytest.mark.parametrize("name", ["entropy_from_logits_with_chunking"])
def test_last_chunk(loads: Loads, name: str, rest: str, found: bool) -> None:
    """A last chunk of one token that is left out."""
    target, boundaries = _bound(loads, rest=rest)
    check_verdict(REF001, boundaries[name, "default"], "default", target, found=found)


@pytest.mark.parametrize(("spoiled", "found"), [("pass", False), ("logits.add_(0)", True)])
def test_overwritten_logits(loads: Loads, spoiled: str, found: bool) -> None:
    """A backward pass that overwrites the logits of one chunk, which share their storage with those of the next."""
    target, boundaries = _bound(loads, spoiled=spoiled)
    boundary = boundaries["vocab_parallel_entropy_with_chunking", "backward"]
    check_verdict(RAI001, boundary, "backward", target, found=found)
