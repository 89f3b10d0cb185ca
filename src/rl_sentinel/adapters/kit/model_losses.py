"""Losses that call a model: prompts padded at the left, and an entropy bonus of the model's logits."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.layout_trial import all_codecs, change_codecs, domain_probe, outputs_on
from rl_sentinel.adapters.kit.roles import role_of
from rl_sentinel.adapters.kit.sequence_model import InputIds, PolicyModel, PromptTokens, SequenceMask
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.claims import Claims, value_of
from rl_sentinel.core.codec import Codec

#: A difference of two losses above this is more than the rounding of log-probs.
_ROUNDING = 1e-6

#: Note on a loss that gets the mask of its prompts.
LEFT_PADDED = "prompts have padding in front, and the model has other log-probs for a row that attends to it"


def entropy_weights(numbers: Mapping[str, object], kept: Mapping[str, object]) -> dict[str, float]:
    """Name in the code -> 0, for each nonzero entropy weight that the user does not state.

    Example:
        >>> from rl_sentinel.adapters.kit.model_losses import entropy_weights
        >>> entropy_weights({"clip_eps": 0.2, "ent_coef": 0.01}, {})
        {'ent_coef': 0.0}
    """
    stated = {role_of(name) for name in kept} | set(kept)
    if {"entropy_weight", "entropy_coeff"} & stated:
        return {}
    return {name: 0.0 for name, x in numbers.items() if role_of(name) == "entropy_weight" and x not in (None, 0)}


def with_entropy_of_model(target: Target, boundary: Boundary) -> Boundary:
    """The boundary, without claims and with the reason, if its loss depends on probabilities of unsampled tokens.

    An entropy bonus is an example: such a loss is not compared with a formula. Another boundary is returned unchanged.
    """
    if boundary.stage != "policy-loss" or not boundary.modeled:
        return boundary
    try:
        reads_others = _reads_others(target, boundary)
    except Exception:  # noqa: BLE001 - a function that fails here is judged by the laws
        return boundary
    if not reads_others:
        return boundary
    why = (
        f"not compared with the formula of {value_of(boundary.claims.algorithm) or 'a loss'}: the loss depends on the "
        "probabilities of tokens that were not sampled, such as an entropy bonus; check that part separately"
    )
    return replace(boundary, claims=Claims(), undecided=why)


def _reads_others(target: Target, boundary: Boundary) -> bool:
    """Whether the loss depends on probabilities of tokens that were not sampled, at advantages of 0.

    An effect that changes with the reference log-probs does not count: it comes from a wrong temperature, which at
    advantages of 0 acts only through a KL.
    """
    (step,) = boundary.steps
    uneven = replace(boundary, steps=(replace(step, arguments=change_codecs(step.arguments, _uneven)),))
    probe = domain_probe(boundary)
    still = with_columns(probe, advantage=torch.zeros_like(probe.advantage))

    def change(batch: Batch) -> Tensor:
        one, other = (outputs_on(target, x, batch)["loss"].detach() for x in (boundary, uneven))
        return one - other

    found = change(still)
    if not bool(found.abs() > _ROUNDING):  # also for NaN
        return False
    moved = change(with_columns(still, ref_logprob=still.ref_logprob - 1))
    return torch.allclose(found, moved, atol=_ROUNDING)


def _uneven(codec: Codec) -> Codec:
    """The codec; for a model, with changed probabilities of the tokens that were not sampled."""
    return replace(codec, uneven=True) if isinstance(codec, PolicyModel) else codec


def with_left_padded_prompts(codecs: Mapping[str, Codec], unread: Collection[str]) -> dict[str, Codec]:
    """The codecs, with left-padded prompts if one of them is a mask of prompts that is not ``unread``."""
    masks = [codec for name, codec in codecs.items() if name not in unread]
    if not any(isinstance(codec, PromptTokens) and codec.mask for codec in all_codecs(masks)):
        return dict(codecs)
    return change_codecs(codecs, _left_padded)


def _left_padded(codec: Codec) -> Codec:
    kinds = PolicyModel | PromptTokens | InputIds | SequenceMask
    return replace(codec, left_padded=True) if isinstance(codec, kinds) else codec
