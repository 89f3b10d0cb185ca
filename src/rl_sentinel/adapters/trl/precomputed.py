"""TRL's DPO and KTO with precomputed reference log-probs: a training step on rows that contain them as columns."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.kto import KTO, labeled_step
from rl_sentinel.adapters.trl.preference_families import DPO_FAMILIES, KTO_FAMILIES
from rl_sentinel.adapters.trl.preference_trainers import train_one_batch
from rl_sentinel.adapters.trl.preferences import DPO, families_of, training_step
from rl_sentinel.adapters.trl.token_model import set_logprobs
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.claims import claims

#: Names of the two columns in the releases.
COLUMNS = (("ref_chosen_logps", "ref_rejected_logps"), ("reference_chosen_logps", "reference_rejected_logps"))

#: Names of KTO's two columns: of the response, and of the mismatched one.
KTO_COLUMNS = ("ref_logps", "ref_KL_logps")

#: The method that computes the columns for a batch, with a model.
COMPUTE = "compute_ref_log_probs"

#: Attributes in which the constructor stores the setting.
FLAGS = ("precompute_ref_log_probs", "precompute_ref_logps")

#: Log-prob of each token under a model other than the one that computed the columns.
OTHER = -0.75

_STORED = (
    "dpo_config.py, precompute_ref_log_probs: reference log-probs are computed once, and are columns of the data set "
    "that the collator passes on; without a reference model in training"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the training step with precomputed reference log-probs, in releases with this setting."""
    for found in families_of(target, DPO, {"default": DPO_FAMILIES["default"]}):
        if isinstance(found, Unbound):
            continue
        release, name, family = found
        if "precompute_ref_log_probs" in release.known and any(f'"{one[0]}"' in release.source for one in COLUMNS):
            columns = next(one for one in COLUMNS if f'"{one[0]}"' in release.source)
            yield from bindable(target, _stored(training_step(release, name, family), columns))
    for found in families_of(target, KTO, {"default": KTO_FAMILIES["default"]}):
        if isinstance(found, Unbound):
            continue
        release, name, family = found
        if "precompute_ref_log_probs" in release.known and f'"{KTO_COLUMNS[0]}"' in release.source:
            made = labeled_step(release, name, family, learn_from_columns, _STORED)
            yield from bindable(target, _stored(made, KTO_COLUMNS))


def _stored(made: Boundary, names: tuple[str, str]) -> Boundary:
    before, step = made.steps
    (settings,) = made.settings.values()
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
    """Train on one micro-batch whose rows contain the reference log-probs in columns ``names``, and return the loss.

    If the trainer has a reference model, and its method has a ``model`` parameter, the method computes the columns.
    """
    if learner.ref_model is not None:
        set_logprobs(learner.ref_model, ref_logprobs)
    rows = [
        {**one, **columns}
        for one, columns in zip(features, _columns(learner, features, ref_logprobs, names), strict=True)
    ]
    learner.args.precompute_ref_log_probs = True
    for name in FLAGS:
        if hasattr(learner, name):
            setattr(learner, name, True)
    if getattr(learner, "_signature_columns", "") is None and "_set_signature_columns_if_needed" in vars(type(learner)):
        learner._set_signature_columns_if_needed()  # noqa: SLF001
        kept = learner._signature_columns  # noqa: SLF001
        rows = [{name: value for name, value in row.items() if name in kept} for row in rows]
    set_logprobs(learner.model, logprobs)
    if learner.ref_model is not None:  # a step that ignores the columns gets other log-probs
        set_logprobs(learner.ref_model, torch.full_like(logprobs, OTHER))
    return train_one_batch(entry, learner, learner.data_collator(rows))


def _columns(
    learner: Any,  # noqa: ANN401 - a trainer
    features: list[dict[str, Any]],
    ref_logprobs: Tensor,
    names: tuple[str, str],
) -> list[dict[str, float]]:
    """The reference columns of each row, computed by the trainer if it has such a method, else summed per response."""
    compute = getattr(learner, COMPUTE, None)
    if compute is not None and learner.ref_model is not None and "model" in inspect.signature(compute).parameters:
        computed = compute(learner.ref_model, learner.data_collator(features))
        found = {name: values.tolist() for name, values in zip(names, computed, strict=True) if values is not None}
    else:
        sums = ref_logprobs.sum(1)
        found = dict(zip(names, (sums[::2].tolist(), sums[1::2].tolist()), strict=True))
    return [{name: values[row] for name, values in found.items()} for row in range(len(features))]
