"""SkyRL's off-policy correction: importance weights and rejection masks of its losses, and the logged numbers."""

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import log

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.configs import Config
from rl_sentinel.adapters.kit.result_forms import OffMask, RowWise
from rl_sentinel.adapters.skyrl.arguments import CONFIG, PRODUCED_BY, Arguments, arguments
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, Scope, claims
from rl_sentinel.core.codec import Inputs
from rl_sentinel.core.errors import Unbindable

MODULE = "skyrl.backends.skyrl_train.utils.off_policy_correction_utils"
PATH = f"{MODULE}.compute_off_policy_correction"

SECTION = "trainer.algorithm.off_policy_correction"

#: A bound in nats that no log-ratio reaches.
_FAR = 100.0

#: Name -> settings of the section, the scope (token or sequence) of the weight or mask, and the settings of its
#: formula, where k1 is minus the log of the ratio. The largest and the smallest token decide for an outlier mask.
FAMILIES: Mapping[str, tuple[Settings, Scope, Settings]] = {
    "token weight": (
        {"tis_ratio_type": "token", "token_tis_ratio_clip_high": 2.0},
        "token",
        {"level": "token", "high": 2.0},
    ),
    "sequence weight": (
        {"tis_ratio_type": "sequence", "sequence_tis_ratio_clip_high": 5.0},
        "sequence",
        {"level": "sequence", "high": 5.0},
    ),
    "geometric mask": (
        {"sequence_mask_metric": "geometric", "geo_mask_low": 0.8, "geo_mask_high": 1.5},
        "sequence",
        {"estimator": "k1", "over": "mean", "low": -log(1.5), "high": -log(0.8)},
    ),
    "product mask": (
        {"sequence_mask_metric": "product", "product_mask_low": 0.5, "product_mask_high": 2.0},
        "sequence",
        {"estimator": "k1", "over": "sum", "low": -log(2.0), "high": log(2.0)},
    ),
    "outlier mask": (  # with weights: in February 2026 the mask alone had no effect
        {
            "outlier_token_is_threshold_low": 0.5,
            "outlier_token_is_threshold_high": 2.0,
            "tis_ratio_type": "token",
            "token_tis_ratio_clip_high": 2.0,
        },
        "sequence",
        {
            "estimator": "k1",
            "over": "max",
            "high": log(2.0),
            "second_estimator": "k1",
            "second_over": "min",
            "second_low": -log(2.0),
            "second_high": _FAR,
        },
    ),
    "token mask": (
        {"token_mask_is_threshold_low": 0.5, "token_mask_is_threshold_high": 2.0},
        "token",
        {"estimator": "k1", "low": -log(2.0), "high": log(2.0)},
    ),
}

_WEIGHT = claims(
    "off_policy_correction_utils.py, compute_tis_ratio, docstring: truncated importance sampling, per token or as the "
    "product of a sequence",
    output_algorithms={"weight": "weight of the sampler"},
)
_KEEP = claims(
    "off_policy_correction_utils.py, docstrings: tokens, or sequences by their geometric mean, product or any token, "
    "whose importance ratio is outside of the bounds are masked",
    output_algorithms={"keep": "kept against the sampler"},
)

#: Family -> the beginning of the names that it logs besides the statistics of the ratio, which all of them log.
_LOGGED_BY: Mapping[str, str] = {
    "token weight": "tis_token_",
    "sequence weight": "tis_seq_",
    "geometric mask": "geo_",
    "product mask": "product_",
    "outlier mask": "outlier_",
    "token mask": "token_mask_",
}
RATIOS = "is_ratio_"

#: Statistics of the ratio. Releases count masked positions in the first two, which must not hide faults of the others.
_STATISTICS: Mapping[str, tuple[str, ...]] = {
    "the ratio": (f"{RATIOS}std", f"{RATIOS}min"),
    "the ratio's mean and maximum": (f"{RATIOS}mean", f"{RATIOS}max"),
}

