"""GRPO's first loss in TRL: one method that samples, scores, computes the loss and logs."""

from collections import defaultdict
from collections.abc import Iterator
from copy import copy
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.requirements import group_sizes
from rl_sentinel.adapters.kit.value_codecs import Derived
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import GRPO, Completions, Prompts, trainer
from rl_sentinel.adapters.trl.release import log_place, source_of
from rl_sentinel.adapters.trl.result_forms import Logged
from rl_sentinel.adapters.trl.rollout_doubles import Rollout, generated_rows
from rl_sentinel.adapters.trl.scoring import pads_to_the_longest, rollout_conditions
from rl_sentinel.adapters.trl.tiny_trainer import RowRewards
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

PATH = f"{GRPO}.compute_loss"

_SETTINGS: Settings = {"kl_loss_coef": 0.25}

_KL = claims(
    "grpo_trainer.py, compute_loss: exp(ref - logp) - (ref - logp) - 1",
    kl="k3",
    output_pairs={"kl": "logprob against ref_logprob"},
)

_OWN = claims("grpo_trainer.py, compute_loss: advantages of the rewards of a prompt", on_policy_gradient="other")

_PRODUCER = "transformers, Trainer.training_step: the rows of the data set, one for each prompt"

#: Logged name -> what it is.
LOGGED = {
    "reward": Output("", "reward", "outcome.mean", over="all"),
    "rewards/first": Output("", "reward", "outcome.mean", over="all"),
    "completion_length": Output("", "tokens", "response_length.mean", over="all"),
    "kl": Output("", "nats", "kl.mean", over="live"),
}


class LogProbs(Tensor):
    """Logits that are log-probs already."""

    def log_softmax(self, dim: int) -> Tensor:  # type: ignore[override]  # noqa: ARG002 - as torch's
        """The log-probs as they are."""
        return self.as_subclass(Tensor)


class KnownModel(nn.Module):
    """A model that answers each position of a completion with one log-prob, whatever the token, and samples nothing."""

    def __init__(self, logprobs: Tensor, completions: list[list[int]]) -> None:
        """Take ``[B, T]`` log-probs, and the tokens that are sampled."""
        super().__init__()
        self.logprobs = logprobs
        self.rollout = Rollout(completions=completions)

    def forward(self, input_ids: Tensor, **_more: object) -> SimpleNamespace:
        """The answers at all positions, of which each belongs to the next token."""
        answers = self.logprobs[:, : input_ids.shape[1] - 1]
        wide = torch.cat([answers, answers.new_zeros(len(answers), 1)], 1).unsqueeze(2).expand(-1, -1, 8)
        return SimpleNamespace(logits=wide.as_subclass(LogProbs))

    def generate(self, input_ids: Tensor, **_options: object) -> Tensor:
        """Each prompt as often as it has completions, with these."""
        repeated = input_ids.repeat_interleave(len(self.logprobs) // len(input_ids), 0)
        return generated_rows(repeated, self.rollout.completions)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The loss of releases in which it generates."""
    if not target.has(PATH) or target.fails(PATH) or "reward_funcs" not in source_of(target.find(PATH)):
        return
    yield from bindable(target, _boundary(target))


def _boundary(target: Target) -> Boundary:
    step = Step(
        call=generated_loss,
        name="made",
        arguments={
            "trainer": trainer("grpo", _SETTINGS),
            "models": Table({"policy": _model("logprob"), "reference": _model("ref_logprob")}),
            "rewards": Column("reward", PerRow("list")),
            "rows": Prompts(),
            "generations": Derived(lambda inputs: max(group_sizes(inputs))),
        },
        produced_by={"rows": _PRODUCER},
    )
    place = log_place(target, "grpo", Use("made")["trainer"])
    logged = {
        name: Output(o.axes, o.unit, o.quantity, over=o.over, at=place[name], form=Logged())
        for name, o in LOGGED.items()
    }
    return Boundary(
        path=PATH,
        stage="policy-loss",
        steps=(step,),
        outputs={"loss": Output("", "", "loss", at=Use("made")["loss"]), **logged},
        settings={"default": _SETTINGS},
        claims=_KL | _OWN,
        reach="every training step",
        requires=(*rollout_conditions(masked=False), pads_to_the_longest),
    )


def _model(column: str) -> Object:
    parts = {"logprobs": Column(column), "completions": Completions()}
    return Object(KnownModel, parts, {"completions": "rollout.completions"})


def generated_loss(
    trainer: Any,  # noqa: ANN401 - a trainer
    models: dict[str, KnownModel],
    rewards: list[float],
    rows: list[dict[str, str]],
    generations: int,
) -> dict[str, Any]:
    """The loss of a batch of prompts, and the trainer that logged; ``rows`` has each prompt for each completion."""
    ready = ready_to_sample(trainer, models["reference"], rewards, generations)
    return {"loss": ready.compute_loss(models["policy"], rows[::generations]), "trainer": ready}


def ready_to_sample(trainer: Any, reference: KnownModel, rewards: list[float], generations: int) -> Any:  # noqa: ANN401 - a trainer
    """The trainer before a loss that samples: nothing is logged, rewards and reference are those of the case."""
    ready = copy(trainer)
    ready.args = copy(trainer.args)
    ready.num_generations, ready.ref_model = generations, reference
    ready._metrics = defaultdict(list)  # noqa: SLF001 - where the trainer logs
    ready.reward_funcs = [RowRewards("first", 1.0, rewards)]
    return ready
