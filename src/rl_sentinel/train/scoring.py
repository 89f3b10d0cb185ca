"""Log-probs of sampled tokens under a model, at the places of the response."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rl_sentinel.signal.align import response_aligned
from rl_sentinel.signal.logprob import logprobs
from rl_sentinel.signal.rollout import Laid
from rl_sentinel.train.policy import Policy
from rl_sentinel.train.ranks import ALONE, Ranks


def scored(policy: Policy, laid: Laid, rows: Int[Tensor, " n"], *, temperature: float) -> Float[Tensor, "n T"]:
    """Log-probs in nats of the responses of some rows; exactly 0 behind a response. Its gradient is the policy's.

    Rows are cut to the longest among them before the model reads them.
    """
    prompt_length, length = laid.prompt_length[rows], laid.length[rows]
    end = prompt_length + length
    token = laid.token[rows, : int(end.max())]
    place = torch.arange(token.shape[1] - 1, device=token.device)
    wanted = (place >= prompt_length.unsqueeze(1) - 1) & (place < end.unsqueeze(1) - 1)
    found = logprobs(policy(token)[:, :-1], token[:, 1:], mask=wanted, temperature=temperature)
    width = laid.rollout.mask.shape[1]  # type: ignore[union-attr]  # laid out padded
    return response_aligned(found, prompt_length=prompt_length, length=length, width=width, predicts_next=True)


@torch.no_grad()
def scored_all(
    policy: Policy, laid: Laid, *, temperature: float, size: int, ranks: Ranks = ALONE
) -> Float[Tensor, "B T"]:
    """The same for all rows, some at a time on each rank, without a gradient."""
    rows = torch.arange(len(laid.length), device=laid.token.device)
    found = torch.zeros(laid.rollout.mask.shape, device=laid.token.device)  # type: ignore[union-attr]  # as above
    for part in ranks.mine(rows, size=size):
        reads = part if len(part) else rows[:1]  # a rank without rows goes through the model all the same
        found[part] = scored(policy, laid, reads, temperature=temperature)[: len(part)]
    return ranks.added(found)
