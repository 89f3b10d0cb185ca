"""Ignore reference log-probs that a user's object holds, if the function does not read them."""

from dataclasses import replace

import torch

from rl_sentinel.adapters.kit.function_arguments import Arguments
from rl_sentinel.adapters.kit.layout_trial import domain_probe, outputs_on
from rl_sentinel.adapters.kit.refused_layouts import codec_paths
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import with_columns
from rl_sentinel.core.boundary import Boundary


def without_unread_reference(target: Target, boundary: Boundary, arguments: Arguments) -> Boundary:
    """The boundary without the reference log-probs, if an object has them and the function ignores them.

    The boundary is unchanged at stages other than ``policy-loss`` and ``advantage``, if the function fails, and if it
    has a KL weight, because it must then read them.
    """
    held = any("." in path and codec.columns == {"ref_logprob"} for path, codec in codec_paths(arguments.codecs))
    output = {"policy-loss": "loss", "advantage": "advantage"}.get(boundary.stage)
    if not held or output is None or "kl_loss_coef" in boundary.settings["default"]:
        return boundary
    batch = domain_probe(boundary)
    moved = with_columns(batch, ref_logprob=batch.ref_logprob - 1)
    try:
        one, other = (outputs_on(target, boundary, x)[output] for x in (batch, moved))
    except Exception:  # noqa: BLE001 - a function that fails here is judged by the laws
        return boundary
    return boundary if not torch.equal(one, other) else replace(boundary, reads=boundary.reads - {"ref_logprob"})
