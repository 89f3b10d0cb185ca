"""SkyRL's off-policy correction: weights and masks that its losses apply."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Scope
from rl_sentinel.core.errors import Unbindable
from rl_sentinel.frameworks.skyrl.batches import algorithm, back, right
from rl_sentinel.frameworks.target import Target

PATH = "skyrl.backends.skyrl_train.utils.off_policy_correction_utils.compute_off_policy_correction"

#: Name -> settings of the section, and the scope of its weight and of its decision.
FAMILIES: Mapping[str, tuple[Settings, Scope]] = {
    "token weight": ({"tis_ratio_type": "token"}, "token"),
    "sequence weight": ({"tis_ratio_type": "sequence"}, "sequence"),
    "geometric mask": ({"sequence_mask_metric": "geometric"}, "sequence"),
    "product mask": ({"sequence_mask_metric": "product"}, "sequence"),
    "outlier mask": (
        {"outlier_token_is_threshold_low": 0.5, "outlier_token_is_threshold_high": 2.0},
        "sequence",
    ),
    "token mask": ({"token_mask_is_threshold_low": 0.5, "token_mask_is_threshold_high": 2.0}, "token"),
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """One boundary per family."""
    for name, (settings, scope) in FAMILIES.items():
        try:
            target.find(PATH)
            yield _boundary(target, name, settings, scope)
        except Unbindable as why:
            yield Unbound(PATH, "correct", str(why))


def _boundary(target: Target, name: str, settings: Settings, scope: Scope) -> Boundary:
    weighs = "tis_ratio_type" in settings

    def call(batch: Batch, knobs: Settings) -> Mapping[str, Tensor]:
        section = algorithm(target, {f"off_policy_correction.{k}": v for k, v in knobs.items()})
        mask = right(batch, "mask").float()
        given = (right(batch, "old_logprob"), right(batch, "rollout_logprob"), mask)
        weight, _, kept = target.call(PATH, *given, section.off_policy_correction)
        keep = torch.where(mask > 0, kept, torch.ones_like(kept))
        if not weighs:
            return {"keep": back(keep, batch)}
        return {"weight": back(weight.expand_as(mask), batch), "keep": back(keep, batch)}

    algorithm(target, {f"off_policy_correction.{k}": v for k, v in settings.items()})
    outputs = {"keep": Output("B T", "", "keep", scope)}
    if weighs:
        outputs = {"weight": Output("B T", "ratio", "weight", scope)} | outputs
    return Boundary(
        path=PATH,
        stage="correct",
        call=call,
        reads=frozenset({"old_logprob", "rollout_logprob", "mask", "length"}),
        outputs=outputs,
        settings={name: settings},
        reach=", ".join(f"trainer.algorithm.off_policy_correction.{k}={v}" for k, v in settings.items()),
    )
