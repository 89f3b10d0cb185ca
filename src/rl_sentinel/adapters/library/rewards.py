"""Boundaries of reward shaping: scaling, clipping, suppression of unscored rewards, normalization."""

from collections.abc import Iterator, Mapping

from torch import Tensor

from rl_sentinel.adapters.library.arguments import SIGNAL, arguments, columns, numbers, unbound, without
from rl_sentinel.adapters.library.boundary_builder import ADVANTAGE, Compute, bind, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.case import Scalar, Settings

NORMALIZED = f"{SIGNAL}.normalization.normalized"
NORMALIZATION = f"{SIGNAL}.normalization.Normalization"
SUPPRESSED = f"{SIGNAL}.reward.suppressed"

#: Normalizations (mean, deviation, leave one out, biased, epsilon): every pair of mean and deviation occurs.
NORMALIZATIONS: tuple[tuple[str, str, bool, bool, float], ...] = (
    ("group", "group", False, False, 1e-6),
    ("group", "batch", True, True, 1e-6),
    ("group", "none", True, False, 1e-6),
    ("batch", "batch", False, True, 1e-6),
    ("batch", "group", True, False, 1e-6),
    ("batch", "none", False, False, 1e-6),
    ("none", "batch", False, False, 1e-6),
    ("none", "group", False, True, 1e-6),
    ("none", "none", False, False, 1e-6),
)

#: Normalizations after suppression, which removes unscored rewards from every mean.
AFTER_SUPPRESSION = (("group", "none", False, False, 0.0), ("batch", "batch", False, False, 0.0))

_NAMES = ("mean", "deviation", "leave_one_out", "biased", "epsilon")


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of all functions of rewards, all normalizations, and normalization after suppression.

    A function of rewards with an unknown parameter becomes an ``Unbound``.
    """
    for path, function in functions(target.module(f"{SIGNAL}.reward")):
        yield unbound(path, "reward", function) or bind(
            target,
            path,
            "reward",
            _compute(path),
            reads=columns(function),
            outputs={"reward": Output("B", "reward", "reward")},
            settings={"default": numbers(function)},
            claims={"algorithm": function.__name__.replace("_", " ")},
        )
    for suppress, choices in ((False, NORMALIZATIONS), (True, AFTER_SUPPRESSION)):
        for values in choices:
            settings: dict[str, Scalar] = dict(zip(_NAMES, values, strict=True))
            settings |= {"suppress": True} if suppress else {}
            yield bind(
                target,
                f"{SUPPRESSED} -> {NORMALIZED}" if suppress else NORMALIZED,
                "normalize",
                _normalize,
                reads="reward group mask" + (" scored" if suppress else ""),
                outputs={"advantage": ADVANTAGE},
                settings={_name(settings): settings},
                claims=_scope(settings) | ({"suppresses": "unscored"} if suppress else {}),
            )


def _compute(path: str) -> Compute:
    def compute(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        return {"reward": target.call(path, **arguments(target.find(path), batch), **settings)}

    return compute


def _normalize(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
    by = target.call(NORMALIZATION, **without(settings, "suppress"))
    reward = batch.reward
    if settings.get("suppress"):
        reward = target.call(SUPPRESSED, reward, live=batch.live, scored=batch.scored)
    return {"advantage": target.call(NORMALIZED, reward, group=batch.group, live=batch.live, by=by)}


def _name(settings: Settings) -> str:
    words = [f"mean {settings['mean']}", f"deviation {settings['deviation']}"]
    return ", ".join(words + [n.replace("_", " ") for n in ("leave_one_out", "biased") if settings[n]])


def _scope(settings: Settings) -> dict[str, str]:
    """The claims of a normalization: its scope, and whether it removes the mean and the scale of the rewards."""
    over = {settings["mean"], settings["deviation"]}
    claims = {"scope": "batch" if "batch" in over else "group", "grouping": "id"}
    claims["standardized"] = "no" if settings["deviation"] == "none" else "yes"
    return claims | ({} if settings["mean"] == "none" else {"baseline": "relative"})
