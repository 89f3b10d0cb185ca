"""Boundaries of verl's metrics of the mismatch between sampler and trained policy."""

import inspect
from collections.abc import Iterator, Mapping

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.result_forms import Detached
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import importance_weights
from rl_sentinel.adapters.verl.arguments import MASK, MASK_PRODUCER
from rl_sentinel.adapters.verl.correction import BOTH, MODULE, log_metrics, neutral_options, rejections, supports
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.errors import Absent, Unbindable

GAP = f"{MODULE}.compute_offpolicy_metrics"
EARLY_GAP = f"{importance_weights.MODULE}.compute_mismatch_metrics"

_EARLY = "mismatch_"

SECTION = "algorithm.rollout_correction"

#: Logged name -> the quantity that it promises, over "valid tokens" or over sequences with a valid token.
GAPS: Mapping[str, str] = {
    "kl": "kl.k1",
    "k3_kl": "kl.k3",
    "training_ppl": "perplexity.mean",
    "training_log_ppl": "log_perplexity.mean",
    "rollout_ppl": "perplexity.mean",
    "rollout_log_ppl": "log_perplexity.mean",
    "log_ppl_diff": "log_perplexity_gap.mean",
    "log_ppl_abs_diff": "log_perplexity_gap.absolute",
    "log_ppl_diff_max": "log_perplexity_gap.max",
    "log_ppl_diff_min": "log_perplexity_gap.min",
    "ppl_ratio": "perplexity_ratio.mean",
    "chi2_token": "chi_square.mean",
    "chi2_seq": "row_chi_square.mean",
}

_SAMPLED, _TRAINED = "rollout_logprob against old_logprob", "old_logprob against rollout_logprob"

#: Logged name -> the two policies that it compares.
PAIRS: Mapping[str, str] = {
    "kl": _SAMPLED,
    "k3_kl": _SAMPLED,
    "training_ppl": "of old_logprob",
    "training_log_ppl": "of old_logprob",
    "rollout_ppl": "of rollout_logprob",
    "rollout_log_ppl": "of rollout_logprob",
    "log_ppl_diff": _TRAINED,
    "log_ppl_abs_diff": _TRAINED,
    "log_ppl_diff_max": _TRAINED,
    "log_ppl_diff_min": _TRAINED,
    "ppl_ratio": _TRAINED,
    "chi2_token": _TRAINED,
    "chi2_seq": _TRAINED,
}

#: Logged name -> quantity, for importance weights.
WEIGHTS: Mapping[str, str] = {
    "rollout_is_mean": "importance.mean",
    "rollout_is_max": "importance.max",
    "rollout_is_min": "importance.min",
    "rollout_is_eff_sample_size": "effective_share",
    "rollout_is_ratio_fraction_high": "fraction",
    "rollout_is_ratio_fraction_low": "fraction",
    "rollout_is_seq_mean": "importance.mean",
    "rollout_is_seq_max": "importance.max",
    "rollout_is_seq_min": "importance.min",
    "rollout_is_seq_max_deviation": "importance.max",
    "rollout_is_seq_fraction_high": "fraction",
    "rollout_is_seq_fraction_low": "fraction",
}

#: Logged name -> quantity, for rejections; ``{}`` is the name of the option.
REJECTIONS: Mapping[str, str] = {
    "rollout_rs_{}_mean": "distance.mean",
    "rollout_rs_{}_max": "distance.max",
    "rollout_rs_{}_min": "distance.min",
    "rollout_rs_{}_fraction_high": "too_far.mean",
    "rollout_rs_{}_fraction_low": "too_near.mean",
    "rollout_rs_{}_masked_fraction": "rejected.mean",
    "rollout_rs_{}_seq_masked_fraction": "rejected_rows.mean",
    "rollout_rs_masked_fraction": "rejected.mean",
    "rollout_rs_seq_masked_fraction": "fraction",
}

#: Settings under which the metrics of weights and rejections are logged.
FAMILIES: Mapping[str, tuple[Settings, Mapping[str, str]]] = {
    "token weights": ({"rollout_is": "token", "rollout_is_threshold": 2.0}, WEIGHTS),
    "sequence weights": ({"rollout_is": "sequence", "rollout_is_threshold": 2.0}, WEIGHTS),
    "sequence rejection": ({"rollout_rs": "seq_mean_k1", "rollout_rs_threshold": "0.25_2.0"}, REJECTIONS),
}

