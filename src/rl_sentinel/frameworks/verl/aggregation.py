"""verl's value loss, entropy, and the ways in which a token's loss becomes one number."""

import inspect
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.errors import Unbindable
from rl_sentinel.frameworks.binding import bound
from rl_sentinel.frameworks.target import Target
from rl_sentinel.frameworks.verl.columns import ROLES, claims
from rl_sentinel.frameworks.verl.registries import MODULE

VALUE = f"{MODULE}.compute_value_loss"
ENTROPY = f"{MODULE}.compute_entropy_loss"
AGGREGATE = f"{MODULE}.agg_loss"

MODES = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean")

#: Denominators as the trainer gives them, counted over the mini-batch and all ranks.
GLOBAL: Settings = {"batch_num_tokens": 64, "global_batch_size": 16}

CLIPPED = "critic/vf_clipfrac"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The value loss, the entropy, and one boundary per mode of aggregation."""
    try:
        yield _value(target)
    except Unbindable as why:
        yield Unbound(VALUE, "value-loss", str(why))
        return
    if target.has(ENTROPY):
        yield _entropy(target)
    if target.has(AGGREGATE):
        yield from _aggregations(target)


def _value(target: Target) -> Boundary:
    function = target.find(VALUE)
    bound(function, dict.fromkeys((*ROLES, "value_prediction", "value_clip")))

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        given = {role: make(batch) for role, make in ROLES.items()}
        given |= {
            "values": batch.old_value,
            "value_prediction": batch.value,
            "value_clip": settings["value_clip"],
        }
        loss, clipped = target.call(VALUE, **bound(function, given))
        return {"loss": loss, CLIPPED: clipped.detach().float()}

    return Boundary(
        path=VALUE,
        stage="value-loss",
        call=call,
        reads=frozenset({"value", "old_value", "returns", "mask"}),
        outputs={
            "loss": Output("", "", "loss"),
            CLIPPED: Output("", "", "value_clip_fraction", over="live"),
        },
        settings={"default": {"value_clip": 0.5}},
        reach="algorithm.adv_estimator=gae",
    )


def _entropy(target: Target) -> Boundary:
    takes = inspect.signature(target.find(ENTROPY)).parameters

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        given = {k: v for k, v in settings.items() if k in takes}
        return {"loss": target.call(ENTROPY, batch.logits, batch.mask.to(torch.int64), **given)}

    modes = ("token-mean", "seq-mean-token-mean") if "loss_agg_mode" in takes else ("token-mean",)
    return Boundary(
        path=ENTROPY,
        stage="aggregate",
        call=call,
        reads=frozenset({"logits", "mask"}),
        outputs={"loss": Output("", "nats", "entropy.mean", over="live")},
        settings={mode: {"loss_agg_mode": mode} for mode in modes},
        reach="actor.entropy_coeff above 0",
    )


def _aggregations(target: Target) -> Iterator[Boundary | Unbound]:
    function = target.find(AGGREGATE)
    source = inspect.getsource(function)
    fixed = "_norm" if "loss_scale_factor" in inspect.signature(function).parameters else ""
    for mode in MODES:
        if f'"{mode}"' not in source:
            continue

        def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
            mask = batch.mask.to(torch.int64)
            given = {k: v for k, v in settings.items() if k != "mode"}
            return {"loss": target.call(AGGREGATE, batch.advantage, mask, settings["mode"], **given)}

        width = mode.endswith("-norm")
        cite = f"core_algos.agg_loss: the horizon of the mask{fixed and ', where no scale factor is given'}"
        yield Boundary(
            path=AGGREGATE,
            stage="aggregate",
            call=call,
            reads=frozenset({"advantage", "mask"}),
            outputs={"loss": Output("", "", "loss")},
            settings={mode: {"mode": mode}} | ({f"{mode}, global": {"mode": mode, **GLOBAL}} if fixed else {}),
            claims=claims(cite, normaliser="width") if width else {},
            reach=f"actor.loss_agg_mode={mode}",
        )
