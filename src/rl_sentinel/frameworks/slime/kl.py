"""slime's KL estimators."""

from collections.abc import Iterator, Mapping

from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.errors import Unbindable
from rl_sentinel.frameworks.slime.ragged import PPO
from rl_sentinel.frameworks.target import Target

PATH = f"{PPO}.compute_approx_kl"

#: slime's name of a kind of KL, and the name that the field gives it.
KINDS = {"k1": "k1", "k2": "k2", "k3": "k3", "low_var_kl": "k3"}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """One boundary per kind of KL."""
    try:
        target.find(PATH)
    except Unbindable as why:
        yield Unbound(PATH, "kl", str(why))
        return

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        return {"kl": target.call(PATH, batch.logprob, batch.ref_logprob, settings["kind"])}

    for kind, name in KINDS.items():
        yield Boundary(
            path=PATH,
            stage="kl",
            call=call,
            reads=frozenset({"logprob", "ref_logprob"}),
            outputs={"kl": Output("B T", "nats", f"kl.{name}")},
            settings={kind: {"kind": kind}},
            reach=f"--kl-loss-type {kind}",
        )
