"""Boundaries of KL estimators, the KL in the reward, the KL loss and the adaptive controller."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from rl_sentinel.adapters.library.arguments import NUMBERS, SIGNAL, arguments, columns, unbound
from rl_sentinel.adapters.library.boundary_builder import bind, functions
from rl_sentinel.adapters.library.losses import AGGREGATE, CUT, LOSS_OUTPUT, MODE, in_parts, settings_of
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.case import Settings

KL = f"{SIGNAL}.kl"
WEIGHTED = f"{KL}.importance_weighted"
IN_REWARD = f"{SIGNAL}.penalty.in_reward"
AS_LOSS = f"{SIGNAL}.penalty.as_loss"
ADAPTIVE = f"{SIGNAL}.controller.Adaptive"

#: Estimator -> the estimator with the same value, and the estimator with the same gradient; an estimator that is not
#: listed defines both.
KINDS = {
    "absolute": ("abs", "abs"),
    "absolute_plus": ("abs", "k2"),
    "k1_plus": ("k1", "k2"),
    "k3_plus": ("k3", "k2"),
}

_COEFFICIENT: Settings = {"coefficient": NUMBERS["coefficient"]}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of each estimator as a value and as a loss, the weighted KL, the KL in the reward, and the controller.

    An estimator with an unknown parameter becomes an ``Unbound``.
    """
    for path, function in functions(target.module(KL)):
        if path == WEIGHTED:
            continue
        if missing := unbound(path, "kl", function):
            yield missing
            continue
        name = path.rpartition(".")[2]
        value, gradient = KINDS.get(name, (name, name))
        exact = {"definition:kl": value} if value == "k3" else {}
        claims = {"algorithm": value, "gradient": gradient, **exact}
        yield _estimate(target, path, path, columns(function), f"kl.{value}", claims)
        yield _as_loss(target, path, path, columns(function), name, "token-mean")
    route, reads = f"{KL}.k3 -> {WEIGHTED}", f"{columns(target.find(f'{KL}.k3'))} old_logprob"
    yield _estimate(target, route, WEIGHTED, reads, "kl.weighted", {"algorithm": "weighted k3"})
    yield _as_loss(target, route, WEIGHTED, reads, "weighted k3", MODE)
    yield bind(
        target,
        f"{KL}.k1 -> {IN_REWARD}",
        "kl",
        _in_reward,
        reads=f"logprob ref_logprob {columns(target.find(IN_REWARD))}",
        outputs={"token_reward": Output("B T", "reward", "token_reward"), "kl": Output("B T", "nats", "kl.k1")},
        settings={"default": _COEFFICIENT},
        claims={"algorithm:token_reward": "k1 in the reward", "algorithm:kl": "k1"},
    )
    yield bind(
        target,
        f"{KL}.k1 -> {AGGREGATE} -> {ADAPTIVE}",
        "kl",
        _next_coefficient,
        reads="logprob ref_logprob mask",
        outputs={"coefficient": Output("", "", "kl_coefficient", over="live")},
        settings={"adaptive": {"coefficient": 0.1, "target": 0.137, "horizon": 50.0}},
        claims={"algorithm": "k1 steers", "masked-slots": "any"},
    )


def _kl(target: Target, path: str, batch: Batch) -> Tensor:
    """The KL estimate; the weighted estimate is k3 times the ratio of the policies."""
    estimate = f"{KL}.k3" if path == WEIGHTED else path
    kl: Tensor = target.call(estimate, **arguments(target.find(estimate), batch))
    if path == WEIGHTED:
        kl = target.call(path, kl, batch.logprob, batch.old_logprob, mask=batch.mask)
    return kl


def _estimate(  # noqa: PLR0913 - the fields of one row
    target: Target, route: str, path: str, reads: str, quantity: str, claims: Mapping[str, str]
) -> Boundary:
    return bind(
        target,
        route,
        "kl",
        lambda target, batch, _settings: {"kl": _kl(target, path, batch)},
        reads=reads,
        outputs={"kl": Output("B T", "nats", quantity)},
        claims=claims,
    )


def _as_loss(  # noqa: PLR0913 - the fields of one row
    target: Target, route: str, path: str, reads: str, kind: str, mode: str
) -> Boundary:
    def compute(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        def one(part: Batch, **more: object) -> Tensor:
            loss: Tensor = target.call(AS_LOSS, _kl(target, path, part), mask=part.mask, **more)
            return loss

        return in_parts(target, batch, settings, one, coefficient=settings["coefficient"])

    return bind(
        target,
        f"{route} -> {AS_LOSS}",
        "policy-loss",
        compute,
        reads=reads,
        outputs={"loss": LOSS_OUTPUT},
        settings={mode: {**_COEFFICIENT, **settings_of(mode)}},
        claims={"algorithm": f"{kind} as a loss", "aggregation": mode},
        follows=CUT,
    )


def _in_reward(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
    """The reward minus the KL penalty, and the logged KL."""
    reward = arguments(target.find(IN_REWARD), batch)["token_reward"]
    kl = target.call(f"{KL}.k1", batch.logprob, batch.ref_logprob, mask=batch.mask)
    shaped = target.call(IN_REWARD, reward, kl, mask=batch.mask, **settings)
    return {"token_reward": shaped.token_reward, "kl": shaped.kl}


def _next_coefficient(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
    """The coefficient after one update with the mean KL over trained tokens."""
    kl = target.call(f"{KL}.k1", batch.logprob, batch.ref_logprob, mask=batch.mask)
    mean = target.call(f"{SIGNAL}.reduce.Aggregation", "token-mean", float(batch.mask.sum().clamp(min=1)))
    observed = float(target.call(AGGREGATE, kl, mask=batch.mask, aggregation=mean))
    after = target.call(ADAPTIVE, **settings).after(observed, samples=int(batch.live.sum()))
    return {"coefficient": torch.tensor(after.coefficient)}
