"""PPO in TRL's loop that samples, scores and trains in one method: KL, rewards, advantages, losses and metrics."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.pairs import even_rows
from rl_sentinel.adapters.kit.requirements import equal_micro_batches, no_empty_response
from rl_sentinel.adapters.kit.result_forms import AsReturned
from rl_sentinel.adapters.kit.user_layouts import full_width
from rl_sentinel.adapters.kit.value_codecs import Computed, Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import truncated_fill_width
from rl_sentinel.adapters.trl.loop_codecs import (
    ENDED,
    SCORES,
    VALUES,
    fills_width,
    loop_step,
    penalised,
    sampled,
    several_tokens,
    tokens_of,
    trains_as_sampled,
)
from rl_sentinel.adapters.trl.release import fields_of, source_of
from rl_sentinel.adapters.trl.scoring import no_extra_padding
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Inputs

#: The trainer, and its name in releases before 0.12, where another trainer had this one.
TRAINERS = ("trl.trainer.ppo_trainer.PPOTrainer", "trl.trainer.ppov2_trainer.PPOv2Trainer")

#: A whitened column differs from itself whitened by less than this.
WHITE = 1e-5

#: The number of mini-batches of a batch, where there are several.
MINI_BATCHES = 2

TRAINED = Use("trained")

_OLD, _REFERENCE = Column("old_logprob"), Column("ref_logprob")
_KL = "ppo_trainer.py, train, 4. compute rewards: kl of the sampled tokens, from log-probs at sampling and the reference's"
_GAE = claims(
    "ppo_trainer.py, train, 6. compute advantages and returns: GAE of rewards per token, whitened over the tokens",
    scope="batch",
    credit="temporal",
    algorithm="gae",
)
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

_SAMPLED = (no_empty_response, trains_as_sampled)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The boundaries of one step of the loop, in releases that have it."""
    known = (target.locate(path) for path in TRAINERS)
    trainer = next((path for path in known if target.has(f"{path}.train") and "kl_coef" in fields_of(target, path)), "")
    if not trainer:
        return
    path = f"{trainer}.train"
    if why := target.fails(path):
        yield Unbound(path, "advantage", why)
        return
    source, fields = source_of(target.find(path)), fields_of(target, trainer)
    stops = "min_new_tokens" not in source and "generation_config.eos_token_id = None" not in source
    stops = stops and "self.stop_token_id = " in source_of(target.find(f"{trainer}.__init__"))
    more = (no_extra_padding,) if stops else ()
    for boundary in (
        *_kls(path, fields),
        _shaped(path, "k1"),
        _advantages(path, "default", {"gamma": 1.0, "lam": 0.95}),
        _discounted(path),
        *([_missing_eos(path)] if "missing_eos_penalty" in fields else []),
        _policy(path),
        _mini_batches(path),
        _value(path),
        _objective(path),
    ):
        yield from bindable(target, replace(boundary, requires=(*boundary.requires, *more)))


def tensor(name: str, unit: str, quantity: str) -> Output:
    """``[B, T]``: a local variable of ``train`` when it logs."""
    return Output("B T", unit, quantity, at=TRAINED[name], form=AsReturned())


def logged(outputs: Mapping[str, Output], source: Use = TRAINED) -> dict[str, Output]:
    """The numbers that ``train`` logs."""
    return {name: replace(output, at=source["logs"][name]) for name, output in outputs.items()}


def _kls(path: str, fields: Mapping[str, Any]) -> Iterator[Boundary]:
    for estimator in ("k1", "k3") if "kl_estimator" in fields else ("k1",):
        settings: Settings = {"estimator": estimator} if "kl_estimator" in fields else {}
        yield Boundary(
            path=path,
            stage="kl",
            steps=(loop_step(path, settings, old_logprobs=_OLD, ref_logprobs=_REFERENCE),),
            outputs={"kl": tensor("kl", "nats", f"kl.{estimator}")},
            settings={f"KL, {estimator}": settings},
            claims=claims(_KL, algorithm=estimator, output_pairs={"kl": "old_logprob against ref_logprob"}),
            reach=f"kl_estimator={estimator}" if "kl_estimator" in fields else "every step",
            requires=_SAMPLED,
            domain=sampled,
        )


