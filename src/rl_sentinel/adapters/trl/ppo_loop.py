"""PPO in TRL's single-method training loop: KL, rewards, advantages, losses and metrics."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.user_layouts import full_width
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import ppo_updates
from rl_sentinel.adapters.trl.arguments import truncated_fill_width
from rl_sentinel.adapters.trl.loop_codecs import (
    ENDED,
    SCORES,
    VALUES,
    fills_width,
    logged,
    loop_step,
    penalized,
    sampled,
    several_tokens,
    tensor,
    trains_as_sampled,
)
from rl_sentinel.adapters.trl.loop_steps import logged_steps
from rl_sentinel.adapters.trl.release import fields_of, forwards_to, source_of
from rl_sentinel.adapters.trl.scoring import no_extra_padding
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Codec

#: The trainer, and its name in releases before 0.12, where another trainer was named PPOTrainer.
TRAINERS = ("trl.trainer.ppo_trainer.PPOTrainer", "trl.trainer.ppov2_trainer.PPOv2Trainer")

_OLD = Column("old_logprob")

#: The log-probs of the policy that sampled and of the reference.
COMPARED: Mapping[str, Codec] = {"old_logprobs": _OLD, "ref_logprobs": Column("ref_logprob")}

_KL = "ppo_trainer.py, train, 4. compute rewards: kl of the log-probs at sampling and of the reference's"
_GAE = claims(
    "ppo_trainer.py, train, 6. compute advantages and returns: GAE of rewards per token, whitened over the tokens",
    scope="batch",
    credit="temporal",
    algorithm="gae",
)
_SAMPLED = (no_empty_response, trains_as_sampled)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The boundaries of the loop, in releases that have it."""
    places = (target.locate(f"{path}.train").rpartition(".")[0] for path in TRAINERS if target.has(f"{path}.train"))
    known = (forwards_to(target, place) for place in places)
    trainer = next((path for path in known if "kl_coef" in fields_of(target, path)), "")
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
        ppo_updates.policy(path),
        ppo_updates.mini_batches(path),
        ppo_updates.value(path),
        _objective(path),
    ):
        yield from bindable(target, replace(boundary, requires=(*boundary.requires, *more)))
    if "self.log(" in source:
        yield from bindable(target, logged_steps(path, 1))


def _kls(path: str, fields: Mapping[str, Any]) -> Iterator[Boundary]:
    for estimator in ("k1", "k3") if "kl_estimator" in fields else ("k1",):
        settings: Settings = {"estimator": estimator} if "kl_estimator" in fields else {}
        yield Boundary(
            path=path,
            stage="kl",
            steps=(loop_step(path, settings, COMPARED),),
            outputs={"kl": tensor("kl", "nats", f"kl.{estimator}")},
            settings={f"KL, {estimator}": settings},
            claims=claims(_KL, algorithm=estimator, output_pairs={"kl": "old_logprob against ref_logprob"}),
            reach=f"kl_estimator={estimator}" if "kl_estimator" in fields else "every step",
            requires=_SAMPLED,
            domain=sampled,
        )


def _shaped(path: str, estimator: str) -> Boundary:
    """The boundary of the reward per token: minus the weighted KL, plus the outcome at the last token."""
    settings: Settings = {"kl_coef": 0.25}
    step = loop_step(path, settings, {**COMPARED, "scores": SCORES})
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
    """The batch with rewards per token set to 0, because the reward model returns one reward per response."""
    none = torch.zeros_like(batch.token_reward)
    return with_columns(batch, token_reward=none) if bool(batch.token_reward.any()) else batch


def _advantages(path: str, name: str, settings: Settings, step: Step | None = None) -> Boundary:
    step = step or loop_step(path, settings, {"old_values": VALUES, "scores": SCORES}, {"kl_coef": 0.0})
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
    """The boundary of the advantages with a discount, for responses that fill the width.

    After a shorter response, the loop discounts one more time.
    """
    boundary = _advantages(path, "discounted", {"gamma": 0.9, "lam": 0.8})
    return replace(
        boundary,
        requires=(*boundary.requires, fills_width),
        domain=lambda batch: sampled(full_width(batch)),
        reach="gamma=0.9",
    )


def _missing_eos(path: str) -> Boundary:
    settings: Settings = {"gamma": 1.0, "lam": 0.95, "penalty": 1.5}
    step = loop_step(path, settings, {"old_values": VALUES, "scores": penalized(1.5), "ended": ENDED}, {"kl_coef": 0.0})
    boundary = _advantages(path, "missing EOS", settings, step)
    return replace(boundary, requires=(*boundary.requires, truncated_fill_width), reach="missing_eos_penalty=1.5")


def _objective(path: str) -> Boundary:
    """The boundary of the logged metrics of the sampled responses: KL, entropy, scores and rewards."""
    settings: Settings = {"kl_coef": 0.25}
    step = loop_step(path, settings, {**COMPARED, "scores": SCORES})
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
