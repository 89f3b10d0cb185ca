"""AReaL's layout: full sequences, padded at the right, one dictionary of tensors."""

import torch
from torch import Tensor

from rl_sentinel.adapters.layout import put_full
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.errors import NotApplicable


def spare(batch: Batch) -> int:
    """Columns of padding to add, so that the rows that fill the width are those without an EOS.

    AReaL takes a sequence for unfinished if it is as long as the widest one.

    Raises:
        NotApplicable: if a row that ended is as long as one that did not.
    """
    if bool(batch.scored.all()):
        return 1
    width = int(batch.prompt_length.max()) + batch.width
    full = batch.prompt_length + batch.length == width
    if bool((full & batch.scored).any()):
        raise NotApplicable("a scored row is as long as an unscored one: AReaL tells them apart by length")
    return 0


def sequences(batch: Batch) -> dict[str, Tensor]:
    """The batch as the actor gets it after rollout and the reference's forward pass.

    Log-probs of the sampler stand at their own token, those of the trainer's own forward passes
    (and values) at the token before.
    """
    extra = spare(batch)
    total = (batch.prompt_length + batch.length).unsqueeze(1)
    token = put_full(batch.token, batch, extra)
    return {
        "input_ids": token,
        "attention_mask": torch.arange(token.shape[1]) < total,
        "loss_mask": put_full(batch.mask.to(torch.int64), batch, extra),
        "rewards": batch.reward,
        "logprobs": put_full(batch.old_logprob, batch, extra),
        "ref_logp": put_full(batch.ref_logprob, batch, extra, shift=1),
    }


def group_size(batch: Batch) -> int:
    """Rows per group, where groups stand together and are of one size.

    Raises:
        NotApplicable: elsewhere, since AReaL knows its groups by position alone.
    """
    labels, sizes = torch.unique_consecutive(batch.group, return_counts=True)
    if len(labels) != len(set(labels.tolist())) or len(set(sizes.tolist())) != 1:
        raise NotApplicable("groups are not of one size and together: AReaL groups by position")
    return int(sizes[0])