def _shaped(path: str, estimator: str) -> Boundary:
    """The reward per token: the outcome at the last one, minus the weighted KL."""
    settings: Settings = {"kl_coef": 0.25}
    step = loop_step(path, settings, old_logprobs=_OLD, ref_logprobs=_REFERENCE, scores=SCORES)
    return Boundary(
        path=path,
        stage="reward",
        steps=(step,),
        outputs={"reward": tensor("rewards", "reward", "reward")},
        settings={"rewards": settings},
        claims=claims(_KL, kl=estimator, algorithm=f"less {estimator}"),
        reach="responses that fill the width",
        requires=(*_SAMPLED, fills_width),
        domain=lambda batch: without_token_rewards(sampled(full_width(batch))),
    )


def without_token_rewards(batch: Batch) -> Batch:
    """The batch without rewards per token: the reward model gives one for each response."""
    none = torch.zeros_like(batch.token_reward)
    return with_columns(batch, token_reward=none) if bool(batch.token_reward.any()) else batch


def _advantages(path: str, name: str, settings: Settings, step: Step | None = None) -> Boundary:
    step = step or loop_step(path, settings, {"kl_coef": 0.0}, old_values=VALUES, scores=SCORES)
    return Boundary(
        path=path,
        stage="advantage",
        steps=(step,),
        outputs={
            "advantage": tensor("advantages", "reward", "advantage"),
            "returns": tensor("returns", "reward", "returns"),
        },
        settings={name: settings},
        claims=_GAE,
        reach="every step",
        requires=(*_SAMPLED, several_tokens),
        domain=sampled,
    )


def _discounted(path: str) -> Boundary:
    """With a discount, in batches whose responses fill the width: after a shorter one the loop discounts once more."""
    boundary = _advantages(path, "discounted", {"gamma": 0.9, "lam": 0.8})
    return replace(
        boundary,
        requires=(*boundary.requires, fills_width),
        domain=lambda batch: sampled(full_width(batch)),
        reach="gamma=0.9",
    )


def _missing_eos(path: str) -> Boundary:
    settings: Settings = {"gamma": 1.0, "lam": 0.95, "penalty": 1.5}
    step = loop_step(path, settings, {"kl_coef": 0.0}, old_values=VALUES, scores=penalised(1.5), ended=ENDED)
    boundary = _advantages(path, "missing EOS", settings, step)
    return replace(boundary, requires=(*boundary.requires, truncated_fill_width), reach="missing_eos_penalty=1.5")


def _policy(path: str) -> Boundary:
    """The policy's loss at advantages that the loop computes: values are chosen so that these are the column."""
    settings: Settings = {"clip_low": 0.2, "clip_high": 0.2}
    fixed: Settings = {"gamma": 1.0, "lam": 0.0, "kl_coef": 0.0, "vf_coef": 0.0}
    values = tokens_of(frozenset({"advantage"}), values_for, "the loop computes the advantages from values")
    step = loop_step(
        path, settings, fixed, parts=True, old_values=values, logprobs=Column("logprob"), old_logprobs=_OLD
    )
    return Boundary(
        path=path,
        stage="policy-loss",
        steps=(step,),
        outputs={"loss": Output("", "", "loss", at=TRAINED["loss"]), **logged(POLICY_LOGGED)},
        settings={"policy": settings},
        claims=_POLICY | claims(_KL, output_pairs={"policy/approxkl_avg": "logprob against old_logprob"}),
        reach="every step",
        requires=(*_SAMPLED, several_tokens, equal_micro_batches, is_white),
        domain=lambda batch: whitened(sampled(batch)),
    )


def _mini_batches(path: str) -> Boundary:
    """The metrics of an update in two mini-batches, of responses that fill the width: means over both."""
    boundary = _policy(path)
    (step,) = boundary.steps
    arguments = {**step.arguments, "micro_batches": Constant(1), "mini_batches": Constant(MINI_BATCHES)}
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
    """Require mini-batches of equal size."""
    return "" if inputs.batch.rows % MINI_BATCHES == 0 else "the rows do not divide into equal mini-batches"


def values_for(batch: Batch) -> Tensor:
    """Values whose one-step differences are the advantages, without a reward."""
    advantage = torch.where(batch.mask, batch.advantage, 0.0).double()
    return -advantage.flip(1).cumsum(1).flip(1).to(batch.advantage.dtype)


def _spread(batch: Batch) -> tuple[Tensor, Tensor]:
    numbers = batch.advantage[batch.mask].double()
    return numbers.mean(), numbers.std()


