"""Boundaries of verl's update of the actor: from the trainer's batch and the model's logits to the gradient."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from rl_sentinel.adapters.kit.binding import present, try_bind
from rl_sentinel.adapters.kit.causal_model import CausalModel, model_of, with_prompt_tokens
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Table
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.requirements import equal_micro_batches, has_trained_token, no_empty_response
from rl_sentinel.adapters.kit.result_forms import Total
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, constants, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.actor import SECTION, actor
from rl_sentinel.adapters.verl.aggregation import aggregation
from rl_sentinel.adapters.verl.arguments import MASK_PRODUCER, POLICY_TENSORS
from rl_sentinel.adapters.verl.config_files import default_config
from rl_sentinel.adapters.verl.engine import LOSS, LOSS_TERMS, NUMBERS, ROWS, denominators
from rl_sentinel.adapters.verl.engine_fakes import HuggingFaceFake, fsdp_engine
from rl_sentinel.adapters.verl.engine_passes import (
    CONFIG,
    DYNAMIC,
    LM_HEAD,
    PADDED,
    TRAINER,
    WORKER,
    fsdp,
    prompts_differ,
)
from rl_sentinel.adapters.verl.engine_passes import FAKES as OF_ENGINE
from rl_sentinel.adapters.verl.fakes import record_losses
from rl_sentinel.adapters.verl.micro_batches import splits_of_release
from rl_sentinel.adapters.verl.queue_fakes import Queue
from rl_sentinel.adapters.verl.queue_passes import data_of_queue, fill_queue
from rl_sentinel.adapters.verl.queue_trainer import BASE, MODULE
from rl_sentinel.adapters.verl.queue_trainer import TRAINER as V1_TRAINER
from rl_sentinel.adapters.verl.rollout_batch import POSITIONS, position_step, trainer_batch
from rl_sentinel.adapters.verl.training_worker import COLLECTIVES, TRAIN, SimulatedRank, worker_of
from rl_sentinel.adapters.verl.training_worker import FAKES as OF_WORKER
from rl_sentinel.adapters.verl.training_worker import WORKER as TRAINING_WORKER
from rl_sentinel.core.batch import VOCABULARY, Batch, with_columns
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs

UPDATE = f"{TRAINER}._update_actor"
OF_QUEUE = f"{BASE}._update_actor"
ASSIGN = "verl.utils.tensordict_utils.assign_non_tensor"

#: Largest log-prob of a token: other tokens of the vocabulary have some probability too.
_LARGEST = -0.125

#: Coefficients of the loss, without an entropy bonus: the fake logits determine the entropy.
OF_LOSS: Settings = {name: number for name, number in NUMBERS.items() if name != "entropy_coeff"}

#: Aggregation mode of the loss.
MODE = "token-mean"

#: Requirements of an update.
REQUIRED = (no_empty_response, has_trained_token, equal_micro_batches)

_PRODUCED = (
    f"{MASK_PRODUCER}; agent_loop.py, _agent_loop_postprocess: prompts padded at the left, responses at the right; "
    "ray_trainer.py, fit: old_log_probs of the rollout's temperature, ref_log_prob, advantages"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the update with the PPO loss.

    The trainer passes padded sequences, the v1 trainer packed sequences.
    """
    for method, owner in ((UPDATE, TRAINER), (OF_QUEUE, V1_TRAINER)):
        needed = (method, owner, TRAIN, LM_HEAD, CONFIG, LOSS, POSITIONS)
        if all(target.has(path) for path in needed) and not target.fails(TRAINING_WORKER) and not target.fails(owner):
            yield from try_bind(target, method, "policy-loss", partial(_updates, target, method, owner))


@cache
def simulated_engine_class(kind: Any) -> type:  # noqa: ANN401 - the target's class
    """A subclass of verl's engine with the methods of :class:`SimulatedRank`, whose optimizer step does nothing."""
    return type("SimulatedEngine", (SimulatedRank, kind), {})


def training_engine(kind: Any, config: Any, use_remove_padding: bool) -> Any:  # noqa: ANN401, FBT001 - of the target
    """An engine that can train, for a configuration of verl."""
    return fsdp_engine(simulated_engine_class(kind), config, use_remove_padding)


def logits_of(log_probs: Tensor, tokens: Tensor, temperature: float) -> Tensor:
    """Logits ``[B, T, V]`` that give ``tokens`` the log-probs at a temperature; other tokens share the rest."""
    rest = (-torch.expm1(log_probs)).log() - torch.tensor(VOCABULARY - 1.0).log()
    chosen = torch.nn.functional.one_hot(tokens, VOCABULARY).bool()
    return temperature * torch.where(chosen, log_probs.unsqueeze(-1), rest.unsqueeze(-1))


