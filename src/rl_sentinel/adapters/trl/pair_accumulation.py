"""TRL's pair losses that contain a mean over tokens, under gradient accumulation."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.pair_codecs import as_pairs
from rl_sentinel.adapters.trl.preference_families import CPO_FAMILIES, DPO_FAMILIES, ORPO_FAMILIES, Family
from rl_sentinel.adapters.trl.preferences import (
    CPO,
    CPO_EXPERIMENTAL,
    DPO,
    ORPO,
    ORPO_EXPERIMENTAL,
    PAIRED,
    SCALED,
    families_of,
    trainer_path,
    training_step,
)
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary, Unbound

#: Paths of each trainer by release, and the families whose loss has a mean over the tokens of a micro-batch.
TRAINERS: tuple[tuple[tuple[str, ...], Mapping[str, Family]], ...] = (
    ((DPO,), {"rpo": DPO_FAMILIES["rpo"]}),
    ((CPO, CPO_EXPERIMENTAL), {"default": CPO_FAMILIES["default"]}),
    ((ORPO, ORPO_EXPERIMENTAL), {"default": ORPO_FAMILIES["default"]}),
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the optimizer step of each trainer.

    A trainer that cannot be built is reported by the module of its loss.
    """
    for places, families in TRAINERS:
        for found in families_of(target, trainer_path(target, *places), families):
            if not isinstance(found, Unbound):
                release, name, family = found
                yield from bindable(
                    target, _accumulated(training_step(release, name, replace(family, prompts=1)), name)
                )


def _accumulated(made: Boundary, name: str) -> Boundary:
    (settings,) = made.settings.values()
    return replace(
        made,
        outputs={"loss": made.outputs["loss"]},
        settings={f"{name}, accumulated": settings},
        claims=PAIRED | SCALED,
        reach="gradient_accumulation_steps above 1",
        domain=pairs_of_one_length,
    )


def pairs_of_one_length(batch: Batch) -> Batch:
    """An even number of responses, or a single one, that fill the width, with every token trained."""
    pairs = as_pairs(batch)
    if bool(pairs.mask.all()):
        return pairs
    return with_columns(pairs, mask=torch.ones_like(pairs.mask), length=torch.full_like(pairs.length, pairs.width))
