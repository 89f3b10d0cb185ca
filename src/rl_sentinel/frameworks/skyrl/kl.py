"""SkyRL's KL estimators, and the trainer's step that puts a KL into the reward."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.errors import Unbindable
from rl_sentinel.frameworks.skyrl.batches import MODULE, back, right, trainer, training_input
from rl_sentinel.frameworks.target import Target

PENALTY = f"{MODULE}.compute_approx_kl"
STEP = "skyrl.train.trainer.RayPPOTrainer.apply_reward_kl_penalty"
CONTROLLER = f"{MODULE}.FixedKLController"

KINDS = ("k1", "abs", "k2", "k3")


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """One boundary per kind of KL, then the step."""
    for path, make in ((PENALTY, _penalties), (STEP, _step)):
        try:
            target.find(path)
            yield from make(target)
        except Unbindable as why:
            yield Unbound(path, "kl", str(why))


def _penalties(target: Target) -> Iterator[Boundary]:
    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        mask = right(batch, "mask").float()
        kl = target.call(PENALTY, right(batch, "logprob"), right(batch, "ref_logprob"), mask, settings["kind"])
        return {"kl": back(kl, batch)}

    for kind in KINDS:
        yield Boundary(
            path=PENALTY,
            stage="kl",
            call=call,
            reads=frozenset({"logprob", "ref_logprob", "mask", "length"}),
            outputs={"kl": Output("B T", "nats", f"kl.{kind}")},
            settings={kind: {"kind": kind}},
            reach=f"trainer.algorithm.kl_estimator_type={kind}",
        )


def _step(target: Target) -> Iterator[Boundary]:
    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        controller = target.call(CONTROLLER, settings["kl_coef"])
        knobs = {"trainer.algorithm.kl_estimator_type": settings["kind"]}
        own = trainer(target, knobs, reward_kl_controller=controller)
        data = target.call(STEP, own, training_input(target, batch))
        logged = torch.tensor(float(data.metadata["metrics"]["avg_kl"]))
        return {"token_reward": back(data["rewards"], batch), "kl": logged}

    for kind in ("k1", "k3"):
        yield Boundary(
            path=STEP,
            stage="kl",
            call=call,
            reads=frozenset({"reward", "token_reward", "length", "mask", "old_logprob", "ref_logprob"}),
            outputs={
                "token_reward": Output("B T", "reward", "token_reward"),
                "kl": Output("", "nats", "kl.row_mean"),
            },
            settings={kind: {"kl_coef": 0.001, "kind": kind}},
            reach=f"trainer.algorithm.use_kl_in_reward=true, kl_estimator_type={kind}",
        )