def updated(  # noqa: PLR0913 - what the trainer, the worker, the engine and the model have
    method: Callable[..., Any],
    owner: type,
    worker: Any,  # noqa: ANN401 - classes and objects of the target, here and below
    config: Any,  # noqa: ANN401
    engine: Any,  # noqa: ANN401
    loss: Callable[..., Any],
    actor_config: Any,  # noqa: ANN401
    data: Any,  # noqa: ANN401
    log_probs: Tensor,
    about: dict[str, Any],
    assign: Callable[..., None],
    queued: bool,  # noqa: FBT001 - passed by name
    wrap: Callable[[CausalModel], Any] = HuggingFaceFake,
) -> list[Tensor]:
    """Run the trainer's update of the actor on a batch; return the losses of its micro-batches.

    ``log_probs`` ``[B, T]`` are the model's log-probs at the temperature of the rollout; ``about`` has defaults of the
    worker's configuration. With ``queued``, the trainer passes keys of rows. ``wrap`` gives the model
    the interface that the engine expects.
    """
    batch, width = data.batch, log_probs.shape[1]
    valid = batch["attention_mask"][:, -width:].bool()
    temperature = config.actor_rollout_ref.rollout.temperature
    logits = logits_of(torch.where(valid, log_probs, -1.0), batch["responses"], temperature)
    leaf = logits.detach().requires_grad_()  # each micro-batch adds to its gradient
    engine.module = wrap(model_of(batch["input_ids"], batch["attention_mask"], width, with_prompt_tokens(leaf)))
    actors = worker_of(worker, engine, partial(loss, actor_config))

    def update_actor(rows: Any) -> Any:  # noqa: ANN401 - a TensorDict, or keys of the queue
        read = data_of_queue(rows, {}, assign) if queued else rows
        assign(read, **{k: v for k, v in about.items() if k not in read.keys()})  # noqa: SIM118 - a TensorDict
        return actors.train_mini_batch(read)

    group = SimpleNamespace(update_actor=update_actor)
    trainer = bare_instance(owner, config=config, actor_rollout_wg=group, use_legacy_worker_impl="disable")
    losses: list[Tensor] = []
    with replaced_globals(vars(dist), **COLLECTIVES), record_losses(losses):
        if queued:
            method(trainer, fill_queue(batch, {name: batch[name] for name in POLICY_TENSORS}), {})
        else:
            method(trainer, data)
    if leaf.grad is not None:
        torch.autograd.backward([logits], [leaf.grad])
    return losses


def likely_tokens(batch: Batch) -> Batch:
    """The batch of :func:`prompts_differ`, with log-probs below 0."""
    own = prompts_differ(batch)
    return with_columns(own, logprob=own.logprob.clamp(max=_LARGEST))


def _copies(inputs: Inputs) -> int:
    """The number of responses per prompt."""
    return 2 - inputs.batch.rows % 2


def update_step(  # noqa: PLR0913 - the parts in which the engines differ
    target: Target,
    method: str,
    owner: str,
    engine: Codec,
    *,
    fakes: Mapping[str, Callable[..., Any]],
    call: Callable[..., Any] = updated,
    more: Mapping[str, Codec] | None = None,
) -> Step:
    """The step that runs the update of a trainer with an engine; ``more`` has further arguments of the ``call``."""
    temperature = Constant(PADDED["temperature"])  # at each temperature, the fake logits give the same log-probs
    whole: dict[str, Codec] = {
        "actor_rollout_ref.rollout.temperature": temperature,
        "actor_rollout_ref.rollout.n": Derived(_copies),
        "actor_rollout_ref.actor.ppo_mini_batch_size": Derived(lambda inputs: inputs.batch.rows // _copies(inputs)),
    }
    # The boundary of the loss itself checks whether each of them has an effect: a call takes less time there.
    numbers = constants(**{SECTION.get(name, name): number for name, number in OF_LOSS.items()})
    kinds = constants(use_kl_loss=True, kl_loss_type="low_var_kl", loss_agg_mode=MODE)
    arguments: dict[str, Codec] = {
        **functions(method=method, owner=owner, worker=TRAINING_WORKER),
        "config": default_config(target, "", whole, resolved=True),
        "engine": engine,
        "loss": Constant(Function(LOSS)),
        "actor_config": actor(target, "vanilla", {**numbers, **kinds}),
        "data": trainer_batch(temperature, POLICY_TENSORS),
        "log_probs": Column("logprob", leaf=True),
        "about": Table(WORKER),
        "assign": Constant(Function(ASSIGN)),
        "queued": Constant(owner == V1_TRAINER),
        **(more or {}),
    }
    return Step(
        call=call,
        name="updated",
        fakes=present(target, {**fakes, **OF_WORKER, f"{MODULE}.tq": Queue}),
        arguments=arguments,
        produced_by={"data": _PRODUCED},
    )


def loss_boundary(target: Target, path: str, step: Step, settings: Mapping[str, Settings], reach: str) -> Boundary:
    """The boundary of an update with the PPO loss."""
    claimed = denominators(target) | aggregation(target, MODE) | claims(LOSS_TERMS, algorithm="dual clip", kl="k3")
    claimed |= claims(ROWS, rows="all")
    return Boundary(
        path=path,
        stage="policy-loss",
        steps=(position_step(), step),
        unused=frozenset({"token"}),
        outputs={"loss": Output("", "", "loss", at=Use("updated"), form=Total())},
        settings={name: {**OF_LOSS, **own} for name, own in splits_of_release(target, settings).items()},
        claims=replace(claimed, knobs=()),
        reach=f"{reach}, actor.use_kl_loss=True",
        requires=REQUIRED,
        domain=likely_tokens,
    )


def _updates(target: Target, method: str, owner: str) -> Iterator[Boundary]:
    queued = owner == V1_TRAINER
    engine = replace(fsdp(LM_HEAD), make=training_engine)
    yield loss_boundary(
        target,
        f"{method} -> {LM_HEAD}.forward_step -> {LOSS}",
        update_step(target, method, owner, engine, fakes=OF_ENGINE),
        {"packed": DYNAMIC} if queued else {"padded": PADDED},
        f"trainer.use_v1={queued}, model.use_remove_padding={queued}",
    )
