"""AReaL's rejection sampling: what is kept, and the weight of what is kept."""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Scope
from rl_sentinel.core.errors import Unbindable

PATH = "areal.utils.functional.apply_rejection_sampling"
CONFIG = "areal.api.cli_args.RejectionSamplingConfig"

FAMILIES: Mapping[str, Settings] = {
    "token ratio": {"level": "token", "metric": "ratio", "upper": 2.0, "lower": 0.5},
    "token k2": {"level": "token", "metric": "kl_k2", "upper": 0.5},
    "token k3": {"level": "token", "metric": "kl_k3", "upper": 0.5},
    "sequence ratio, mean": {"level": "sequence", "metric": "ratio", "agg": "mean", "upper": 2.0, "lower": 0.5},
    "sequence ratio, sum": {"level": "sequence", "metric": "ratio", "agg": "sum", "upper": 2.0, "lower": 0.5},
    "sequence k1, mean": {"level": "sequence", "metric": "kl_k1", "agg": "mean", "upper": 0.5, "lower": -0.5},
    "sequence k2, max": {"level": "sequence", "metric": "kl_k2", "agg": "max", "upper": 0.5},
    "sequence k3, sum": {"level": "sequence", "metric": "kl_k3", "agg": "sum", "upper": 0.5},
    "token clamp": {"level": "token", "metric": "ratio", "action": "clamp", "upper": 2.0},
    "sequence clamp": {"level": "sequence", "metric": "ratio", "action": "clamp", "upper": 2.0},
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """One boundary per family; releases before rejection sampling have none."""
    if not target.has(CONFIG):
        return
    try:
        target.find(PATH)
    except Unbindable as why:
        yield Unbound(PATH, "correct", str(why))
        return
    for name, settings in FAMILIES.items():
        yield _boundary(target, name, settings)


def rejection(target: Target, settings: Settings) -> Any:  # noqa: ANN401 - the target's class
    """AReaL's own configuration of the rejection."""
    return target.call(CONFIG, **settings)


def _boundary(target: Target, name: str, settings: Settings) -> Boundary:
    sequence = settings["level"] == "sequence"
    scope: Scope = "sequence" if sequence else "token"
    weight: Scope = "sequence" if sequence and settings["metric"] == "ratio" else "token"
    outputs = {"weight": Output("B T", "ratio", "weight", weight)}
    if settings.get("action", "mask") == "mask":
        outputs["keep"] = Output("B T", "", "keep", scope)

    def call(batch: Batch, knobs: Settings) -> Mapping[str, Tensor]:
        config = rejection(target, knobs)
        given = (batch.old_logprob, batch.rollout_logprob, batch.mask.clone(), None, config)
        answer = target.call(PATH, *given)
        keep = (answer.loss_mask | ~batch.mask).float()
        return {"weight": answer.behave_imp_weight, "keep": keep}

    return Boundary(
        path=PATH,
        stage="correct",
        call=call,
        reads=frozenset({"old_logprob", "rollout_logprob", "mask"}),
        outputs=outputs,
        settings={name: settings},
        reach=", ".join(f"actor.rejection_sampling.{k}={v}" for k, v in settings.items()),
    )
