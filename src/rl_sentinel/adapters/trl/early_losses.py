"""GRPO's loss in early TRL releases, where one method samples, scores, computes the loss and logs."""

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
from rl_sentinel.adapters.trl.rollout_fakes import Rollout, generated_rows
from rl_sentinel.adapters.trl.scoring import no_extra_padding, rollout_conditions
from rl_sentinel.adapters.trl.tiny_trainer import PADDING, RowRewards
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
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

#: Logged name -> output.
LOGGED = {
    "reward": Output("", "reward", "outcome.mean", over="all"),
    "rewards/first": Output("", "reward", "outcome.mean", over="all"),
    "completion_length": Output("", "tokens", "response_length.mean", over="all"),
    "kl": Output("", "nats", "kl.mean", over="live"),
}


#: Factor of the log-probs of a row that attends to padding.
WITH_PADDING = 1.5


class LogProbs(Tensor):
    """A tensor of log-probs that replaces logits: its ``log_softmax`` returns it unchanged."""

    def log_softmax(self, dim: int) -> Tensor:  # type: ignore[override]  # noqa: ARG002 - as torch's
        """The log-probs, unchanged."""
        return self.as_subclass(Tensor)


class KnownModel(nn.Module):
    """A fake model with known completions; at each position, every token has the same log-prob.

    The log-probs of a row are wrong if it attends to the padding before its prompt, or does not attend to one of its
    tokens.
    """

    def __init__(self, logprobs: Tensor, completions: list[list[int]]) -> None:
        """Store ``[B, T]`` log-probs, and the token ids of the completions."""
        super().__init__()
        self.logprobs = logprobs
        self.rollout = Rollout(completions=completions)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **more: int) -> SimpleNamespace:
        """The log-probs as logits of the next token at each position. A release may request the last positions only."""
        width = max(map(len, self.rollout.completions))
        tokens = input_ids != PADDING
        attended = torch.ones_like(tokens) if attention_mask is None else attention_mask.bool()
        seen = tokens.flip(1).cumsum(1).flip(1) > 0  # positions up to the last token
        wrong = ((attended != tokens) & seen).any(1, keepdim=True)
        own = torch.where(wrong, WITH_PADDING, 1.0) * self.logprobs[:, :width]
        logprobs = torch.cat([own.new_zeros(len(own), input_ids.shape[1] - width - 1), own], 1)
        logits = torch.cat([logprobs, logprobs.new_zeros(len(logprobs), 1)], 1).unsqueeze(2).expand(-1, -1, 8)
        kept = more.get("logits_to_keep") or more.get("num_logits_to_keep") or 0
        return SimpleNamespace(logits=logits[:, -kept:].as_subclass(LogProbs))

    def generate(self, input_ids: Tensor, **_options: object) -> Tensor:
        """The prompts, repeated once per completion, each followed by its completion."""
        repeated = input_ids.repeat_interleave(len(self.logprobs) // len(input_ids), 0)
        return generated_rows(repeated, self.rollout.completions)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the loss, in releases whose loss method also samples the completions."""
    if not target.has(PATH) or target.fails(PATH) or "reward_funcs" not in source_of(target.find(PATH)):
        return
    yield from bindable(target, _boundary(target))


def _boundary(target: Target) -> Boundary:
    place = log_place(target, "grpo", Use("computed")["trainer"])
    logged = {
        name: Output(o.axes, o.unit, o.quantity, over=o.over, at=place[name], form=Logged())
        for name, o in LOGGED.items()
    }
    return one_call(
        path=PATH,
        stage="policy-loss",
        call=rollout_loss,
        name="computed",
        arguments={
            "trainer": trainer("grpo", _SETTINGS),
            "models": Table({"policy": _model("logprob"), "reference": _model("ref_logprob")}),
            "rewards": Column("reward", PerRow("list")),
            "rows": Prompts(varied=True),
            "generations": Derived(lambda inputs: max(group_sizes(inputs))),
        },
        produced_by={"rows": _PRODUCER},
        outputs={"loss": Output("", "", "loss", at=Use("computed")["loss"]), **logged},
        settings={"default": _SETTINGS},
        claims=_KL | _OWN,
        reach="every training step",
        requires=(*rollout_conditions(masked=False), no_extra_padding),
    )


def _model(column: str) -> Object:
    parts = {"logprobs": Column(column), "completions": Completions()}
    return Object(KnownModel, parts, {"completions": "rollout.completions"})


def rollout_loss(
    trainer: Any,  # noqa: ANN401 - a trainer
    models: dict[str, KnownModel],
    rewards: list[float],
    rows: list[dict[str, str]],
    generations: int,
) -> dict[str, Any]:
    """Compute the loss of a batch; return ``loss``, and ``trainer`` with its logs.

    ``rows`` contains each prompt once per completion.
    """
    ready = ready_to_sample(trainer, models["reference"], rewards, generations)
    return {"loss": ready.compute_loss(models["policy"], rows[::generations]), "trainer": ready}


def ready_to_sample(trainer: Any, reference: KnownModel, rewards: list[float], generations: int) -> Any:  # noqa: ANN401 - a trainer
    """A copy of the trainer that is ready to sample: an empty log, these rewards and this reference model."""
    ready = copy(trainer)
    ready.args = copy(trainer.args)
    ready.num_generations, ready.ref_model = generations, reference
    ready._metrics = defaultdict(list)  # noqa: SLF001 - where the trainer logs
    ready.reward_funcs = [RowRewards("first", 1.0, rewards)]
    return ready
