"""Boundaries of the advantages of verl's v1 trainer, whose columns are in a transfer queue."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.codecs import Column, ResponseMask
from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.forms import Padded
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.reward_codecs import TokenRewards
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob, constants, functions, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.advantages import CLAIMS, DISCOUNTED, advantage_outputs, estimator_claims, estimators
from rl_sentinel.adapters.verl.arguments import MASK, critic_values
from rl_sentinel.adapters.verl.config_files import default_config
from rl_sentinel.adapters.verl.dispatch import unused_of
from rl_sentinel.adapters.verl.kl import CONTROLLER, SECTION
from rl_sentinel.adapters.verl.queue_fakes import Queue, QueuedBatch, cut, padded
from rl_sentinel.adapters.verl.trajectories import TrajectoryKeys
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Codec

MODULE = "verl.trainer.ppo.v1.trainer_base"
BASE = f"{MODULE}.PPOTrainer"

#: The trainer of the default configuration.
TRAINER = "verl.trainer.ppo.v1.trainer_sync.PPOTrainerSync"
ADVANTAGE = f"{BASE}._compute_advantage"

_PRODUCED = (
    "v1/agent_loop_tq.py: response_mask and rm_scores of each output, without padding, under the key of prompt, "
    "session and output; v1/trainer_base.py, _compute_old_log_prob, _compute_ref_log_prob, _compute_values: "
    "old_log_probs, ref_log_prob and values of the response"
)

_STEPS = claims(
    "v1/utils.py, docstring: only the final output takes part, and the result is broadcast to the others",
    trajectories="step-wise",
)

_SHAPED = claims(
    "v1/trainer_base.py, _compute_advantage: apply kl penalty to rewards",
    output_algorithms={"token_reward": "less k1"},
)

#: Coefficient of the KL in the reward.
_PENALTY: Mapping[str, float] = {"kl_coef": 0.125}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the advantages from outcome rewards, from token rewards, and from rewards with a KL penalty."""
    if target.has(ADVANTAGE) and target.has(TRAINER) and not target.fails(TRAINER):
        yield from try_bind(target, ADVANTAGE, "advantage", lambda: _advantages(target))


def compute_advantage(  # noqa: PLR0913 - a trainer has several parts
    method: Callable[..., Any],
    owner: type,
    config: Any,  # noqa: ANN401 - an OmegaConf configuration
    controller: Any,  # noqa: ANN401 - a controller of the target
    keys: list[str],
    columns: dict[str, Tensor],
    valid: Tensor,
) -> dict[str, Tensor]:
    """Fill the queue, run the trainer's method, and return the columns ``[B, T]`` that it adds to the queue."""
    lengths = valid.sum(1)
    uids = [key.rsplit("_", 2)[0] for key in keys]
    Queue.fill(keys, {"uid": uids, **{name: cut(column, lengths) for name, column in columns.items()}})
    trainer = bare_instance(owner, config=config, kl_ctrl_in_reward=controller)
    method(trainer, QueuedBatch(keys, tags=[{} for _ in keys]), {})
    added = [name for name in ("advantages", "returns", "token_level_rewards") if name in Queue.rows[keys[0]]]
    return {name: padded([Queue.rows[key][name] for key in keys], valid.shape[1]) for name in added}


def _advantages(target: Target) -> Iterator[Boundary]:
    functions = estimators(target)
    if "grpo" in functions:
        yield _advantage(target, "grpo", CLAIMS["grpo"] | _STEPS)
    if "gae" in functions:
        claimed = estimator_claims("gae", functions["gae"])
        yield _advantage(target, "gae", claimed)
        yield _penalized(target, claimed)


def _advantage(target: Target, name: str, claimed: Claims, more: Mapping[str, Codec] | None = None) -> Boundary:
    """The boundary of the method with one estimator; with ``more`` columns, the reward includes a KL penalty."""
    columns: dict[str, Codec] = {"response_mask": MASK, "rm_scores": TokenRewards(), **(more or {})}
    columns |= {"values": critic_values(target)} if name == "gae" else {}
    discounts = {f"algorithm.{knob}": Knob(knob, 1.0) for knob in ("gamma", "lam")}
    chosen = {"algorithm.adv_estimator": Constant(name), "algorithm.use_kl_in_reward": Constant(value=bool(more))}
    coefficient = knobs("kl_coef") if more else constants(kl_coef=0.0)
    section = Object(SECTION, {**constants(type="fixed"), **coefficient}, {"kl_coef": "value"})
    added = Use("added")
    by_step = claimed.trajectories is not None
    return one_call(
        path=ADVANTAGE,
        stage="advantage",
        call=compute_advantage,
        name="added",
        fakes={f"{MODULE}.tq": Queue},
        arguments={
            **functions(method=ADVANTAGE, owner=TRAINER),
            "config": default_config(target, "", {**discounts, **chosen}, resolved=True),
            "controller": Object(CONTROLLER, {"kl_ctrl": section}, {"kl_ctrl": ""}),
            "keys": TrajectoryKeys(),
            "columns": Table(columns),
            "valid": ResponseMask(),
        },
        produced_by={"columns": _PRODUCED},
        unused=unused_of(name)
        | (frozenset() if name == "grpo" else {"group"})
        | (frozenset() if by_step else {"trajectory", "step", "last_step"}),
        outputs=advantage_outputs(added["advantages"], added["returns"]),
        settings={name: DISCOUNTED.get(name, {})},
        claims=claimed,
        reach=f"trainer.use_v1=True (the default), algorithm.adv_estimator={name}",
        requires=(no_empty_response,),
    )


def _penalized(target: Target, claimed: Claims) -> Boundary:
    more = {"old_log_probs": Column("old_logprob"), "ref_log_prob": Column("ref_logprob")}
    one = _advantage(target, "gae", claimed | _SHAPED, more)
    shaped = Output("B T", "reward", "token_reward", at=Use("added")["token_level_rewards"], form=Padded())
    return replace(
        one,
        outputs={**one.outputs, "token_reward": shaped},
        settings={"gae, KL in the reward": {**next(iter(one.settings.values())), **_PENALTY}},
        reach=f"{one.reach}, algorithm.use_kl_in_reward=True",
    )
