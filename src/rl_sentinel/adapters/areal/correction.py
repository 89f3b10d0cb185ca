"""AReaL's rejection sampling: the mask of accepted tokens, and their importance weights."""

from collections.abc import Iterator, Mapping
from math import log

from rl_sentinel.adapters.areal.arguments import PACKED, REJECTION, packed, rejection
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import CumulativeLengths
from rl_sentinel.adapters.kit.result_forms import KeptMask
from rl_sentinel.adapters.kit.sequences import PackedSequence
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, Scope, claims

PATH = "areal.utils.functional.apply_rejection_sampling"

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


_KEEP = claims(
    "functional.py, apply_rejection_sampling, docstring and comments: a token or sequence is rejected where the ratio "
    "of the proximal to the behavior policy, geometric over a sequence, or their divergence is out of bounds",
    output_algorithms={"keep": "kept against the sampler"},
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """One boundary for each entry of :data:`FAMILIES`; no boundary in releases without rejection sampling."""
    if not target.has(REJECTION):
        return
    if not target.has(PATH):
        yield Unbound(PATH, "correct", f"{PATH} is absent, but {REJECTION} configures it")
        return
    yield from bindable(target, *(_boundary(name, settings) for name, settings in FAMILIES.items()))


def _neutral(settings: Settings) -> Settings:
    """Estimator, reduction and bounds, as formulas name them; empty if no formula covers them.

    In formulas, k1 from the sampler to the policy is minus the log-ratio; AReaL's k1 is the log-ratio itself. AReaL's
    k3 estimates the KL in the opposite direction.
    """
    metric, low, high = settings["metric"], settings.get("lower"), float(str(settings["upper"]))
    over: Settings = {"over": settings["agg"]} if "agg" in settings else {}
    if metric == "kl_k2":
        return {"estimator": "k2", "high": high, **over}
    if metric not in ("ratio", "kl_k1") or low is None:
        return {}
    ends = [log(float(x)) if metric == "ratio" else float(x) for x in (str(low), high)]
    return {"estimator": "k1", "low": -ends[1], "high": -ends[0], **over}


def _boundary(name: str, settings: Settings) -> Boundary:
    sequence = settings["level"] == "sequence"
    scope: Scope = "sequence" if sequence else "token"
    weight_scope: Scope = "sequence" if sequence and settings["metric"] == "ratio" else "token"
    result, form = Use("result"), PackedSequence(shift=1)
    weight = Output("B T", "ratio", "weight", weight_scope, at=result.attribute("behave_imp_weight"), form=form)
    outputs = {"weight": weight}
    if settings.get("action", "mask") == "mask":
        outputs["keep"] = Output("B T", "", "keep", scope, at=result.attribute("loss_mask"), form=KeptMask(form))
    neutral = _neutral(settings) if "keep" in outputs else {}
    return one_call(
        path=PATH,
        stage="correct",
        call=PATH,
        name="result",
        arguments={
            "proximal_logprobs": packed("old_logprob"),
            "old_logprobs": packed("rollout_logprob"),
            "loss_mask": packed("mask"),
            "cu_seqlens": CumulativeLengths("total"),
            "config": rejection(settings),
        },
        produced_by=dict.fromkeys(("proximal_logprobs", "old_logprobs", "loss_mask", "cu_seqlens"), PACKED),
        unused=frozenset({"length", "prompt_length"}),
        outputs=outputs,
        settings={name: {**settings, **neutral}},
        claims=_KEEP if neutral else Claims(),
        reach=", ".join(f"actor.rejection_sampling.{k}={v}" for k, v in settings.items()),
    )
