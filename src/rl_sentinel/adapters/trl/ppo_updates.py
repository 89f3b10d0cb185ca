"""The updates of PPO in TRL's single-method training loop: losses and metrics."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.pairs import even_rows
from rl_sentinel.adapters.kit.requirements import equal_micro_batches, no_empty_response
from rl_sentinel.adapters.kit.user_layouts import full_width
from rl_sentinel.adapters.kit.value_codecs import Computed, constants
from rl_sentinel.adapters.trl.loop_codecs import (
    TRAINED,
    fills_width,
    logged,
    loop_step,
    sampled,
    several_tokens,
    tokens_of,
    trains_as_sampled,
)
from rl_sentinel.adapters.trl.scoring import no_extra_padding
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Inputs

#: Advantages count as white if their mean is within this of 0, and their standard deviation within this of 1.
WHITE = 1e-5

#: A smaller standard deviation or advantage may be a rounding error.
ALIKE = 1e-3

#: The number of mini-batches in the boundary with several mini-batches.
MINI_BATCHES = 2

_OLD = Column("old_logprob")
_SAMPLED = (no_empty_response, trains_as_sampled)

_POLICY_CITE = "ppo_trainer.md, explanation of the logged metrics: averages over the update"
_POLICY = claims(
    "ppo_trainer.py, train: ratio, clamp with cliprange, masked_mean over the tokens of a micro-batch",
    ratio=True,
    algorithm="ppo",
    aggregation="token-mean",
)
_VALUE = claims(
    "ppo_trainer.py, train: vf_loss = 0.5 * masked_mean(vf_loss_max), the states after the last token included",
    algorithm="clipped value",
    factor="half",
    aggregation="token-mean",
)

#: Logged name -> output, of the policy's update and of the value model's.
POLICY_LOGGED: Mapping[str, Output] = {
    "policy/approxkl_avg": Output("", "nats", "kl.k2", over="live"),
    "policy/clipfrac_avg": Output("", "", "clip_fraction", over="live"),
    "loss/policy_avg": Output("", "", "loss"),
    "policy/entropy_avg": Output("", "nats", "", over="live"),
    "val/ratio": Output("", "", "ratio.mean", over="live"),
}
VALUE_LOGGED: Mapping[str, Output] = {
    "val/clipfrac_avg": Output("", "", "value_clip_fraction", over="live"),
    "loss/value_avg": Output("", "", "loss"),
}


def policy(path: str) -> Boundary:
    """The boundary of the policy loss. The values are chosen such that the advantages equal the advantage column."""
    settings: Settings = {"clip_low": 0.2, "clip_high": 0.2}
    fixed: Settings = {"gamma": 1.0, "lam": 0.0, "kl_coef": 0.0, "vf_coef": 0.0}
    values = tokens_of(frozenset({"advantage"}), values_for, "the loop computes the advantages from values")
    known = {"old_values": values, "logprobs": Column("logprob"), "old_logprobs": _OLD}
    step = loop_step(path, settings, known, fixed, parts=True)
    return Boundary(
        path=path,
        stage="policy-loss",
        steps=(step,),
        outputs={"loss": Output("", "", "loss", at=TRAINED["loss"]), **logged(POLICY_LOGGED)},
        settings={"policy": settings},
        claims=_POLICY | claims(_POLICY_CITE, output_pairs={"policy/approxkl_avg": "logprob against old_logprob"}),
        reach="every step",
        requires=(*_SAMPLED, several_tokens, equal_micro_batches, is_white),
        domain=lambda batch: whitened(sampled(batch)),
    )


def mini_batches(path: str) -> Boundary:
    """The boundary of an update's metrics as means over two mini-batches. All responses fill the width."""
    boundary = policy(path)
    (step,) = boundary.steps
    arguments = {**step.arguments, **constants(micro_batches=1, mini_batches=MINI_BATCHES)}
    kept = {name: boundary.outputs[name] for name in ("policy/clipfrac_avg", "val/ratio")}
    return replace(
        boundary,
        stage="metric",
        steps=(replace(step, arguments=arguments),),
        outputs=kept,
        settings={"two mini-batches": dict(boundary.settings["policy"])},
        claims=claims(_POLICY_CITE, output_pairs={"val/ratio": "logprob against old_logprob"}),
        reach=f"num_mini_batches={MINI_BATCHES}",
        requires=(*boundary.requires, fills_width, in_mini_batches),
        domain=lambda batch: whitened(sampled(full_width(even_rows(batch)))),
    )


def in_mini_batches(inputs: Inputs) -> str:
    """The reason to skip a batch whose rows do not divide into equal mini-batches; empty otherwise."""
    return "" if inputs.batch.rows % MINI_BATCHES == 0 else "the rows do not divide into equal mini-batches"


