"""AReaL's overlong penalty, normalisation and KL estimators, each called directly."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from rl_sentinel.adapters.areal.advantages import knob, norm
from rl_sentinel.adapters.areal.sequences import sequences
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.errors import Unbindable

OVERLONG = "areal.utils.functional.reward_overlong_penalty"
NORMALISE = "areal.utils.data.Normalization"
KL = "areal.utils.data.KLEstimator"

#: A penalty that starts at the second token of four.
PENALTY: Settings = {"overlong_tokens": 3, "overlong_penalty_factor": 1.0, "max_response_length": 4}

LEVELS: Mapping[str, Settings] = {
    "batch": {"x mean": "batch", "x std": "batch"},
    "group": {"x mean": "group", "x std": "group"},
    "group mean": {"x mean": "group", "x std": None},
    "group, leave one out": {"x mean": "group", "x std": None, "x leave1out": True},
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The penalty, each level of normalisation, each kind of KL."""
    for path, stage, make in (
        (OVERLONG, "reward", _overlong),
        (NORMALISE, "normalise", _normalisations),
        (KL, "kl", _estimators),
    ):
        try:
            target.find(path)
            yield from make(target)
        except Unbindable as why:
            yield Unbound(path, stage, str(why))  # type: ignore[arg-type] # the words above are stages


def _overlong(target: Target) -> Iterator[Boundary]:
    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        answer = target.call(OVERLONG, dict(sequences(batch)), **settings)
        return {"reward": answer["rewards"]}

    yield Boundary(
        path=OVERLONG,
        stage="reward",
        call=call,
        reads=frozenset({"reward", "mask"}),
        outputs={"reward": Output("B", "reward", "reward")},
        settings={"default": PENALTY},
        writes=frozenset({"reward"}),
        reach="actor.overlong_reward_penalty=True",
    )


def _normalisations(target: Target) -> Iterator[Boundary]:
    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        made = target.call(NORMALISE, norm(target, batch, settings, "x"))
        return {"advantage": made(batch.advantage, batch.mask.float())}

    for name, settings in LEVELS.items():
        grouped = name != "batch"
        cite = "utils/data.py, Normalization's docstring: 'group' normalises within fixed-size groups"
        yield Boundary(
            path=NORMALISE,
            stage="normalise",
            call=call,
            reads=frozenset({"advantage", "mask"} | ({"group"} if grouped else set())),
            outputs={"advantage": Output("B T", "reward", "advantage")},
            settings={name: settings},
            claims=claims(cite, scope="group") if grouped else claims(cite, scope="batch"),
            reach=", ".join(knob(k.replace("x ", "adv "), v) for k, v in settings.items()),
        )


def _estimators(target: Target) -> Iterator[Boundary]:
    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        estimate = target.call(KL, settings["kind"])
        return {"kl": estimate(batch.logprob, batch.ref_logprob).to(torch.float32)}

    for kind in ("k1", "k2", "k3"):
        yield Boundary(
            path=KL,
            stage="kl",
            call=call,
            reads=frozenset({"logprob", "ref_logprob"}),
            outputs={"kl": Output("B T", "nats", f"kl.{kind}")},
            settings={kind: {"kind": kind}},
            reach=f"actor.kl_estimator={kind}",
        )
