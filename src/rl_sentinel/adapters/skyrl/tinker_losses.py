"""The losses of SkyRL's JAX engine behind its Tinker server, run with torch instead of JAX."""

from collections.abc import Iterator, Mapping
from types import FunctionType, SimpleNamespace

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Table
from rl_sentinel.adapters.kit.forms import ZeroPadded
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.value_codecs import AllSettings, Constant
from rl_sentinel.adapters.skyrl.loss_modes import MODES
from rl_sentinel.adapters.skyrl.losses import PLAIN
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims

MODULE = "skyrl.tinker.loss_fns"

#: The modules of JAX that the losses call, with the functions of torch that compute the same.
_IN_TORCH: Mapping[str, SimpleNamespace] = {
    "jnp": SimpleNamespace(
        exp=torch.exp,
        where=torch.where,
        zeros_like=torch.zeros_like,
        clip=torch.clamp,
        minimum=torch.minimum,
        maximum=torch.maximum,
    ),
    "jax": SimpleNamespace(lax=SimpleNamespace(stop_gradient=torch.detach)),
}

_SUM = claims("loss_fns.py: the loss of each token is multiplied by the token's weight", aggregation="token-sum")
_LIKELIHOOD = claims("loss_fns.py, cross_entropy_loss, docstring", algorithm="negative log-likelihood")

_COLUMNS: Mapping[str, str] = {
    "target_logprobs": "logprob",
    "loss_mask": "mask",
    "sampling_logprobs": "old_logprob",
    "advantages": "advantage",
}
_PRODUCER = (
    "backends/jax.py, _model_pass: sampling log-probs, advantages and weights of the requests, with 0 in the padding"
)

#: Function -> the numbers of a request, and what the loss claims.
_LOSSES: Mapping[str, tuple[Settings, Claims]] = {
    "cross_entropy_loss": ({}, _LIKELIHOOD),
    "importance_sampling_loss": ({}, MODES["importance_sampling"].claims),
    "ppo_loss": ({"clip_low": 0.2, "clip_high": 0.3}, MODES[PLAIN].claims | MODES[PLAIN].algorithm),
    "cispo_loss": ({"clip_low": 0.5, "clip_high": 2.0}, MODES["cispo"].claims | MODES["cispo"].algorithm),
}


#: The loss to which clients send weights, and the setting in which each trained token has this weight instead of 1.
WEIGHED, HALF = "cross_entropy", "weights of a half"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the losses that the release has."""
    for name, (numbers, claimed) in _LOSSES.items():
        if target.has(f"{MODULE}.{name}"):
            weights = {"default": 1.0, **({HALF: 0.5} if name == f"{WEIGHED}_loss" else {})}
            yield from bindable(target, *(_boundary(name, {s: numbers}, claimed, w) for s, w in weights.items()))


def sum_of_losses(
    loss: FunctionType, columns: Mapping[str, Tensor], numbers: Mapping[str, float], weight: float
) -> Tensor:
    """Compute the loss of each token of this weight, and return the sum, divided by the weight.

    In the engine, each row has its own thresholds; here all rows have the same.
    """
    weighted = {**columns, "loss_mask": columns["loss_mask"] * weight}
    thresholds = SimpleNamespace(
        clip_low_threshold=1 - numbers.get("clip_low", 0.2), clip_high_threshold=1 + numbers.get("clip_high", 0.2)
    )
    with replaced_globals(loss.__globals__, **_IN_TORCH):
        losses: Tensor = loss(*(weighted[name] for name in _COLUMNS), thresholds)
    return losses.sum() / weight


def _boundary(name: str, settings: Mapping[str, Settings], claimed: Claims, weight: float) -> Boundary:
    path, form = f"{MODULE}.{name}", ZeroPadded()
    columns = {name: Column(column, form) for name, column in _COLUMNS.items()}
    return one_call(
        path=path,
        stage="policy-loss",
        call=sum_of_losses,
        name="loss",
        arguments={
            "loss": Constant(Function(path)),
            "columns": Table({**columns, "loss_mask": Column("mask", form, torch.float32)}),
            "numbers": AllSettings(),
            "weight": Constant(weight),
        },
        produced_by={"columns": _PRODUCER},
        unused=frozenset({"old_logprob", "advantage"}) if name == "cross_entropy_loss" else frozenset(),
        outputs={"loss": Output("", "", "loss", at=Use("loss"))},
        settings=settings,
        claims=_SUM | claimed,
        reach="a client of a Tinker server with SkyRL's JAX engine calls forward_backward",
    )
