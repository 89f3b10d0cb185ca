"""verl's value loss, entropy, and the ways in which a token's loss becomes one number."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Stage, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.errors import Unbindable
from rl_sentinel.frameworks.binding import bound
from rl_sentinel.frameworks.target import Target
from rl_sentinel.frameworks.verl.columns import ROLES, taken
from rl_sentinel.frameworks.verl.registries import MODULE
from rl_sentinel.frameworks.verl.written import written

VALUE = f"{MODULE}.compute_value_loss"
ENTROPY = f"{MODULE}.compute_entropy_loss"
AGGREGATE = f"{MODULE}.agg_loss"

MODES = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean")

#: verl's name of a mode -> the field's.
NAMES: Mapping[str, str] = {
    "token-mean": "token-mean",
    "token-sum": "token-sum",
    "seq-mean-token-sum": "sequence-mean-token-sum",
    "seq-mean-token-sum-norm": "sequence-mean-token-sum-by-width",
    "seq-mean-token-mean": "sequence-mean-token-mean",
}

#: Denominators as the trainer gives them, counted over the mini-batch and all ranks.
GLOBAL: Settings = {"tokens": 64, "rows": 16, "ranks": 2}

#: Of the settings above, the names by which they are given.
GIVEN: Mapping[str, str] = {
    "tokens": "batch_num_tokens",
    "rows": "global_batch_size",
    "ranks": "dp_size",
    "scale": "loss_scale_factor",
}

_MODES = "core_algos.agg_loss, docstring: how the loss matrix is aggregated into a scalar, and over which counts"

CLIPPED = "critic/vf_clipfrac"

_ENTROPY = "core_algos.compute_entropy_loss, docstring: categorical entropy"

_LIVE = "core_algos.agg_loss, comment beside the row mask: fully masked sequences are excluded"

HALVED = (
    "core_algos.compute_value_loss, docstring: the clipped value-function loss for PPO, as in TRL's ppo_trainer, "
    "which takes half of the larger squared error"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The value loss, the entropy, and one boundary per mode of aggregation."""
    families: Mapping[str, tuple[Stage, Callable[[Target], Iterator[Boundary]]]] = {
        VALUE: ("value-loss", _value),
        ENTROPY: ("aggregate", _entropy),
        AGGREGATE: ("aggregate", _aggregations),
    }
    for path, (stage, make) in families.items():
        if path != VALUE and not _stands(target, path):
            continue
        try:
            yield from make(target)
        except Unbindable as why:
            yield Unbound(path, stage, str(why))


def _stands(target: Target, path: str) -> bool:
    """Whether a release has the function; by its source where the module does not import."""
    return path.rpartition(".")[2] in written(target) if target.fails(path) else target.has(path)


def _value(target: Target) -> Iterator[Boundary]:
    function = target.find(VALUE)
    bound(function, dict.fromkeys((*ROLES, "value_prediction", "value_clip")))

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        given = taken(batch, function)
        given |= {
            "values": batch.old_value,
            "value_prediction": batch.value,
            "value_clip": settings["value_clip"],
        }
        loss, clipped = target.call(VALUE, **bound(function, given))
        return {"loss": loss, CLIPPED: clipped.detach().float()}

    yield Boundary(
        path=VALUE,
        stage="value-loss",
        call=call,
        reads=frozenset({"value", "old_value", "returns", "mask"}),
        outputs={
            "loss": Output("", "", "loss"),
            CLIPPED: Output("", "", "value_clip_fraction", over="live"),
        },
        settings={"default": {"value_clip": 0.5}},
        claims=claims(HALVED, algorithm="clipped value", factor="half", aggregation="token-mean"),
        reach="algorithm.adv_estimator=gae",
    )


def aggregation(target: Target, mode: str) -> Claims:
    """What a release says of a mode; which rows a mean counts only where it says so."""
    source = inspect.getsource(target.find(AGGREGATE)) if target.has(AGGREGATE) else ""
    found = claims(_MODES, aggregation=NAMES[mode])
    return found | (claims(_LIVE, rows="live") if "exclude fully masked sequences" in source else Claims())


def _entropy(target: Target) -> Iterator[Boundary]:
    takes = inspect.signature(target.find(ENTROPY)).parameters

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        given = {k: v for k, v in settings.items() if k in takes}
        return {"loss": target.call(ENTROPY, batch.logits, batch.mask.to(torch.int64), **given)}

    for mode in ("token-mean", "seq-mean-token-mean") if "loss_agg_mode" in takes else ("token-mean",):
        yield Boundary(
            path=ENTROPY,
            stage="aggregate",
            call=call,
            reads=frozenset({"logits", "mask"}),
            outputs={"loss": Output("", "nats", "entropy.mean", over="live")},
            settings={mode: {"loss_agg_mode": mode}},
            claims=claims(_ENTROPY, algorithm="entropy") | aggregation(target, mode),
            reach="actor.entropy_coeff above 0",
        )


def _aggregations(target: Target) -> Iterator[Boundary]:
    function = target.find(AGGREGATE)
    source = inspect.getsource(function)
    fixed = "_norm" if "loss_scale_factor" in inspect.signature(function).parameters else ""
    for mode in MODES:
        if f'"{mode}"' not in source:
            continue

        width = mode.endswith("-norm")
        cite = f"core_algos.agg_loss: the horizon of the mask{fixed and ', where no scale factor is given'}"
        said = aggregation(target, mode) if fixed or not width else Claims()
        one = partial(_aggregated, target, mode, said)
        more: Mapping[str, Settings] = {f"{mode}, global": GLOBAL} if fixed else {}
        yield one({mode: {}, **more}, claims(cite, normaliser="width") if width else Claims())
        if width and fixed:
            yield one({f"{mode}, scale": {"scale": 6}}, Claims())


def _aggregated(target: Target, mode: str, said: Claims, settings: Mapping[str, Settings], more: Claims) -> Boundary:
    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        mask = batch.mask.to(torch.int64)
        given = {GIVEN[k]: v for k, v in settings.items()}
        return {"loss": target.call(AGGREGATE, batch.advantage, mask, mode, **given)}

    return Boundary(
        path=AGGREGATE,
        stage="aggregate",
        call=call,
        reads=frozenset({"advantage", "mask"}),
        outputs={"loss": Output("", "", "loss")},
        settings=settings,
        claims=said | more,
        reach=f"actor.loss_agg_mode={mode}",
    )