_POPULATION = "rollout_corr_helper.py, docstrings: valid tokens, and sequences with at least one valid token"

_DIRECTION = (
    "compute_offpolicy_metrics, docstring: KL of the rollout's from the training policy, ratio of training to rollout "
    "perplexity, whose log is log_ppl_diff; comment: the chi-square squares training over rollout"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the mismatch metrics alone, then the metrics of each kind of weight and rejection."""
    try:
        target.find(BOTH)
    except Unbindable as why:
        if not isinstance(why, Absent):
            yield Unbound.because(GAP, "metric", why)
        elif target.has(importance_weights.WEIGHED):
            yield from bindable(target, *_of_importance_weights(target))
        return
    source = inspect.getsource(target.module(MODULE))
    if target.has(GAP):
        names = {name: quantity for name, quantity in GAPS.items() if f'metrics["{name}"]' in source}
        yield from bindable(target, _boundary(_gap(), _numbers(names), "default", {}))
    for family, (knobs, metrics) in FAMILIES.items():
        if not supports(target, knobs) or ("rollout_rs" in knobs and knobs["rollout_rs"] not in rejections(target)):
            continue
        option = str(knobs.get("rollout_rs"))
        names = {n.format(option): q for n, q in metrics.items() if _written(n, source)}
        if names:
            neutral = neutral_options(knobs) if "rollout_rs" in knobs else {}
            step, outputs = log_metrics(tuple(names), names, knobs)
            yield from bindable(target, _boundary(step, outputs, f"metrics of {family}", {**knobs, **neutral}))


def _of_importance_weights(target: Target) -> Iterator[Boundary]:
    """Boundaries of the metrics before rollout correction, whose names have a prefix."""
    source = inspect.getsource(target.module(importance_weights.MODULE))
    names = {name: quantity for name, quantity in GAPS.items() if f'metrics["{_EARLY}{name}"]' in source}
    columns = {"old_log_prob": Column("old_logprob"), "rollout_log_prob": Column("rollout_logprob")}
    gap = Step(
        call=EARLY_GAP,
        name="metrics",
        arguments={**columns, "response_mask": MASK},
        produced_by={"response_mask": MASK_PRODUCER},
    )
    yield _boundary(gap, _numbers(names, _EARLY), "default", {})
    for level in ("token", "sequence"):
        logged = {name: quantity for name, quantity in WEIGHTS.items() if _written(name, source)}
        step, outputs, settings = importance_weights.log_metrics(target, level, logged)
        yield _boundary(step, outputs, f"metrics of {level} weights", settings, "algorithm")


def _written(name: str, source: str) -> bool:
    """Whether the source writes this metric; the prefix may be a variable, as in ``f"{prefix}_mean"``."""
    before, is_open, after = name.partition("{}")
    return f'}}{after}"' in source if is_open else f'"{before}"' in source


def _gap() -> Step:
    columns = {"0": Column("old_logprob"), "1": Column("rollout_logprob"), "2": MASK}
    return Step(call=GAP, name="metrics", arguments=columns, produced_by={"2": MASK_PRODUCER})


def _numbers(names: Mapping[str, str], prefix: str = "") -> dict[str, Output]:
    return {
        name: Output("", "", quantity, over="live", at=Use("metrics")[f"{prefix}{name}"], form=Detached())
        for name, quantity in names.items()
    }


def _boundary(
    step: Step, outputs: Mapping[str, Output], setting: str, knobs: Settings, section: str = SECTION
) -> Boundary:
    return Boundary(
        path=str(step.call),
        stage="metric",
        steps=(step,),
        outputs=outputs,
        settings={setting: knobs},
        claims=claims(_POPULATION, mean=True)
        | claims(_DIRECTION, output_pairs={name: PAIRS[name] for name in outputs if name in PAIRS}),
        reach=", ".join(f"{section}.{k}={v}" for k, v in knobs.items() if k.startswith("rollout_")) or "every run",
    )