def whitened(batch: Batch) -> Batch:
    """The batch with advantages of mean 0 and deviation 1 over its tokens; unchanged if they are so, or all equal."""
    if int(batch.mask.sum()) < 2 or not is_white_batch(batch) and float(_spread(batch)[1]) < 1e-3:  # noqa: RUF021 - read in this order
        return batch
    if is_white_batch(batch):
        return batch
    mean, deviation = _spread(batch)
    white = ((batch.advantage.double() - mean) / deviation).to(batch.advantage.dtype)
    return with_columns(batch, advantage=white)


def is_white_batch(batch: Batch) -> bool:
    """Whether whitening leaves the advantages as they are."""
    mean, deviation = _spread(batch)
    return abs(float(mean)) < WHITE and abs(float(deviation) - 1) < WHITE


def is_white(inputs: Inputs) -> str:
    """Require advantages as the loop whitens them."""
    return "" if is_white_batch(inputs.mini_batch) else "the loop whitens advantages, and these are not white"


def _value(path: str) -> Boundary:
    """The value loss; the last position of a response that is shorter than the width is the state after its end."""
    settings: Settings = {"value_clip": 0.5}
    mask = Computed(frozenset({"mask"}), _without_final_state, "the loop stores a state that has no token")
    scores = Computed(frozenset({"returns"}), lambda inputs: inputs.batch.returns[:, 0], "all returns are the score")
    step = loop_step(
        path,
        settings,
        {"gamma": 1.0, "lam": 1.0, "kl_coef": 0.0, "vf_coef": 1.0},
        parts=True,
        mask=mask,
        values=Column("value"),
        old_values=Column("old_value"),
        scores=scores,
    )
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
    return (torch.arange(batch.width) < (batch.length - short).unsqueeze(1)).to(torch.int64)


def with_one_return(batch: Batch) -> Batch:
    """Responses whose returns are all equal to their score, of two positions or more."""
    batch = sampled(batch)
    if bool((batch.length < min(2, batch.width)).any()):
        length = batch.length.clamp(min=min(2, batch.width))
        batch = sampled(with_columns(batch, length=length))
    same = batch.returns[:, :1].expand(batch.mask.shape)
    return batch if torch.equal(same, batch.returns) else with_columns(batch, returns=same.clone())


def returns_are_scores(inputs: Inputs) -> str:
    """Require one return per response: without a discount, all returns are the score."""
    batch = inputs.mini_batch
    same = (batch.returns == batch.returns[:, :1]) | ~batch.mask
    return "" if bool(same.all()) else "the returns of a response differ, but without a discount all are its score"


def has_final_states(inputs: Inputs) -> str:
    """Require a token before the final state, and advantages that can be whitened."""
    batch = inputs.mini_batch
    if bool((batch.length < min(2, batch.width)).any()):
        return "a response has no token before its final state"
    spread = (batch.returns - batch.old_value)[batch.mask].double()
    return "" if float(spread.std()) > 1e-3 else "the advantages are all equal, and cannot be whitened"


def _objective(path: str) -> Boundary:
    """The metrics of the sampled responses."""
    settings: Settings = {"kl_coef": 0.25}
    step = loop_step(path, settings, old_logprobs=_OLD, ref_logprobs=_REFERENCE, scores=SCORES)
    return Boundary(
        path=path,
        stage="metric",
        steps=(step,),
        outputs=logged(OBJECTIVE),
        settings={"objective": settings},
        claims=OBJECTIVE_CLAIMS,
        reach="every step",
        requires=_SAMPLED,
        domain=sampled,
    )


#: Logged name -> output, of the sampled responses.
OBJECTIVE: Mapping[str, Output] = {
    "objective/kl": Output("", "nats", "kl.k1", over="live"),
    "objective/entropy": Output("", "nats", "", over="live"),
    "objective/non_score_reward": Output("", "reward", "", over="live"),
    "objective/scores": Output("", "reward", "outcome.mean", over="all"),
    "objective/rlhf_reward": Output("", "reward", "", over="live"),
}

OBJECTIVE_CLAIMS: Claims = claims(
    "docs/source/ppo_trainer.md, explanation of the logged metrics: mean KL between policy and reference, mean entropy",
    output_pairs={"objective/kl": "old_logprob against ref_logprob"},
)
