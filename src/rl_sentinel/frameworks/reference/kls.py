"""Boundaries of the estimators of a KL, and of what a KL is put to: in the reward, as a loss, as a steer."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.frameworks.reference.arguments import NUMBERS, SIGNAL, claims, columns, given, unknown
from rl_sentinel.frameworks.reference.parts import MODE, in_parts, loss_output, settings_of
from rl_sentinel.frameworks.reference.refusals import by_name, of_numbers, of_words
from rl_sentinel.frameworks.reference.rewards import functions
from rl_sentinel.frameworks.target import Target

WEIGHTED = f"{SIGNAL}.kl.importance_weighted"
IN_REWARD = f"{SIGNAL}.penalty.in_reward"
AS_LOSS = f"{SIGNAL}.penalty.as_loss"
FIXED = f"{SIGNAL}.controller.Fixed"
ADAPTIVE = f"{SIGNAL}.controller.Adaptive"

#: Function -> the estimator that its values are, and the one that its gradient is, where not its own.
_KINDS = {
    "absolute": ("abs", "abs"),
    "absolute_plus": ("abs", "k2"),
    "k1_plus": ("k1", "k2"),
    "k3_plus": ("k3", "k2"),
}

#: What an estimate is weighed or used with: the kind that is in common use.
_COMMON = "k3"

_STEERED: Settings = {"coefficient": 0.1, "target": 0.137, "horizon": 50.0}
_FIXED: Settings = {"coefficient": 0.1}

#: Setting -> controller, what it is made of, and what it then sees on how many samples.
_SEEN: Mapping[str, tuple[str, Settings, float, int]] = {
    "sound": (ADAPTIVE, {}, -0.5, 8),
    "sound, fixed": (FIXED, {}, 0.1, 8),
    "fixed, coefficient negative": (FIXED, {"coefficient": -0.1}, 0.1, 8),
    "fixed, observed nan": (FIXED, {}, torch.nan, 8),
    "coefficient negative": (ADAPTIVE, {"coefficient": -0.1}, 0.1, 8),
    "target 0": (ADAPTIVE, {"target": 0.0}, 0.1, 8),
    "horizon 0": (ADAPTIVE, {"horizon": 0.0}, 0.1, 8),
    "coefficient nan": (ADAPTIVE, {"coefficient": torch.nan}, 0.1, 8),
    "target nan": (ADAPTIVE, {"target": torch.nan}, 0.1, 8),
    "horizon nan": (ADAPTIVE, {"horizon": torch.nan}, 0.1, 8),
    "fixed, coefficient nan": (FIXED, {"coefficient": torch.nan}, 0.1, 8),
    "sound, nothing seen": (ADAPTIVE, {}, 0.1, 0),
    "sound, a horizon below 1": (ADAPTIVE, {"horizon": 0.5}, 0.1, 0),
    "observed infinite": (ADAPTIVE, {}, torch.inf, 8),
    "samples negative": (ADAPTIVE, {}, 0.1, -1),
    "samples beyond the horizon": (ADAPTIVE, {}, 0.1, 250),
    "sound, all but too many samples": (ADAPTIVE, {}, 0.1, 249),
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Each estimator, alone and as a loss; the weighted one; the shaped reward; the controllers."""
    zero = torch.zeros(2, 2)
    for path, function in functions(target.module(f"{SIGNAL}.kl")):
        if path == WEIGHTED:
            continue
        if strange := unknown(function):
            yield Unbound(path, "kl", f"{path} wants {strange!r}, of which this adapter does not know the column")
            continue
        yield _estimator(target, path)
        yield _loss(target, path, "token-mean")
    yield _weighted(target)
    yield _loss(target, WEIGHTED, MODE)
    for path in (AS_LOSS, IN_REWARD):
        yield from of_numbers(target, path, target.find(path), kl=zero)
    yield _shaped(target)
    yield _steered(target)
    yield from of_words(
        ADAPTIVE, lambda setting: _seen(target, setting), _SEEN, sound=[n for n in _SEEN if n.startswith("sound")]
    )


def _estimate(target: Target, path: str, batch: Batch) -> Tensor:
    """What the estimator at ``path`` gives, weighed by the ratio of policies where that is asked for."""
    own = path if path != WEIGHTED else f"{SIGNAL}.kl.{_COMMON}"
    found: Tensor = target.call(own, **given(target.find(own), batch))
    if path == WEIGHTED:
        found = target.call(path, found, batch.logprob, batch.old_logprob, mask=batch.mask)
    return found


