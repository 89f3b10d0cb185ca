"""Boundaries of ``signal.path``: its results for sets of choices, its mini-batches, its off-policy masking."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.library.arguments import NUMBERS, PADDED, SEGMENTS, SIGNAL, arguments, pack
from rl_sentinel.adapters.library.boundary_builder import ADVANTAGE, REQUIRES_GRAD, TOKEN_ADVANTAGE, bind
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary, Output, Stage
from rl_sentinel.core.case import Scalar, Settings

READY = f"{SIGNAL}.path.loss_ready"
APART = f"{SIGNAL}.ready.prompts_apart"
TRUSTED = f"{SIGNAL}.ready.trusted"

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
_THRESHOLD: Settings = {"threshold": NUMBERS["threshold"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Path:
    """One set of choices.

    ``columns`` are part of the rollout besides reward, group and mask. ``module`` is the estimator module whose claims
    apply. With ``old_is_current`` the current log-probs are passed as the old ones.
    """

    name: str
    choose: Choose
    columns: tuple[str, ...] = ()
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


def _grpo(target: Target, *_: object) -> dict[str, object]:
    return {"estimator": _find(target, "advantage.grpo.advantages", standardise=False, epsilon=0.0)}


def _suppress_unscored(target: Target, *_: object) -> dict[str, object]:
    choices = {"mean": "group", "deviation": "group", "leave_one_out": False, "biased": False, "epsilon": 1e-6}
    by = target.call(f"{SIGNAL}.normalisation.Normalisation", **choices)
    return {"estimator": _find(target, "advantage.rloo.advantages"), "normalisation": by}


def _rows_kept(target: Target, settings: Settings) -> Any:  # noqa: ANN401 - a function under audit
    return _find(target, "correction.rejection.rows_kept", **{name: settings[name] for name in _ROWS})


def _reject_rows(target: Target, _: Batch, settings: Settings) -> dict[str, object]:
    return {**_grpo(target), "rejections": (_rows_kept(target, settings),)}


def _reject_tokens_and_rows(target: Target, _: Batch, settings: Settings) -> dict[str, object]:
    tokens = _find(target, "correction.rejection.tokens_kept", **_BOUNDS)
    return {**_grpo(target), "rejections": (tokens, _rows_kept(target, settings))}


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

_PATHS: tuple[_Path, ...] = (
    _Path(
        name="grpo of trajectories",
        choose=_grpo,
        columns=("trajectory", "last_step"),
        outputs=_OUT,
        claims={**_GROUPED, "trajectories": "step-wise"},
    ),
    _Path(
        name="suppressed",
        choose=_suppress_unscored,
        columns=("scored",),
        outputs=_OUT,
        claims={**_GROUPED, "suppresses": "unscored"},
    ),
    _Path(name="rejected", choose=_reject_rows, columns=_POLICIES, outputs=_OUT, settings=_ROWS, claims=_KEPT),
    *(
        _Path(
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
        _Path(
            name=f"weights of a {level}",
            choose=_weight_by_ratio,
            columns=_POLICIES,
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
    _Path(
        name="gdpo of parts",
        choose=_gdpo,
        columns=("reward_parts",),
        outputs=_OUT,
        settings={"epsilon": NUMBERS["epsilon"]},
        module="gdpo",
    ),
    _Path(
        name="gae with a kl",
        choose=_gae_with_kl,
        columns=("old_logprob", "ref_logprob", "value", "token_reward"),
        outputs={"advantage": TOKEN_ADVANTAGE, "kl": Output("B T", "nats", "kl.k1")},
        settings={**_DISCOUNTED, "coefficient": NUMBERS["coefficient"]},
        claims={**_MASKED, **_KL_CLAIMS, "knob:coefficient": "0.1|0.5"},
    ),
    *(
        _Path(
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
    _Path(
        name="optimal token baseline",
        choose=_estimator("optimal_token_baseline"),
        columns=("old_logprob", "pi_squared", "token_reward"),
        outputs={"advantage": TOKEN_ADVANTAGE},
        module="optimal_token_baseline",
        old_is_current=True,
    ),
)


def boundaries(target: Target) -> Iterator[Boundary]:
    """All sets of choices, mini-batches of prompts, and off-policy sequence masking."""
    yield from (_path_boundary(target, path) for path in _PATHS)
    yield bind(
        target,
        f"{READY} -> {APART}",
        "batch",
        _minibatches,
        reads="reward group mask",
        outputs={"reward": Output("B", "reward", "reward")},
        settings={"one prompt": {"prompts": 1}, "two prompts": {"prompts": 2}},
    )
    rejected = {"rejected": Output("", "", "rejected_fraction", over="live")}
    knob = {**_MASKED, "knob:threshold": "0.01|0.5"}
    yield bind(
        target,
        f"{READY} -> {TRUSTED}",
        "correct",
        _mask_off_policy,
        reads="logprob old_logprob advantage mask",
        outputs={"keep": Output("B T", "", "keep", "sequence"), **rejected},
        settings={"default": _THRESHOLD},
        claims=knob,
    )
    for stored in ("padded", "packed"):
        yield bind(
            target,
            f"{READY} -> {TRUSTED}",
            "correct",
            _mask_off_policy_by_outcome(packed=stored == "packed"),
            reads="logprob old_logprob reward group mask length",
            outputs={"keep": Output("B", "", "keep", "sequence"), **rejected},
            settings={f"outcomes, {stored}": {**_THRESHOLD, "per_response": True}},
            claims={
                **knob,
                "algorithm:keep": "off policy sequences kept",
                "algorithm:rejected": "rejected fraction",
            },
        )


def loss_ready(
    target: Target, batch: Batch, columns: tuple[str, ...], choices: Mapping[str, object], *, packed: bool = False
) -> Any:  # noqa: ANN401 - a class under audit
    """The result of the path for a rollout with these columns besides reward, group and mask."""
    own = {"last" if n == "last_step" else n: getattr(batch, n) for n in columns}
    plain: dict[str, Any] = {"reward": batch.reward, "group": batch.group, "mask": batch.mask}
    if packed:
        own = {n: c if n == "reward_parts" else pack(target, c, batch) for n, c in own.items()}
        plain["mask"] = target.call(SEGMENTS, pack(target, batch.mask, batch), batch.length)
    rollout = target.call(f"{SIGNAL}.rollout.Rollout", **plain, **own)
    return target.call(READY, rollout, by=target.call(f"{SIGNAL}.path.Choices", **choices))


def _path_boundary(target: Target, path: _Path) -> Boundary:
    claims = target.find(f"{SIGNAL}.advantage.{path.module}.CLAIMS") if path.module else {}
    temporal = "value" in path.columns

    def compute(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        own = with_columns(batch, old_logprob=batch.logprob) if path.old_is_current else batch
        choices = path.choose(target, batch, settings)
        ready = loss_ready(target, own, path.columns, choices, packed=path.packed)
        if path.stage == "correct":
            return {"weight": ready.weight.detach(), "requires_grad": torch.tensor(float(ready.weight.requires_grad))}
        outputs = {n: getattr(ready, n) for n in path.outputs}
        if path.packed and temporal:
            layout = {"length": batch.length, "width": batch.width, "fill": 0.0}
            outputs = {n: target.call(PADDED, x, **layout) for n, x in outputs.items()}
        return outputs

    reads = {*path.columns, "reward", "group", "mask"}
    if path.packed:
        reads |= {"length"}
    if path.old_is_current:
        reads = (reads - {"old_logprob"}) | {"logprob"}
    if path.stage == "correct":
        reads -= {"reward", "group"}
    if path.name == "gdpo of parts":
        reads -= {"reward"}
    if path.name == "gae with a kl":
        reads -= {"group"}
    return bind(
        target,
        f"{READY}.weight" if path.stage == "correct" else READY,
        path.stage,
        compute,
        reads=" ".join(reads),
        outputs=path.outputs,
        settings={path.name: path.settings or {"choices": path.name}},
        claims={"masked-slots": "any", **claims, **path.claims},
        claims_of=READY,
    )


def _minibatches(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
    whole = loss_ready(target, batch, (), _grpo(target))
    reward = torch.zeros_like(batch.reward)
    for part in target.call(APART, whole, prompts=settings["prompts"], generator=None):
        reward[torch.isin(batch.group, part.group)] = part.reward
    return {"reward": reward}


def _mask_off_policy(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
    """Off-policy sequence masking with one advantage per token."""
    whole = loss_ready(target, batch, (), {"estimator": lambda mask: torch.where(mask, batch.advantage, 0.0)})
    count = float(batch.live.sum().clamp(min=1))
    trusted = target.call(TRUSTED, whole, batch.logprob, batch.old_logprob, **settings, denominator=count)
    return {"keep": trusted.mask.float(), "rejected": trusted.dropped_fraction}


def _mask_off_policy_by_outcome(*, packed: bool) -> Callable[[Target, Batch, Settings], Mapping[str, Tensor]]:
    """Off-policy sequence masking with one advantage per response."""

    def compute(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        whole = loss_ready(target, batch, (), {"estimator": lambda reward: reward}, packed=packed)
        columns = [batch.logprob, batch.old_logprob]
        columns = [pack(target, c, batch) for c in columns] if packed else columns
        count = float(batch.live.sum().clamp(min=1))
        trusted = target.call(TRUSTED, whole, *columns, threshold=settings["threshold"], denominator=count)
        keep = target.call(f"{SIGNAL}.reduce.live_rows", trusted.mask).float()
        return {"keep": keep, "rejected": trusted.dropped_fraction}

    return compute