_PAIR = claims(
    "off_policy_correction_utils.py, compute_off_policy_correction: is_ratio is the exponential of old_log_probs minus "
    "rollout_logprobs",
    output_pairs={f"is_ratio_{s}": "of old_logprob to rollout_logprob" for s in ("mean", "std", "max", "min")},
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of weights, masks and logged metrics for each entry of :data:`FAMILIES`."""
    for name, (settings, scope, formula) in FAMILIES.items():
        section = Config(CONFIG, knobs_at={f"{SECTION}.{setting}": setting for setting in settings}, section=SECTION)
        try:
            section.check(target)
            forms = arguments(target)
            yield from bindable(target, _boundary(name, (settings, formula), scope, section, forms))
            statistics = _STATISTICS if name == next(iter(FAMILIES)) else {}
            for what, starts in {**statistics, name: (_LOGGED_BY[name],)}.items():
                if logged := {n: output for start in starts for n, output in _logged(target, start).items()}:
                    yield from bindable(target, _metrics(what, settings, section, forms, logged))
        except Unbindable as why:
            yield Unbound.because(PATH, "correct", why)


def _logged(target: Target, start: str) -> dict[str, Output]:
    """Logged metrics whose names begin with ``start``: statistics of the ratio, or fractions."""
    words = re.findall(rf"""["']({start}\w*)["'](?:\]|:)""", inspect.getsource(target.module(MODULE)))
    found = {}
    for name in dict.fromkeys(words):
        if start.startswith(RATIOS):
            found[name] = Output("", "ratio", f"ratio.{name.rpartition('_')[2]}")
        elif name.endswith("_ratio"):
            found[name] = Output("", "", "fraction")
    return {name: replace(output, at=Use("result")[1][name]) for name, output in found.items()}


def _metrics(
    name: str, settings: Settings, section: Config, forms: Arguments, logged: Mapping[str, Output]
) -> Boundary:
    return Boundary(
        path=PATH,
        stage="metric",
        steps=(_step(section, forms),),
        outputs=dict(logged),
        settings={f"metrics of {name}": settings},
        claims=_PAIR if set(logged) <= set(_PAIR.output_pairs) else Claims(),
        reach=", ".join(f"{SECTION}.{k}={v}" for k, v in settings.items()),
        requires=(_two_tokens,),
    )


def _two_tokens(inputs: Inputs) -> str:
    """The reason to skip a batch with fewer than two trained tokens, too few for a standard deviation; else empty."""
    return "" if int(inputs.batch.mask.sum()) > 1 else "fewer than two tokens are trained, so there is no deviation"


def _step(section: Config, forms: Arguments) -> Step:
    arguments_ = {
        "old_log_probs": forms.column("old_logprob"),
        "rollout_logprobs": forms.column("rollout_logprob"),
        "loss_mask": forms.loss_mask,
        "off_policy_correction": section,
    }
    return Step(call=PATH, name="result", arguments=arguments_, produced_by={"loss_mask": PRODUCED_BY})


def _boundary(
    name: str, numbers: tuple[Settings, Settings], scope: Scope, section: Config, forms: Arguments
) -> Boundary:
    settings, formula = numbers
    keep = OffMask(forms.form, 1.0)
    outputs = {"keep": Output("B T", "", "keep", scope, at=Use("result")[2], form=keep)}
    if "level" in formula:  # the formula is that of a weight
        weight = Output("B T", "ratio", "weight", scope, at=Use("result")[0], form=RowWise(forms.form))
        outputs = {"weight": weight, **outputs}
    return Boundary(
        path=PATH,
        stage="correct",
        steps=(_step(section, forms),),
        outputs=outputs,
        settings={name: {**settings, **formula}},
        claims=_WEIGHT if "level" in formula else _KEEP,
        reach=", ".join(f"{SECTION}.{k}={v}" for k, v in settings.items()),
    )