def _estimator(target: Target, path: str) -> Boundary:
    function, name = target.find(path), path.rpartition(".")[2]
    value, slope = _KINDS.get(name, (name, name))

    def call(batch: Batch, _settings: Settings) -> Mapping[str, Tensor]:
        return {"kl": _estimate(target, path, batch)}

    return Boundary(
        path=path,
        stage="kl",
        call=call,
        reads=columns(function),
        outputs={"kl": Output("B T", "nats", f"kl.{value}")},
        claims=claims(function, algorithm=value, gradient=slope, **{"definition:kl": value} if value == "k3" else {}),
    )


def _weighted(target: Target) -> Boundary:
    plain = _estimator(target, f"{SIGNAL}.kl.{_COMMON}")

    def call(batch: Batch, _settings: Settings) -> Mapping[str, Tensor]:
        return {"kl": _estimate(target, WEIGHTED, batch)}

    return replace(
        plain,
        path=f"{plain.path} -> {WEIGHTED}",
        call=call,
        reads=plain.reads | {"old_logprob"},
        outputs={"kl": Output("B T", "nats", "kl.weighted")},
        claims=claims(target.find(WEIGHTED), algorithm=f"weighted {_COMMON}"),
    )


def _loss(target: Target, path: str, mode: str) -> Boundary:
    """A KL added to the loss; each kind has its own gradient."""
    plain = _weighted(target) if path == WEIGHTED else _estimator(target, path)

    def one(batch: Batch, **more: object) -> Tensor:
        found: Tensor = target.call(AS_LOSS, _estimate(target, path, batch), mask=batch.mask, **more)
        return found

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        return in_parts(target, batch, settings, one, coefficient=settings["coefficient"])

    kind = f"weighted {_COMMON}" if path == WEIGHTED else path.rpartition(".")[2]
    said = {"algorithm": f"{kind} as a loss", "aggregation": mode}
    return replace(
        plain,
        path=f"{plain.path} -> {AS_LOSS}",
        stage="policy-loss",
        call=call,
        outputs={"loss": loss_output(mode)},
        settings={mode: {"coefficient": NUMBERS["coefficient"], **settings_of(mode)}},
        claims=claims(target.find(AS_LOSS), **said),
    )


def _shaped(target: Target) -> Boundary:
    """A reward that pays for its KL, and the KL that is logged."""
    kind, function = f"{SIGNAL}.kl.k1", target.find(IN_REWARD)

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        reward = given(function, batch)["token_reward"]
        kl = target.call(kind, batch.logprob, batch.ref_logprob, mask=batch.mask)
        shaped = target.call(IN_REWARD, reward, kl, mask=batch.mask, **settings)
        return {"token_reward": shaped.token_reward, "kl": shaped.kl}

    return Boundary(
        path=f"{kind} -> {IN_REWARD}",
        stage="kl",
        call=call,
        reads=columns(function) | columns(target.find(kind)),
        outputs={
            "token_reward": Output("B T", "reward", "token_reward"),
            "kl": Output("B T", "nats", "kl.k1"),
        },
        settings={"default": {"coefficient": NUMBERS["coefficient"]}},
        claims=claims(function, **{"algorithm:token_reward": "k1 in the reward", "algorithm:kl": "k1"}),
    )


def _steered(target: Target) -> Boundary:
    """The coefficient after one step, fed by the mean raw KL over trained tokens."""
    kind, total = f"{SIGNAL}.kl.k1", f"{SIGNAL}.reduce.aggregate"

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        kl = target.call(kind, batch.logprob, batch.ref_logprob, mask=batch.mask)
        count = float(batch.mask.sum().clamp(min=1))
        mean = target.call(f"{SIGNAL}.reduce.Aggregation", "token-mean", count)
        observed = float(target.call(total, kl, mask=batch.mask, aggregation=mean))
        moved = target.call(ADAPTIVE, **settings).after(observed, samples=int(batch.live.sum()))
        return {"coefficient": torch.tensor(moved.coefficient)}

    return Boundary(
        path=f"{kind} -> {total} -> {ADAPTIVE}",
        stage="kl",
        call=call,
        reads=columns(target.find(kind)),
        outputs={"coefficient": Output("", "", "kl_coefficient", over="live")},
        settings={"adaptive": _STEERED},
        claims=claims(target.find(ADAPTIVE), algorithm="k1 steers", masked_slots="any"),
    )


def _seen(target: Target, setting: str) -> object:
    path, changed, observed, samples = _SEEN[setting]
    settings = {**(_STEERED if path == ADAPTIVE else _FIXED), **changed}
    if changed and not setting.startswith("sound"):  # refused where it is made
        return by_name(partial(target.call, path, **settings), *changed)
    after = partial(target.call(path, **settings).after, observed, samples=samples)
    return after() if setting.startswith("sound") else by_name(after, *{"observed", "samples"} & set(setting.split()))
