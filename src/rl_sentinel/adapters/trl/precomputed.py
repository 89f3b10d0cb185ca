"""DPO in TRL with reference log-probs of the data set: a training step on rows that carry them."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.preference_families import DPO_FAMILIES
from rl_sentinel.adapters.trl.preference_trainers import train_one_batch
from rl_sentinel.adapters.trl.preferences import DPO, Release, families_of, training_step
from rl_sentinel.adapters.trl.token_model import set_logprobs
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.claims import claims

#: Names of the two columns in the releases.
COLUMNS = (("ref_chosen_logps", "ref_rejected_logps"), ("reference_chosen_logps", "reference_rejected_logps"))

#: Where the constructor keeps the setting.
FLAGS = ("precompute_ref_log_probs", "precompute_ref_logps")

#: Log-prob of each token by a model that did not make the columns.
OTHER = -0.75

_STORED = (
    "dpo_config.py, precompute_ref_log_probs: reference log-probs are computed once, and are columns of the data set "
    "that the collator passes on; without a reference model in training"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The step of releases that have the setting."""
    for found in families_of(target, DPO, {"default": DPO_FAMILIES["default"]}):
        if isinstance(found, Unbound):
            continue
        release, name, family = found
        if "precompute_ref_log_probs" in release.known and any(f'"{one[0]}"' in release.source for one in COLUMNS):
            yield from bindable(target, _stored(release, training_step(release, name, family)))


def _stored(release: Release, made: Boundary) -> Boundary:
    before, step = made.steps
    (settings,) = made.settings.values()
    names = next(one for one in COLUMNS if f'"{one[0]}"' in release.source)
    arguments = {**step.arguments, "names": Constant(names)}
    return replace(
        made,
        steps=(before, replace(step, call=learn_from_columns, arguments=arguments)),
        outputs={"loss": made.outputs["loss"]},
        settings={"precomputed reference": settings},
        claims=made.claims | claims(_STORED),
        reach="precompute_ref_log_probs=True",
    )


def learn_from_columns(  # noqa: PLR0913 - as the step without columns, and their names
    entry: Callable[..., Any],
    learner: Any,  # noqa: ANN401 - a trainer
    features: list[dict[str, Any]],
    logprobs: Tensor,
    ref_logprobs: Tensor,
    names: tuple[str, str],
) -> Tensor:
    """The loss of one micro-batch whose rows have the reference log-probs of both responses in columns ``names``."""
    sums = ref_logprobs.sum(1).tolist()
    rows = [{**one, **dict(zip(names, sums[2 * n : 2 * n + 2], strict=True))} for n, one in enumerate(features)]
    learner.args.precompute_ref_log_probs = True
    for name in FLAGS:
        if hasattr(learner, name):
            setattr(learner, name, True)
    if getattr(learner, "_signature_columns", "") is None and "_set_signature_columns_if_needed" in vars(type(learner)):
        learner._set_signature_columns_if_needed()  # noqa: SLF001
        kept = learner._signature_columns  # noqa: SLF001
        rows = [{name: value for name, value in row.items() if name in kept} for row in rows]
    set_logprobs(learner.model, logprobs)
    if learner.ref_model is not None:  # a step that asks a model for what the columns hold gets another answer
        set_logprobs(learner.ref_model, torch.full_like(logprobs, OTHER))
    return train_one_batch(entry, learner, learner.data_collator(rows))
