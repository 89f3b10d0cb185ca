"""Boundaries of verl's data-parallel critic before 0.8: its values, and its whole update."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.forms import Padded
from rl_sentinel.adapters.kit.requirements import equal_micro_batches, no_empty_response
from rl_sentinel.adapters.kit.result_forms import Total
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob, constants
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.aggregation import HALVED, aggregation
from rl_sentinel.adapters.verl.arguments import MASK_PRODUCER, every_token_is_trained
from rl_sentinel.adapters.verl.config_files import default_config
from rl_sentinel.adapters.verl.data_parallel import reducer_of
from rl_sentinel.adapters.verl.fakes import run_update, worker_with_fake
from rl_sentinel.adapters.verl.worker_batch import (
    PADDED,
    accelerator_fakes,
    dynamic_batch_size,
    equal_rows,
    forward_sizes,
    reads_response_mask,
    rows_are_equal,
    update_sizes,
    worker_data,
    worker_object,
)
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs

MODULE = "verl.workers.critic.dp_critic"
CRITIC = f"{MODULE}.DataParallelPPOCritic"
VALUES = f"{CRITIC}.compute_values"
UPDATE = f"{CRITIC}.update_critic"

#: Metrics that are logged over the trained tokens.
LOGGED: Mapping[str, Output] = {
    "critic/vf_clipfrac": Output("", "", "value_clip_fraction", over="live"),
    "critic/vpred_mean": Output("", "reward", "value.mean", over="live"),
}

#: The loss that is logged, which is aggregated like the loss.
TERM = "critic/vf_loss"

_MASKED = claims(
    "dp_critic.py, compute_values: the values times a mask; ray_trainer.py, compute_response_mask (or "
    "compute_advantage): the mask of the response, under which returns are computed",
    masked=True,
    algorithm="values of trained tokens",
    conserves=True,
)

_PADDED = "critic.model.use_remove_padding=False"
_WORKER = "fsdp_workers.py, CriticWorker: micro-batch sizes from the configuration"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the values and of the update."""
    yield from try_bind(target, CRITIC, "value-loss", lambda: _critics(target))


def _critics(target: Target) -> Iterator[Boundary]:
    forward, _, update = inspect.getsource(target.find(CRITIC)).partition("def update_critic")
    yield from (_values(target, forward, dynamic=dynamic) for dynamic in (False, True))
    modes = ("token-mean", "seq-mean-token-mean") if "loss_agg_mode" in update else ("token-mean",)
    yield from (_update(target, mode, update) for mode in modes)
    if "use_dynamic_bsz" in update:
        yield _update(target, "token-mean", update, dynamic=True)


def _critic(target: Target, fields: Mapping[str, Codec], values: Codec) -> Codec:
    """The critic with its configuration, and a fake model that returns ``values``."""
    sizes = update_sizes(inspect.getsource(target.find(CRITIC)))
    config = default_config(target, "critic", {**sizes, **constants(**PADDED), **fields})
    return worker_object(worker_with_fake, CRITIC, config, {"values": values}, model="critic_optimizer")


def _values(target: Target, source: str, *, dynamic: bool) -> Boundary:
    return one_call(
        path=VALUES,
        stage="reward",
        call=VALUES,
        name="values",
        fakes=accelerator_fakes(target, MODULE, source),
        arguments={"0": _critic(target, {}, Column("value")), "1": worker_data({}, **forward_sizes(dynamic=dynamic))},
        produced_by={"1": f"{MASK_PRODUCER}; {_WORKER}"},
        unused=frozenset({"token"}),
        outputs={"values": Output("B T", "reward", "value", at=Use("values"), form=Padded())},
        settings={"dynamic batch size" if dynamic else "equal micro-batches": {}},
        claims=_MASKED,
        reach=f"algorithm.adv_estimator=gae, {_PADDED}" + (", critic.use_dynamic_bsz=True" if dynamic else ""),
        requires=(no_empty_response, *_mask_requirements(source), *(() if dynamic else (equal_micro_batches,))),
    )


def _mask_requirements(source: str) -> tuple[Callable[[Inputs], str], ...]:
    return () if reads_response_mask(source) else (every_token_is_trained,)


def _update(target: Target, mode: str, source: str, *, dynamic: bool = False) -> Boundary:
    """The boundary of the update.

    If ``dynamic``, rows have equal length and micro-batches have about equally many tokens.
    """
    fields: dict[str, Codec] = {
        "cliprange_value": Knob("value_clip"),
        **(dynamic_batch_size() if dynamic else {}),
        **constants(loss_agg_mode=mode, ppo_epochs=1),
    }
    columns: dict[str, Codec] = {"values": Column("old_value"), "returns": Column("returns")}
    step = Step(
        call=run_update,
        name="made",
        fakes=accelerator_fakes(target, MODULE, source),
        arguments={
            "update": Constant(Function(UPDATE)),
            "worker": _critic(target, fields, Column("value", leaf=True)),
            "data": worker_data(columns),
        },
        produced_by={"data": f"{MASK_PRODUCER}; ray_trainer.py, fit: update_critic of the whole batch"},
    )
    by_tokens = mode == "token-mean"
    term = {TERM: Output("", "", "loss", over="live" if by_tokens else "rows")}
    every = {**(LOGGED if by_tokens else {}), **(term if TERM in source else {})}
    logged = {} if dynamic else every
    loss = Output("", "", "loss", at=Use("made")["losses"], form=Total())
    return Boundary(
        path=UPDATE,
        stage="value-loss",
        steps=(step, *reducer_of(target)) if logged else (step,),
        unused=frozenset({"token"}),
        outputs={"loss": loss, **{name: replace(o, at=Use("logged")[name]) for name, o in logged.items()}},
        settings={"dynamic batch size": {"value_clip": 0.5, "use_dynamic_bsz": True}}
        if dynamic
        else {mode: {"value_clip": 0.5}},
        claims=aggregation(target, mode) | claims(HALVED, algorithm="clipped value", factor="half"),
        reach=f"algorithm.adv_estimator=gae, {_PADDED}, every critic update"
        + (", critic.use_dynamic_bsz=True" if dynamic else ""),
        requires=(
            no_empty_response,
            equal_micro_batches,
            *_mask_requirements(source),
            *((rows_are_equal,) if dynamic else ()),
        ),
        domain=equal_rows if dynamic else None,
    )