def values_for(batch: Batch) -> Tensor:
    """Values whose one-step differences equal the advantages if all rewards are 0."""
    advantage = torch.where(batch.mask, batch.advantage, 0.0).double()
    return -advantage.flip(1).cumsum(1).flip(1).to(batch.advantage.dtype)


def _spread(batch: Batch) -> tuple[Tensor, Tensor]:
    numbers = batch.advantage[batch.mask].double()
    return numbers.mean(), numbers.std()


def whitened(batch: Batch) -> Batch:
    """Replace advantages near 0, then whiten: mean 0 and standard deviation 1 over the tokens.

    The batch is returned unchanged if it already fits, has fewer than two tokens, or if its advantages are equal.
    """
    if int(batch.mask.sum()) < 2 or float(_spread(batch)[1]) < ALIKE or (is_white_batch(batch) and not _near_0(batch)):
        return batch
    if _near_0(batch):
        advantage = torch.where(batch.advantage.abs() < ALIKE, torch.full_like(batch.advantage, 0.5), batch.advantage)
        batch = with_columns(batch, advantage=advantage)
    mean, deviation = _spread(batch)
    white = ((batch.advantage.double() - mean) / deviation).to(batch.advantage.dtype)
    return with_columns(batch, advantage=white)


def is_white_batch(batch: Batch) -> bool:
    """Whether whitening leaves the advantages unchanged."""
    mean, deviation = _spread(batch)
    return abs(float(mean)) < WHITE and abs(float(deviation) - 1) < WHITE


def _near_0(batch: Batch) -> bool:
    return bool((batch.advantage[batch.mask].abs() < ALIKE).any())


def is_white(inputs: Inputs) -> str:
    """The reason to skip a mini-batch whose advantages whitening would change, or where one is near 0; else empty.

    Rounding may decide the sign of an advantage near 0.
    """
    if _near_0(inputs.mini_batch):
        return "an advantage is 0, and whitening may change its sign"
    return (
        "" if is_white_batch(inputs.mini_batch) else "the loop whitens advantages, which would change these advantages"
    )


def value(path: str) -> Boundary:
    """The boundary of the value loss.

    In responses shorter than the width, the last position is the state after the response.
    """
    settings: Settings = {"value_clip": 0.5}
    mask = Computed(frozenset({"mask"}), _without_final_state, "the loop stores a state that has no token")
    scores = Computed(frozenset({"returns"}), lambda inputs: inputs.batch.returns[:, 0], "each return is the score")
    known = {"mask": mask, "values": Column("value"), "old_values": Column("old_value"), "scores": scores}
    fixed: Settings = {"gamma": 1.0, "lam": 1.0, "kl_coef": 0.0, "vf_coef": 1.0}
    step = loop_step(path, settings, known, fixed, parts=True)
    return Boundary(
        path=path,
        stage="value-loss",
        steps=(step,),
        outputs={"loss": Output("", "", "loss", at=TRAINED["loss"]), **logged(VALUE_LOGGED)},
        settings={"value": settings},
        claims=_VALUE,
        reach="every step",
        requires=(
            *_SAMPLED,
            several_tokens,
            equal_micro_batches,
            no_extra_padding,
            returns_are_scores,
            has_final_states,
        ),
        domain=with_one_return,
    )


def _without_final_state(inputs: Inputs) -> Tensor:
    batch = inputs.batch
    short = (batch.length < batch.width).to(batch.length.dtype)
    before = torch.arange(batch.width) < (batch.length - short).unsqueeze(1)
    return (batch.mask & before).to(torch.int64)


def with_one_return(batch: Batch) -> Batch:
    """A batch with equal returns in each response, and at least two positions per response if the width allows it."""
    batch = sampled(batch)
    if bool((batch.length < min(2, batch.width)).any()):
        length = batch.length.clamp(min=min(2, batch.width))
        batch = sampled(with_columns(batch, length=length))
    same = batch.returns[:, :1].expand(batch.mask.shape)
    return batch if torch.equal(same, batch.returns) else with_columns(batch, returns=same.clone())


def returns_are_scores(inputs: Inputs) -> str:
    """The reason to skip a mini-batch where the returns of a response differ (each should be its score); else empty."""
    batch = inputs.mini_batch
    same = (batch.returns == batch.returns[:, :1]) | ~batch.mask
    return (
        ""
        if bool(same.all())
        else "the returns of a response differ, but without a discount all of them equal its score"
    )


def has_final_states(inputs: Inputs) -> str:
    """The reason to skip a mini-batch with a response that is too short, or with equal advantages; empty otherwise.

    A response needs a token before its final state. Equal advantages cannot be whitened.
    """
    batch = inputs.mini_batch
    if bool((batch.length < min(2, batch.width)).any()):
        return "a response has no token before its final state"
    spread = (batch.returns - batch.old_value)[batch.mask].double()
    return "" if float(spread.std()) > ALIKE else "the advantages are all equal, and cannot be whitened"
