"""Sets of choices under which the signal path is audited: estimators, rejections, weights, KL, packed columns."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rl_sentinel.adapters.library.arguments import NUMBERS, SIGNAL, arguments
from rl_sentinel.adapters.library.boundary_builder import ADVANTAGE, REQUIRES_GRAD, TOKEN_ADVANTAGE
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output, Stage
from rl_sentinel.core.case import Scalar, Settings

#: Builds the choices of a path from the target, the batch and the settings.
Choose = Callable[[Target, Batch, Settings], Mapping[str, object]]

#: Bounds of k1 against the sampler per token, and of its mean per row, in nats per token.
_BOUNDS: Settings = {"estimator": "k1", "low": -0.4, "high": 0.4}
_ROWS = {**_BOUNDS, "over": "mean"}

_POLICIES = ("old_logprob", "rollout_logprob")

_GROUPED = {"scope": "group", "grouping": "id", "credit": "outcome", "masked": "yes", "baseline": "relative"}
_KEPT = {**_GROUPED, "algorithm": "centered outcomes of kept tokens"}
_MASKED = {"masked": "yes", "masked-slots": "any"}

_DISCOUNTED: Settings = {n: NUMBERS[n] for n in ("discount", "decay")}


@dataclass(frozen=True, slots=True, kw_only=True)
class PathChoices:
    """One set of choices for the signal path.

    Attributes:
        name: the name of the setting.
        choose: builds the choices.
        columns: the columns of the rollout besides reward, group and mask.
        unread: the columns that do not affect the outputs.
        outputs: the outputs of the path.
        settings: the numbers of the choices.
        claims: what the outputs must satisfy, besides the claims of ``module``.
        module: the estimator module whose claims apply; empty for none.
        packed: whether the rollout is packed.
        old_is_current: whether the current log-probs are passed as the old log-probs.
        stage: the stage of the boundary.
    """

    name: str
    choose: Choose
    columns: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    outputs: Mapping[str, Output]
    settings: Settings = field(default_factory=dict[str, Scalar])
    claims: Mapping[str, str] = field(default_factory=dict[str, str])
    module: str = ""
    packed: bool = False
    old_is_current: bool = False
    stage: Stage = "advantage"


def _find(target: Target, name: str, **numbers: Any) -> Any:  # noqa: ANN401 - a function under audit
    function = target.find(f"{SIGNAL}.{name}")
    return partial(function, **numbers) if numbers else function


def grpo(target: Target, *_: object) -> dict[str, object]:
    """GRPO's estimator as the only choice; advantages are not divided by the standard deviation."""
    return {"estimator": _find(target, "advantage.grpo.advantages", standardize=False, epsilon=0.0)}


def _suppress_unscored(target: Target, *_: object) -> dict[str, object]:
    choices = {"mean": "group", "deviation": "group", "leave_one_out": False, "biased": False, "epsilon": 1e-6}
    by = target.call(f"{SIGNAL}.normalization.Normalization", **choices)
    return {"estimator": _find(target, "advantage.rloo.advantages"), "normalization": by}


def _rows_kept(target: Target, settings: Settings) -> Any:  # noqa: ANN401 - a function under audit
    return _find(target, "correction.rejection.rows_kept", **{name: settings[name] for name in _ROWS})


def _reject_rows(target: Target, _: Batch, settings: Settings) -> dict[str, object]:
    return {**grpo(target), "rejections": (_rows_kept(target, settings),)}


def _reject_tokens_and_rows(target: Target, _: Batch, settings: Settings) -> dict[str, object]:
    tokens = _find(target, "correction.rejection.tokens_kept", **_BOUNDS)
    return {**grpo(target), "rejections": (tokens, _rows_kept(target, settings))}


def _weight_by_ratio(target: Target, _: Batch, settings: Settings) -> dict[str, object]:
    return {
        "estimator": _find(target, "advantage.rloo.advantages"),
        "weight": _find(target, f"correction.weights.{settings['level']}_weights"),
        "bounds": (_find(target, "correction.bounds.truncated", high=settings["high"]),),
    }


def _gdpo(target: Target, batch: Batch, settings: Settings) -> dict[str, object]:
    weight = arguments(_find(target, "advantage.gdpo.advantages"), batch)["weight"]
    return {"estimator": _find(target, "advantage.gdpo.advantages", weight=weight, **settings)}


