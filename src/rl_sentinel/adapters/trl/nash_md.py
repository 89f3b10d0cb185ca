"""TRL's Nash-MD: the loss of sampled completions, from their log-probs and their probabilities of winning."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.requirements import every_row_trains
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.pair_codecs import TokenLogprobs
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Inputs

NASH = "trl.trainer.nash_md_trainer.NashMDTrainer"
NASH_EXPERIMENTAL = "trl.experimental.nash_md.nash_md_trainer.NashMDTrainer"

#: What the loss claims to be.
OBJECTIVE = claims(
    "nash_md_trainer.py: score and kl divergence via reinforce, of arXiv 2312.00886", algorithm="nash-md"
) | claims("nash_md_trainer.py: sum(1) of each completion, loss.mean()", aggregation="sequence-mean-token-sum")

_PRODUCERS = {
    "logprobs": "nash_md_trainer.py, _compute_logprobs: log-probs of completions, 0 in the padding",
    "probability": "nash_md_trainer.py, training_step: sigmoid of the difference of scores, or a judge's probability",
}


@dataclass
class Trainer:
    """A fake trainer with the attribute that the loss reads."""

    beta: float


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the loss of Nash-MD."""
    path = next((p for p in (NASH, NASH_EXPERIMENTAL) if target.has(p)), NASH)
    if not target.has(path):
        return
    if why := target.fails(path):
        yield Unbound(f"{path}._compute_losses", "policy-loss", why)
        return
    yield from bindable(target, _nash(f"{path}._compute_losses"))


def rewards_are_probabilities(inputs: Inputs) -> str:
    """The reason to skip a batch with a reward below 0 or above 1; empty otherwise."""
    reward = inputs.batch.reward
    return "" if bool(((reward >= 0) & (reward <= 1)).all()) else "a reward is not a probability between 0 and 1"


def judge_every_row(batch: Batch) -> Batch:
    """Train the rows without a trained token, and map rewards to probabilities unless all are between 0 and 1."""
    changed: dict[str, Tensor] = {}
    if not bool(batch.live.all()):
        changed["mask"] = torch.where(batch.live.unsqueeze(1), batch.mask, batch.valid)
    if not bool(((batch.reward >= 0) & (batch.reward <= 1)).all()):
        changed["reward"] = torch.sigmoid(batch.reward)
    return with_columns(batch, **changed) if changed else batch


def _nash(path: str) -> Boundary:
    return one_call(
        path=path,
        stage="policy-loss",
        call=self_play_loss,
        name="loss",
        arguments={
            "entry": Constant(Function(path)),
            "trainer": Object(Trainer, {"beta": Knob("beta")}),
            "logprobs": TokenLogprobs("logprob", leaf=False),
            "ref_logprobs": TokenLogprobs("ref_logprob", leaf=False),
            "probability": Column("reward"),
        },
        produced_by=_PRODUCERS,
        outputs={"loss": Output("", "", "loss", at=Use("loss"))},
        settings={"default": {"beta": 0.5}},
        claims=OBJECTIVE,
        reach="every step",
        requires=(every_row_trains, rewards_are_probabilities),
        domain=judge_every_row,
    )


def self_play_loss(
    entry: Callable[..., Any],
    trainer: Trainer,
    logprobs: Tensor,
    ref_logprobs: Tensor,
    probability: Tensor,
) -> Tensor:
    """Compute the loss of a batch; ``entry`` is the audited method that computes the loss."""
    loss: Tensor = entry(trainer, logprobs, ref_logprobs, probability)[0]
    return loss