def _gae_with_kl(target: Target, _: Batch, settings: Settings) -> dict[str, object]:
    numbers = {n: settings[n] for n in _DISCOUNTED}
    kl = {"kl": _find(target, "kl.k1"), "kl_coefficient": settings["coefficient"]}
    return {"estimator": _find(target, "advantage.gae.advantages", **numbers), **kl}


def _estimator(name: str) -> Choose:
    return lambda target, _, settings: {
        "estimator": _find(
            target, f"advantage.{name}.advantages", **{n: settings[n] for n in _DISCOUNTED if n in settings}
        )
    }


_BOTH_REJECTIONS = "tokens and rows rejected"
_OUT: Mapping[str, Output] = {"advantage": ADVANTAGE}
_WITH_RETURNS = {"advantage": TOKEN_ADVANTAGE, "returns": Output("B T", "reward", "returns")}
_KL_CLAIMS = {"scope": "sequence", "credit": "temporal", "knob:discount": "0.5|1.0", "knob:decay": "0.0|1.0"}

PATHS: tuple[PathChoices, ...] = (
    PathChoices(
        name="grpo of trajectories",
        choose=grpo,
        columns=("trajectory", "last_step"),
        outputs=_OUT,
        claims={**_GROUPED, "trajectories": "step-wise"},
    ),
    PathChoices(
        name="suppressed",
        choose=_suppress_unscored,
        columns=("scored",),
        outputs=_OUT,
        claims={**_GROUPED, "suppresses": "unscored"},
    ),
    PathChoices(name="rejected", choose=_reject_rows, columns=_POLICIES, outputs=_OUT, settings=_ROWS, claims=_KEPT),
    *(
        PathChoices(
            name=f"{_BOTH_REJECTIONS}, packed" if packed else _BOTH_REJECTIONS,
            choose=_reject_tokens_and_rows,
            columns=_POLICIES,
            outputs=_OUT,
            settings={**_ROWS, "tokens": True},
            claims=_KEPT,
            packed=packed,
        )
        for packed in (False, True)
    ),
    *(
        PathChoices(
            name=f"weights of a {level}",
            choose=_weight_by_ratio,
            columns=_POLICIES,
            unread=("reward", "group"),
            outputs={"weight": output, "requires_grad": REQUIRES_GRAD},
            settings={"level": level, "high": NUMBERS["high"]},
            claims={"masked": "yes", "weights": "constant", **({"algorithm": "truncated"} if level == "token" else {})},
            old_is_current=True,
            stage="correct",
        )
        for level, output in (
            ("token", Output("B T", "ratio", "weight", "token")),
            ("sequence", Output("B T", "ratio", "weight", "sequence")),
        )
    ),
    PathChoices(
        name="gdpo of parts",
        choose=_gdpo,
        columns=("reward_parts",),
        unread=("reward",),
        outputs=_OUT,
        settings={"epsilon": NUMBERS["epsilon"]},
        module="gdpo",
    ),
    PathChoices(
        name="gae with a kl",
        choose=_gae_with_kl,
        columns=("old_logprob", "ref_logprob", "value", "token_reward"),
        unread=("group",),
        outputs={"advantage": TOKEN_ADVANTAGE, "kl": Output("B T", "nats", "kl.k1")},
        settings={**_DISCOUNTED, "coefficient": NUMBERS["coefficient"]},
        claims={**_MASKED, **_KL_CLAIMS, "knob:coefficient": "0.1|0.5"},
    ),
    *(
        PathChoices(
            name=f"{name.replace('_', ' ')}, {'packed' if packed else 'padded'}",
            choose=_estimator(name),
            columns=columns,
            outputs=_WITH_RETURNS,
            settings=_DISCOUNTED,
            module=name,
            packed=packed,
        )
        for name, columns in (("gae", ("token_reward", "value")), ("turn_level_gae", ("token_reward", "value", "turn")))
        for packed in (False, True)
    ),
    PathChoices(
        name="optimal token baseline",
        choose=_estimator("optimal_token_baseline"),
        columns=("old_logprob", "pi_squared", "token_reward"),
        outputs={"advantage": TOKEN_ADVANTAGE},
        module="optimal_token_baseline",
        old_is_current=True,
    ),
)
